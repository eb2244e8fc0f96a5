"""Runs that wait for a person cost nothing while they wait: no thread, task or connection, no question to the store.

Everything that a client says to the server goes through a relay that counts it. What one approval takes with ten
thousand beside it is measured in `benchmarks/waiting.py`.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from contextos.deployment.suspended_runs import MAX_SUSPENDED, MAX_SUSPENDED_BYTES
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.local import EngineLimits, LocalEngine
from tests.e2e.faulty_storage import FaultyPostgres
from tests.postgres import Database
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow

AT_ONCE = 32
A_FEW = 4
SWEEPS = 10
PATIENCE_S = 60
ORDERS = ("ord_895", "ord_881")
"""What one of them pays back changes the evidence of all that wait on the same order."""


class CountedSweeps:
    """Stores that count how often an engine asked what is due."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.sweeps = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> Any:
        self.sweeps += 1
        return self._inner.due(before_us, limit=limit, skip=skip)


async def idle_cost(stores: CountedSweeps, relay: FaultyPostgres) -> dict[str, float]:
    """The memory of an idle process, and the statements that it sends to the store's server per sweep."""
    await asyncio.sleep(0.2)
    sweeps, heard = stores.sweeps, relay.heard
    while stores.sweeps < sweeps + SWEEPS:  # noqa: ASYNC110 - an engine sweeps by itself
        await asyncio.sleep(0.02)
    said = relay.heard - heard
    return {
        "messages per sweep": round(said / (stores.sweeps - sweeps)),
        "connections": len(relay.relays),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
    }


async def wait_for(world: TestWorld, run_id: str, state: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await world.deployment.view(TENANT, run_id)).state != state:  # noqa: ASYNC110 - another task drives it
            await asyncio.sleep(0.01)


async def asked(world: TestWorld, count: int) -> list[str]:
    """So many runs that wait for a person."""
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(number: int) -> str:
        async with room:
            view = await world.invoke(request(4200, f"req_{number}", order_id=ORDERS[number % 2]))
        assert view.state == "waiting"
        return view.run_id

    return await asyncio.gather(*(ask(number) for number in range(count)))


@pytest.mark.requirement("E-WAITING-IS-FREE")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.soak)])
def test_runs_that_wait_cost_nothing_and_each_goes_on_when_it_is_answered(
    tmp_path: Path, database: Database, count: int
) -> None:
    async def go() -> None:
        relay = FaultyPostgres(database, "counted")
        world = await open_world(tmp_path, stores=await relay.start(), clock=SystemClock())
        stores = CountedSweeps(world.stores)
        limits = EngineLimits(sweep_interval_ms=50)
        engine = LocalEngine(world.deployment.advance, stores, world.clock, limits=limits)
        await engine.start()
        # Everything is open that one request at a time opens, before it is counted.
        (first,) = await asked(world, 1)
        await asyncio.gather(*(world.deployment.view(TENANT, first) for _ in range(AT_ONCE)))
        before = await idle_cost(stores, relay)
        runs = await asked(world, count)
        kept = world.deployment._driver._suspended_runs._suspended
        assert len(kept) <= MAX_SUSPENDED < count
        assert sum(size for _, size in kept.values()) <= MAX_SUSPENDED_BYTES
        after = await idle_cost(stores, relay)
        # A connection (two tasks of the relay) may come or go at any time; what a run cost would show `count` times.
        assert all(after[what] <= before[what] + A_FEW for what in before), (before, after)
        # The first one's loop was dropped long ago, the last one's is kept: both go on.
        for run_id in (runs[0], runs[-1]):
            assert ((TENANT, run_id) in kept) == (run_id == runs[-1])
            await world.answer(run_id)
            engine.submit(TENANT, run_id)
            await wait_for(world, run_id, "completed")
        assert [one["amount_inr"] for one in world.refunds()] == [4200, 4200]
        await engine.stop()
        await world.aclose()
        await relay.stop()

    run(go())
