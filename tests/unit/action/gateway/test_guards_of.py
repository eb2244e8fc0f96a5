"""A guard is left out for a tool only where it passes every call of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway import guards, history, origins
from contextos.action.gateway.tool_gateway import GUARDS, guards_of


def tool(**changed: Any) -> Any:
    plain = {"leaves": False, "permissions": (), "consents": frozenset(), "destinations": ()} | changed
    definition = SimpleNamespace(kind=plain.pop("kind", "read"))
    adapter = SimpleNamespace(type=plain.pop("type", "function"))
    return SimpleNamespace(capability_id="a.pay", adapter=adapter, definition=definition, **plain)


def policy(hours: Any = (), history: Any = ()) -> Any:
    return SimpleNamespace(hours_of=lambda _: dict(hours), history=dict(history))


COUNTED = SimpleNamespace(counted=lambda: {"a.pay": None})
OF_OTHERS = SimpleNamespace(counted=lambda: {"a.refund": None})
QUARANTINE = {guards.not_quarantined, guards.still_not_quarantined}
HISTORY = {history.history_known, history.reserved}
DESTINATIONS = {guards.idempotency_check, origins.destinations_trusted}


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
        (tool(kind="write"), policy(), {guards.idempotency_check}),
        (tool(destinations=("to",)), policy(), DESTINATIONS),
        (tool(kind="write", destinations=("to",)), policy(), DESTINATIONS),
    ],
)
def test_a_guard_that_can_refuse_a_call_of_a_tool_is_asked(made: Any, under: Any, asked: set[Any]) -> None:
    of_tool = {guards.within_egress, guards.consented, guards.consistent_with_request}
    by_tool = {*QUARANTINE, *HISTORY, *DESTINATIONS, *of_tool}
    expected = tuple(guard for guard in GUARDS if guard not in by_tool or guard in asked)
    assert guards_of(made, under) == expected
