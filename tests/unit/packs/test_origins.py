"""Every leaf of an expansion has one origin."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.packs.origins import default, derived, split_origins, written
from tests.unit.packs.deploying import expanded


def leaves(value: Any, at: str = "") -> list[str]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    steps = [(str(step).replace("~", "~0").replace("/", "~1"), one) for step, one in inside]
    return [leaf for step, one in steps for leaf in leaves(one, f"{at}/{step}")] if steps else [at]


def test_a_tree_splits_into_its_value_and_its_origins() -> None:
    tree = {"a": written([1, {"b/c": 2}]), "d": [default({}), {"e": derived(None)}]}
    assert split_origins(tree) == (
        {"a": [1, {"b/c": 2}], "d": [{}, {"e": None}]},
        {"/a/0": "written", "/a/1/b~1c": "written", "/d/0": "default", "/d/1/e": "derived"},
    )


def test_a_leaf_without_an_origin_is_a_mistake_of_the_builder() -> None:
    with pytest.raises(AssertionError, match="/a"):
        split_origins({"a": 1})


def test_every_leaf_of_an_expansion_has_an_origin() -> None:
    expansion = expanded(
        ask=[{"role": "lead", "when": "evidence.ci.blast_radius > 20"}],
        evidence={"frozen": {"type": "service", "request": "/input/context/service", "path": ["in_freeze"]}},
        permissions={"deploy.scale": {"arg_constraints": {"replicas": {"max": 50}}}},
    )
    assert sorted(expansion.origins) == sorted(leaves(expansion.document))
    assert all(resolve_pointer(expansion.document, one) is not MISSING for one in expansion.origins)


def test_what_the_author_wrote_is_written_and_nothing_else() -> None:
    silent, told = expanded().origins, expanded(approver="lead", budget={"max_tool_calls": 3}, redaction=[]).origins
    assert silent["/pack_meta/pack_id"] == "written"
    assert silent["/policy_layer/approval_gates/0/required_approver_role"] == "default"
    assert told["/policy_layer/approval_gates/0/required_approver_role"] == "written"
    assert silent["/pack_meta/run_budget/max_tool_calls"] == "default"
    assert told["/pack_meta/run_budget/max_tool_calls"] == "written"
    assert told["/pack_meta/run_budget/wall_clock_ms"] == "default"
    assert told["/policy_layer/guardrails/redaction_rules"] == "written"
    assert silent["/decision_layer/task_templates/0/steps/1/params/env/pointer"] == "derived"
