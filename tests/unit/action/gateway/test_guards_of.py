"""A guard is left out for a tool only where it passes every call of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway import guards, history
from contextos.action.gateway.tool_gateway import GUARDS, guards_of


def tool(**changed: Any) -> Any:
    plain = {"leaves": False, "permissions": (), "consents": frozenset(), "type": "function"} | changed
    return SimpleNamespace(capability_id="a.pay", adapter=SimpleNamespace(type=plain.pop("type")), **plain)


def policy(hours: Any = (), history: Any = ()) -> Any:
    return SimpleNamespace(hours_of=lambda _: dict(hours), history=dict(history))


COUNTED = SimpleNamespace(counted=lambda: {"a.pay": None})
OF_OTHERS = SimpleNamespace(counted=lambda: {"a.refund": None})
QUARANTINE = {guards.not_quarantined, guards.still_not_quarantined}
HISTORY = {history.history_known, history.reserved}


@pytest.mark.parametrize(
    ("made", "under", "asked"),
    [
        (tool(), policy(), set()),
        (tool(), policy(history=[("n", OF_OTHERS)]), set()),
        (tool(type="mcp"), policy(), QUARANTINE),
        (tool(type="http"), policy(), QUARANTINE),
        (tool(leaves=True), policy(), {guards.within_egress}),
        (tool(consents=frozenset(("agreed",))), policy(), {guards.consented}),
        (tool(permissions=(SimpleNamespace(agrees_with={"id": "/id"}),)), policy(), {guards.consistent_with_request}),
        (tool(permissions=(SimpleNamespace(agrees_with={}),)), policy(), set()),
        (tool(), policy(hours=[("office", None)]), HISTORY),
        (tool(), policy(history=[("n", COUNTED)]), HISTORY),
    ],
)
def test_a_guard_that_can_refuse_a_call_of_a_tool_is_asked(made: Any, under: Any, asked: set[Any]) -> None:
    by_tool = {*QUARANTINE, *HISTORY, guards.within_egress, guards.consented, guards.consistent_with_request}
    expected = tuple(guard for guard in GUARDS if guard not in by_tool or guard in asked)
    assert guards_of(made, under) == expected
