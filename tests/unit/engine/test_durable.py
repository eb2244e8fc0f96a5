"""The durable engine drives what is due, once at a time over all workers, and loses nothing. On a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.journal import Advance, Batch
from contextos.engine.dbos_queue import QueueLimits
from contextos.engine.durable import DurableEngine, DurableLimits
from contextos.engine.local import SWEEP
from contextos.errors import Conflict, Integrity, InvalidSettings, Unavailable
from contextos.store.clock import SystemClock
from contextos.store.memory import MemoryStores
from tests.unit.engine.conftest import Server

ENDED = Advance("completed", None)
QUEUE = QueueLimits(polling_interval_ms=5, dead_after_ms=2000)
LIMITS = DurableLimits(
    queue=QUEUE, sweep_interval_ms=20, conflict_backoff_ms=0, stop_grace_ms=200, confirm_dead_ms=1000
)
NO_SWEEP = replace(LIMITS, sweep_interval_ms=3_600_000, queue=replace(QUEUE, dead_after_ms=3_600_000))
HOUR_US = 3_600_000_000


class World:
    """Stores and a fake `advance` that plays a script for each run and then ends it in the store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = SystemClock()
        self.stores = MemoryStores(clock=self.clock)
        self.script: dict[str, list[Any]] = {}
        self.drives: list[str] = []
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.reported: list[tuple[str, str, BaseException]] = []

    async def wake(self, run: str, when_us: int = 1, tenant: str = "acme") -> None:
        await self.stores.tenant(tenant).commit(Batch(run, wake_at_us=when_us))

    async def advance(self, tenant: str, run: str) -> Advance:
        self.now[run] += 1
        self.now[tenant] += 1
        assert self.now[run] == 1, "a run is driven once at a time"
        self.most[tenant] = max(self.most[tenant], self.now[tenant])
        self.drives.append(run)
        try:
            step = self.script.get(run, []).pop(0) if self.script.get(run) else ENDED
            await asyncio.sleep(0)
            if callable(step):
                step = await step()
            if isinstance(step, BaseException):
                raise step
            await self.wake(run, step.wake_at_us or 0, tenant)
            return step
        finally:
            self.now[run] -= 1
            self.now[tenant] -= 1

    def engine(self, limits: DurableLimits = LIMITS, **more: Any) -> DurableEngine:
        report = lambda tenant, run, fault: self.reported.append((tenant, run, fault))  # noqa: E731
        return DurableEngine(
            self.advance, self.stores, self.clock, limits=limits, on_failure=report, **{"url": self.url, **more}
        )


def play(url: str, scenario: Callable[[World], Awaitable[None]]) -> World:
    world = World(url)

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await scenario(world)

    asyncio.run(bounded())
    return world


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is the engine's own doing
        await asyncio.sleep(0.005)


async def a_while() -> None:
    """Long enough for several looks at the queue and several sweeps; what must not happen has its chance."""
    await asyncio.sleep(0.3)


def statuses(server: Server, url: str) -> Counter[str]:
    rows = server.run(
        "SELECT status FROM dbos.workflow_status WHERE name = 'contextos.drive'", database=url.split("?")[0].rsplit("/")[-1]
    )
    return Counter(str(row[0]) for row in rows)


def test_a_start_recovers_every_run_that_was_left_due_and_leaves_the_others(url: str) -> None:
    async def scenario(world: World) -> None:
        for run in ("run_a", "run_b"):
            await world.wake(run)
        await world.wake("run_later", world.clock.now_us() + HOUR_US)
        await world.wake("run_ended", 0)
        engine = world.engine()
        await engine.start()
        await until(lambda: len(world.drives) == 2)
        await a_while()
        await engine.idle()
        assert sorted(world.drives) == ["run_a", "run_b"]
        await world.wake("run_swept")
        await until(lambda: "run_swept" in world.drives)
        await engine.stop()
        assert not engine.failures

    play(url, scenario)


def test_a_submit_is_driven_without_a_sweep_and_a_wake_during_a_drive_leads_to_one_more(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)

        async def woken() -> Advance:
            for _ in range(3):
                engine.submit("acme", "run_a")
            return ENDED

        world.script["run_a"] = [woken]
        engine.submit("acme", "run_a")
        engine.submit("acme", "run_a")
        await engine.start()
        await until(lambda: world.drives)
        await engine.idle()
        assert world.drives == ["run_a", "run_a"]
        engine.submit("acme", "run_b")
        await engine.idle()
        assert world.drives == ["run_a", "run_a", "run_b"]
        await engine.stop()

    play(url, scenario)
