"""Lint of limits: the side of the schema counts unless every whole number is within it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import MAX_INT
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import ArgConstraint, PolicyBundle
from contextos.control.lint.bounds import lint_bounds, permitted_limits
from tests.unit.control.example import ROOT, adapters

REFUND = "adp_payments.issue_refund"


def bundle(limits: dict[str, Any]) -> PolicyBundle:
    rule = {
        "rule_id": "R_AUTO",
        "applies_to": {"capability": REFUND},
        "if": {"==": [{"var": "user.role"}, "support_agent"]},
        "then": {"allow": True, "approval_mode": "delegated", "arg_constraints": limits},
    }
    return PolicyBundle.model_validate(
        {"bundle_id": "POLICY_A", "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
    )


@pytest.mark.parametrize(
    ("schema", "codes"),
    [({"minimum": 1}, []), ({"exclusiveMinimum": 0}, []), ({}, ["one_sided"]), ({"minimum": -MAX_INT}, ["one_sided"])],
)
def test_the_schema_of_the_tool_can_have_the_other_side(schema: dict[str, Any], codes: list[str]) -> None:
    tool = next(one for one in adapters()["adp_payments"].capabilities if one.name == "issue_refund")
    properties = {"amount_inr": {"type": "integer", **schema}}
    tool = tool.model_copy(update={"input_schema": {**tool.input_schema, "properties": properties}})
    found = [one.code for one in lint_bounds(bundle({"amount_inr": {"max": 5}}), {REFUND: tool}, {})]
    assert found == codes
    permitted = {REFUND: [{"amount_inr": [ArgConstraint(min=1)]}]}
    assert list(lint_bounds(bundle({"amount_inr": {"max": 5}}), {REFUND: tool}, permitted)) == []


def test_a_limit_of_one_role_says_nothing_of_another_and_a_denied_role_says_nothing() -> None:
    tool = next(one for one in adapters()["adp_payments"].capabilities if one.name == "issue_refund")
    properties = {"amount_inr": {"type": "integer"}}
    tool = tool.model_copy(update={"input_schema": {**tool.input_schema, "properties": properties}})
    limited, free = [{"amount_inr": [ArgConstraint(min=1)]}], [{}]
    for limits, codes in ((limited, []), (free, ["one_sided"]), (limited + free, ["one_sided"])):
        found = lint_bounds(bundle({"amount_inr": {"max": 5}}), {REFUND: tool}, {REFUND: limits})
        assert [one.code for one in found] == codes
    pack = pack_with(
        {"roles": ["clerk"]},
        {"roles": ["clerk", "intern"], "arg_constraints": {"amount_inr": {"max": 5}}},
        {"roles": ["lead"], "arg_constraints": {"amount_inr": {"max": 9}}},
        {"roles": ["guest"], "arg_constraints": {"amount_inr": {"max": 1}}, "allow": False},
    )
    most = [[limit.max for limit in limits.get("amount_inr", ())] for limits in permitted_limits(pack)[REFUND]]
    assert most == [[5], [5], [9]]


def pack_with(*permissions: dict[str, Any]) -> ContextPack:
    raw = json.loads((ROOT / "pack.json").read_text())
    whose = {"adapter_id": "adp_payments", "capability": "issue_refund"}
    raw["tooling_layer"]["permissions"] = [
        {"permission_id": f"p{number}", **whose, **one} for number, one in enumerate(permissions)
    ]
    return ContextPack.model_validate(raw)
