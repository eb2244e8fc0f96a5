"""Who drives a session says so: while they do it is theirs, when they stop another takes over and fences them off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.deployment.deployment import Deployment, due_runs
from contextos.errors import Unavailable
from tests.e2e.test_sessions import long
from tests.world import TENANT, TestWorld, open_world, request, run

TTL_US = 60_000_000
LEASE_US = 180_000_000


@dataclass
class SlowPayments:
    """Payments that answer when they are let."""

    inner: Any
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    let: asyncio.Event = field(default_factory=asyncio.Event)

    def describe(self) -> AdapterDefinition:
        described: AdapterDefinition = self.inner.describe()
        return described

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.asked.set()
        await self.let.wait()
        # However late: it is an adapter that does not ask.
        sent = replace(context, is_late=lambda: False)
        reply: AdapterReply = await self.inner.call(capability, args, sent)
        return reply


@dataclass
class Two:
    """A driver in the middle of a slow payment, and another process that cannot ask whether the first one lives."""

    world: TestWorld
    slow: SlowPayments
    other: Deployment
    run_id: str
    drive: asyncio.Task[Any]

    async def later(self, us: int, *, beating: bool) -> None:
        self.world.clock.at_us += us
        if beating:
            await self.world.deployment.send_heartbeats()

    async def taken_over(self) -> bool:
        """Whether the other process finds the run and may drive it."""
        found = [run_id async for _, run_id in due_runs(self.other)]
        try:
            await self.other.advance(TENANT, self.run_id)
        except Unavailable:
            assert found == []
            return False
        assert found == [self.run_id]
        return True

    async def finished(self) -> None:
        self.slow.let.set()
        await self.drive

    async def beat_of(self) -> dict[str, Any] | None:
        found = await self.world.stores.tenant(TENANT).scan("heartbeats", key=self.run_id)
        return orjson.loads(found[0].body) if found else None


async def two(path: Path, *, engine: bool = True, mode: str = "long_running", stores: str = "memory") -> Two:
    world = await open_world(path, stores=stores)
    fast = dict(world.adapters)
    slow = SlowPayments(fast["adp_payments"])
    adapters = {**fast, "adp_payments": slow}
    ports = replace(world.deployment.ports, adapters=lambda _: adapters, owner="worker_a", alive=lambda _: True)
    world.deployment.ports = ports
    other = Deployment(ports=replace(ports, adapters=lambda _: fast, owner="worker_b"), config=world.deployment.config)
    if engine:
        await world.deployment.send_heartbeats()
    if mode == "long_running":
        run_id = (await world.invoke(long(900, "req_slow"))).run_id
        drive = asyncio.create_task(world.deployment.advance(TENANT, run_id))
    else:
        drive = asyncio.create_task(world.invoke(request(900, "req_slow")))
    await slow.asked.wait()
    run_id = (await world.stores.tenant(TENANT).read("index"))[0].key
    return Two(world, slow, other, run_id, drive)


@pytest.mark.requirement("R-HEARTBEAT")
def test_a_call_that_takes_longer_than_the_lease_loses_nothing_while_its_driver_beats(tmp_path: Path) -> None:
    async def scenario() -> None:
        both = await two(tmp_path)
        for _ in range(LEASE_US // (TTL_US // 3) + 6):
            await both.later(TTL_US // 3, beating=True)
            assert not await both.taken_over()
        await both.finished()
        assert both.drive.result().state == "exhausted", "the call alone took longer than the run's wall clock"
        assert (await both.world.kinds(both.run_id)).count("run.resumed") == 1, "when it was driven after its receipt"
        assert len(both.world.refunds()) == 1

    run(scenario())


@pytest.mark.requirement("R-HEARTBEAT")
@pytest.mark.parametrize("beats", [0, 1, 12])
def test_a_silent_driver_is_taken_over_after_the_ttl_and_fenced_off_when_it_wakes(tmp_path: Path, beats: int) -> None:
    async def scenario() -> None:
        both = await two(tmp_path)
        for _ in range(beats):
            await both.later(TTL_US // 3, beating=True)
        await both.later(TTL_US - 5_000_000, beating=False)
        assert not await both.taken_over()
        await both.later(5_000_000, beating=False)
        assert await both.taken_over()
        before = await both.world.kinds(both.run_id)
        await both.later(TTL_US, beating=True)
        said = await both.beat_of()
        assert said is None or said["at_us"] < both.world.clock.at_us - TTL_US, "who lost the lease does not beat"
        await both.finished()
        assert both.drive.result().state == "completed", "it sees what the other came to"
        kinds = await both.world.kinds(both.run_id)
        assert kinds[: len(before)] == before, "what the other wrote stays"
        assert kinds.count("run.ended") == 1
        assert len(both.world.refunds()) == 1

    run(scenario())


@pytest.mark.requirement("R-HEARTBEAT")
@pytest.mark.parametrize(("engine", "mode"), [(False, "long_running"), (True, "stream")])
def test_where_nobody_beats_the_lease_alone_counts(tmp_path: Path, engine: bool, mode: str) -> None:
    async def scenario() -> None:
        both = await two(tmp_path, engine=engine, mode=mode)
        await both.later(LEASE_US - 5_000_000, beating=False)
        assert not await both.taken_over()
        await both.later(5_000_000, beating=engine)
        assert await both.taken_over()
        assert await both.beat_of() is None
        await both.finished()
        assert len(both.world.refunds()) == 1

    run(scenario())


def test_a_session_that_waits_for_a_person_is_held_by_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        await world.deployment.send_heartbeats()
        view = await world.invoke(long(4200, "req_waits"))
        await world.deployment.advance(TENANT, view.run_id)
        world.clock.at_us += TTL_US
        await world.deployment.send_heartbeats()
        store = world.stores.tenant(TENANT)
        assert list(await store.scan("heartbeats")) == []
        assert list(await store.scan("heartbeats")) == []
        world.clock.at_us -= TTL_US
        await world.answer(view.run_id)
        ports = replace(world.deployment.ports, owner="worker_b", alive=lambda _: True)
        other = Deployment(ports=ports, config=world.deployment.config)
        assert [run_id async for _, run_id in due_runs(other)] == [view.run_id], "it was let go, and nobody holds it"
        assert (await other.advance(TENANT, view.run_id)).state == "completed"

    run(scenario())
