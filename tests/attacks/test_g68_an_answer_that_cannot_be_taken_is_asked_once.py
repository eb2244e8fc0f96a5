"""An answer that cannot be taken is an outcome of its call: asked once, with its place, and no circuit opens by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.adapters.foreign.replies import unreadable_answer
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.documents.operations import BREAKERS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.ports.gates import Done
from contextos.errors import LostReply, Problem
from tests.servers import hostile_agent as agents
from tests.servers.adapters import call_context
from tests.servers.processes import hostile_skill
from tests.sessions import LOOKUP, REFUND, in_world, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld

LONG = "1234567890123456789"
NUMBER = Problem("/structuredContent/id", "integer_too_large", f"`{LONG}` is above 2^53-1", "carry it as a string")


class Unreadable:
    """An adapter whose answers to one capability come, and cannot be taken."""

    def __init__(self, inner: Any, name: str) -> None:
        self.inner, self.name, self.asked = inner, name, 0

    def describe(self) -> AdapterDefinition:
        return self.inner.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if capability != self.name:
            return await self.inner.call(capability, args, context)
        self.asked += 1
        (declared,) = (one for one in self.describe().capabilities if one.name == capability)
        return unreadable_answer(NUMBER, declared, lambda text: text, final=True)

    async def lookup(self, *args: Any) -> AdapterReply | None:
        return await self.inner.lookup(*args)


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


def unreadable(world: TestWorld, tool: str) -> Unreadable:
    adapter, _, name = tool.partition(".")
    world.deployment.breakers = CircuitBreakers(AdmissionLimits(breaker_failures_in_a_row=1))
    made = world.adapters[adapter] = Unreadable(world.adapters[adapter], name)
    return made


async def returned(world: TestWorld, run_id: str, tool: str) -> list[Any]:
    """The recorded attempts of a tool's calls."""
    entries = await world.stores.tenant(TENANT).read(run_id)
    bodies = [read_body(one) for one in entries if one.kind == "tool.returned"]
    return [one for one in bodies if one["envelope"]["capability_id"] == tool]


def test_a_read_is_asked_once_and_no_circuit_opens(tmp_path: Path, stores: str) -> None:
    async def play(world: TestWorld) -> None:
        adapter = unreadable(world, LOOKUP)
        for number in range(8):
            gate = await refund_session(world, f"ses_{number}")
            answer = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
            assert "/structuredContent/id" in str(answer)
            assert "2^53-1" in str(answer)
            assert LONG not in str(answer)
            assert "unavailable" not in str(answer)
            (body,) = await returned(world, gate.run_id, LOOKUP)
            assert body["outcome"] == "returned"
        assert adapter.asked == 8
        found = await world.stores.tenant(TENANT).scan(BREAKERS.name)
        assert [one.key for one in found if "lookup" in one.key] == []

    in_world(tmp_path, play, stores=stores)


def test_a_write_is_done_and_is_not_settled_by_hand(tmp_path: Path, stores: str) -> None:
    async def play(world: TestWorld) -> None:
        adapter = unreadable(world, REFUND)
        gate = await refund_session(world, "ses_paid", 900)
        await read_first(gate, 900)
        paid = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(paid, Done), paid
        assert paid.withheld is not None
        assert "2^53-1" in paid.withheld.detail
        (body,) = await returned(world, gate.run_id, REFUND)
        assert (body["outcome"], body["happened"], adapter.asked) == ("returned", True, 1)
        view = await gate.finish("approved")
        assert view.record is not None
        assert (view.waiting, view.record["status"]) == (None, "DECIDED")

    in_world(tmp_path, play, stores=stores)


def task(state: str, data: str) -> Any:
    """What answers a message with a task in a state, whose artifact is this text as JSON."""
    made = {
        "id": "t",
        "contextId": "c",
        "status": {"state": f"TASK_STATE_{state}"},
        "artifacts": [{"artifactId": "a", "parts": [{"data": "HERE"}]}],
    }

    def body(asked: dict[str, Any]) -> tuple[int, bytes]:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"task": made}}
        return 200, json.dumps(answer).replace('"HERE"', data).encode()

    return body


FAULTS = {
    "a number of 64 bits": (f'{{"n":{LONG}}}', "/n"),
    "a number beyond doubles": ('{"n":1e400}', "/n"),
    "NaN": ('{"n":NaN}', "/n"),
    "a member twice": ('{"n":1,"n":2}', "/n"),
    "half a character": ('{"n":"\\ud800"}', "/n"),
}


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_agent_whose_task_is_done_has_its_answer_withheld(
    fault: str, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, place = FAULTS[fault]
    monkeypatch.setitem(agents.BODIES, "fault", task("COMPLETED", data))
    with hostile_skill("fault", read=read) as (agent, adapter):
        reply = asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
    assert len(agent.messages) == 1
    assert reply.withheld is not None
    assert reply.withheld.pointer == f"/result/task/artifacts/0/parts/0/data{place}"
    assert LONG not in reply.withheld.message


def test_an_agent_whose_task_goes_on_is_unknown_for_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(agents.BODIES, "fault", task("WORKING", f'{{"n":{LONG}}}'))
    with hostile_skill("fault") as (_, adapter), pytest.raises(LostReply, match="integer_too_large"):
        asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
