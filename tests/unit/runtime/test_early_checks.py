"""An adapter learns of a call that will probably follow, and what it does then changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import DEFINITION_DRIFT, AdapterDefinition, AdapterReply, CallContext, ToolError
from contextos.errors import InvalidInput
from contextos.operations.gate.gate import Done, Refused
from tests.sessions import (
    LOOKUP,
    REFUND,
    assert_replays,
    chosen_by_agent,
    in_world,
    read_first,
    refund_args,
    refund_session,
)
from tests.world import TENANT, TestWorld


@dataclass
class Expecting:
    """An adapter that learns of calls, and what happens to it in order."""

    inner: Any
    events: list[tuple[str, str, str]]
    raises: bool = field(default=False)

    def __post_init__(self) -> None:
        self.definition = AdapterDefinition.model_validate(self.inner.describe().to_json() | {"type": "mcp"})

    def describe(self) -> AdapterDefinition:
        return self.definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.events.append(("called", capability, context.tool_call_id))
        reply: AdapterReply = await self.inner.call(capability, args, context)
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        found: AdapterReply | None = await self.inner.lookup(capability, idempotency_key, context)
        return found

    def expect_call(self, capability: str, tool_call_id: str) -> None:
        self.events.append(("expected", capability, tool_call_id))
        if self.raises:
            raise RuntimeError("foreign code")


class Changed:
    """A server that does not list its tools as they were published."""

    async def call(self, _capability: str, _args: Mapping[str, Any], _context: CallContext) -> AdapterReply:
        return AdapterReply(error=ToolError(code=DEFINITION_DRIFT, message="not as it was published"), cost_cents=0)


def watched(world: TestWorld, *, raises: bool = False) -> list[tuple[str, str, str]]:
    events: list[tuple[str, str, str]] = []
    for name, inner in list(world.adapters.items()):
        expecting: Any = Expecting(inner, events, raises)
        world.adapters[name] = expecting
    return events


def test_each_call_of_a_session_is_expected_before_it_is_made_and_a_replay_expects_none(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        events = watched(world)
        gate = await refund_session(world, "ses_expects", 900)
        await read_first(gate, 900)
        paid = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(paid, Done), paid
        await gate.finish("approved")
        made = [(capability, call_id) for what, capability, call_id in events if what == "called"]
        assert [capability for capability, _ in made] == ["lookup", "eval", "issue_refund"]
        assert [event[0] for event in events] == ["expected", "called"] * 3
        assert [event[1:] for event in events[::2]] == made
        seen = list(events)
        await assert_replays(world, gate.run_id)
        entries = await world.stores.tenant(TENANT).read(gate.run_id)
        last_asked = max(number for number, one in enumerate(entries, start=1) if one.kind == "call.asked")
        first_asked = min(number for number, one in enumerate(entries, start=1) if one.kind == "call.asked")
        for cut in (first_asked, last_asked):
            with pytest.raises(InvalidInput, match="has not ended"):
                await replay(world.deployment, TENANT, gate.run_id, entries[:cut])
        assert events == seen

    in_world(tmp_path, play)


def test_what_a_refused_call_began_is_lost_and_a_fault_in_it_is_nobodys(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        events = watched(world, raises=True)
        gate = await refund_session(world, "ses_expects", 900)
        refused = await gate.call(LOOKUP, {"order_id": 7}, call_id="bad")
        assert isinstance(refused, Refused), refused
        assert {event[0] for event in events} == {"expected"}
        unknown = await gate.call("adp_orders.nothing", {}, call_id="unknown")
        assert isinstance(unknown, Refused), unknown
        assert len(events) == 1
        await read_first(gate, 900)
        assert [event[0] for event in events] == ["expected", "expected", "called", "expected", "called"]

    in_world(tmp_path, play)


def test_a_read_of_a_place_that_the_tenant_does_not_list_is_not_expected(tmp_path: Path) -> None:
    elsewhere = {"type": "openapi", "external": True, "egress": ["orders.example"]}

    def reaching(pack: dict[str, Any]) -> None:
        chosen_by_agent(pack)
        pack["tooling_layer"]["egress"] = ["orders.example"]

    async def play(world: TestWorld) -> None:
        inner: Any = world.adapters["adp_orders"]
        events = watched(world)
        orders: Any = world.adapters["adp_orders"]
        orders.definition = AdapterDefinition.model_validate(inner.describe().to_json() | elsewhere)
        gate = await refund_session(world, "ses_expects", 900)
        refused = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
        assert isinstance(refused, Refused), refused
        assert "egress" in str(refused)
        assert events == []

    in_world(tmp_path, play, pack=reaching)


def test_the_server_of_a_capability_in_quarantine_is_not_asked_for_anything(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        events = watched(world)
        gate = await refund_session(world, "ses_expects", 900)
        await read_first(gate, 900)
        changed: Any = world.adapters["adp_orders"]
        changed.inner = Changed()
        await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="drift")
        before = list(events)
        refused = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="again")
        assert isinstance(refused, Refused), refused
        assert [one.code for one in refused.reasons] == ["quarantined"]
        assert events == before

    in_world(tmp_path, play)
