"""Lint of what packs and routing rules say of models: each fault is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contextos.contracts.envelopes.models import KNOWN_MODEL_OPERATIONS
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.lint.models import ASKED_OPERATIONS
from contextos.control.lint.pack import lint_pack
from tests.attacks.modelled import RULES, planned_pack, session_pack

Change = Callable[[dict[str, Any]], None]


def found(pack: dict[str, Any], *definitions: AdapterDefinition) -> list[tuple[str, str]]:
    known = {one.adapter_id: one for one in definitions} or None
    problems = lint_pack(ContextPack.model_validate(pack), known)
    return [(one.code, one.pointer) for one in problems if "adapter_registry" not in one.pointer]


@pytest.mark.parametrize("operation", sorted(set(KNOWN_MODEL_OPERATIONS) - ASKED_OPERATIONS))
def test_an_operation_that_nothing_asks_for_is_refused(operation: str) -> None:
    pack = planned_pack()
    pack["decision_layer"]["models"].append({"operation": operation, "rules": RULES})
    assert found(pack) == [("not_enforced", "/decision_layer/models/1/operation")]


@pytest.mark.parametrize("models", [[], [{"operation": "judge.verify", "rules": RULES}]])
def test_a_model_that_chooses_calls_needs_rules(models: list[dict[str, str]]) -> None:
    pack = session_pack()
    pack["decision_layer"]["models"] = models
    assert found(pack) == [("no_model", "/decision_layer/task_templates/0/chosen_by")]


def payments(**stated: Any) -> AdapterDefinition:
    schema = {"type": "object", "properties": {"pin": {"type": "string"}, "order_id": {"type": "string"}}}
    capability = {
        "name": "issue_refund",
        "kind": "write",
        "risk_level": "write_irreversible",
        "approval_mode": "destructive",
        "input_schema": schema,
        "output_schema": {"type": "object"},
        "idempotency": {"strategy": "none", "scope": "run"},
    }
    return AdapterDefinition.model_validate(
        {"adapter_id": "adp_payments", "type": "function", "version": "1", "capabilities": [capability | stated]}
    )


def test_a_tool_with_a_secret_is_no_tool_of_a_model() -> None:
    at = "/decision_layer/task_templates/0/steps/2/tool"
    assert ("secret_shown", at) in found(session_pack(), payments(secrets=["pin"]))
    assert ("secret_shown", at) not in found(session_pack(), payments())
    by_agent = session_pack()
    by_agent["decision_layer"]["task_templates"][0]["chosen_by"] = "agent"
    assert ("secret_shown", at) not in found(by_agent, payments(secrets=["pin"]))
