"""Lint of a template whose calls an agent chooses: no arguments, no order, one decision, and no other way beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contextos.contracts.envelopes.pack import ContextPack
from contextos.control.lint.pack import lint_pack
from tests.sessions import chosen_by_agent
from tests.world import example

Change = Callable[[dict[str, Any], dict[str, Any]], None]


def found(change: Change) -> list[tuple[str, str]]:
    """The problems of the example's pack as a session, after a change of the pack and its template."""
    pack = example("pack.json")
    chosen_by_agent(pack)
    change(pack, pack["decision_layer"]["task_templates"][0])
    return [(one.code, one.pointer) for one in lint_pack(ContextPack.model_validate(pack), None)]


def test_the_example_as_a_session_has_no_problem() -> None:
    assert found(lambda _pack, _template: None) == []


def another_way(pack: dict[str, Any], template: dict[str, Any]) -> None:
    steps = example("pack.json")["decision_layer"]["task_templates"][0]
    pack["decision_layer"]["task_templates"].append({**steps, "template_id": "task_of_steps"})
    pack["decision_layer"]["intents"][0]["eligible_task_templates"].append("task_of_steps")


def another_decision(pack: dict[str, Any], template: dict[str, Any]) -> None:
    spec = pack["decision_layer"]["decision_specs"][0]
    pack["decision_layer"]["decision_specs"].append({**spec, "decision_key": "support.refund.second"})
    template["decision_checkpoints"].append({"decision_id": "support.refund.second"})


TEMPLATE = "/decision_layer/task_templates/0"
FAULTS: list[tuple[str, Change, str, str]] = [
    (
        "arguments",
        lambda _pack, template: template["steps"][2].update(params={"amount_inr": 1}),
        "chosen_by_agent",
        "/steps/2/params",
    ),
    (
        "order",
        lambda _pack, template: template["steps"][2].update(depends_on=["s1"]),
        "chosen_by_agent",
        "/steps/2/depends_on",
    ),
    (
        "a checkpoint after a step",
        lambda _pack, template: template["decision_checkpoints"][0].update(after_step="s2"),
        "chosen_by_agent",
        "/decision_checkpoints/0/after_step",
    ),
    ("two decisions", another_decision, "one_decision", "/decision_checkpoints"),
    ("another template", another_way, "session_not_alone", "/intent"),
    ("no decision", lambda _pack, template: template.update(decision_checkpoints=[]), "not_bound", "/steps/2"),
    (
        "a tool twice",
        lambda _pack, template: template["steps"].append({**template["steps"][0], "id": "s9"}),
        "duplicate",
        "/steps/3/tool",
    ),
]


@pytest.mark.parametrize(("change", "code", "at"), [one[1:] for one in FAULTS], ids=[one[0] for one in FAULTS])
def test_lint_names_what_a_session_cannot_have(change: Change, code: str, at: str) -> None:
    assert (code, TEMPLATE + at) in found(change)
