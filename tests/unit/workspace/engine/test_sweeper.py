"""A sweep finds every due run page by page, also behind a backlog, and leaves out dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from contextos.contracts.documents.runs import DEAD_LETTERS, DeadLetterDocument
from contextos.contracts.journal import Batch
from contextos.workspace.engine.failure_tracker import WITNESS, FailureTracker
from contextos.workspace.engine.fair_queue import RunKey
from contextos.workspace.engine.sweeper import Interval, Sweeper, SweepLimits
from contextos_sim.memory.stores import MemoryStores


class SetClock:
    us = 1_000

    def now_us(self) -> int:
        return self.us


async def stores_with(*runs: str) -> MemoryStores:
    stores = MemoryStores()
    for number, run_id in enumerate(runs):
        await stores.tenant("t").commit(Batch(run_id, wake_at_us=1 + number))
    return stores


def sweeper(stores: MemoryStores, page: int = 10, **ports: object) -> Sweeper:
    given = {"heartbeat": None, "orphans": None, "witness": None, **ports}
    return Sweeper(stores, SetClock(), SweepLimits(sweep_page=page, witness_interval_ms=10), **given)  # type: ignore[arg-type]


def test_no_backlog_hides_a_run_for_ever() -> None:
    async def go() -> None:
        runs = [f"run_{number}" for number in range(7)]
        one = sweeper(await stores_with(*runs), page=2)
        seen = [await one.find_runs() for _ in range(3)]
        assert all(found[:2] == [("t", "run_0"), ("t", "run_1")] for found in seen)
        assert {run for found in seen for run in found} == {("t", run_id) for run_id in runs}

    asyncio.run(go())


def test_a_dead_letter_is_not_driven_until_its_journal_grows() -> None:
    async def go() -> None:
        stores = await stores_with("run_a", "run_b")
        letter = DeadLetterDocument("defect", "it fails", 1, rests=True, entries=0, failures=2)
        await stores.tenant("t").commit(Batch("run_a", writes=(DEAD_LETTERS.write("run_a", 0, letter),)))
        assert await sweeper(stores).find_runs() == [("t", "run_b")]

    asyncio.run(go())


def test_orphans_are_looked_up_at_their_own_interval() -> None:
    async def go() -> None:
        async def orphans() -> AsyncIterator[RunKey]:
            yield "t", "orphan"

        one = sweeper(await stores_with(), orphans=orphans)
        assert await one.find_runs() == [("t", "orphan")]
        assert await one.find_runs() == []

    asyncio.run(go())


def test_one_publication_runs_at_a_time_and_its_failure_is_reported_once() -> None:
    async def go() -> None:
        begun: list[int] = []
        release, third, stores = asyncio.Event(), asyncio.Event(), await stores_with()
        failures = FailureTracker(stores, SetClock(), None)

        async def publish() -> None:
            begun.append(1)
            await release.wait()
            if len(begun) == 3:
                assert isinstance(failures.failures[WITNESS], ConnectionError)
                third.set()
                return
            raise ConnectionError("the witness is away")

        one = sweeper(stores, witness=publish)
        one.begin(failures)
        await asyncio.sleep(0.05)
        assert len(begun) == 1
        release.set()
        await third.wait()
        await asyncio.sleep(0.002)
        assert WITNESS not in failures.failures
        await one.stop()

    asyncio.run(go())


@pytest.mark.parametrize(("later_us", "passed"), [(0, False), (999, False), (1_000, True), (-5, True)])
def test_an_interval_passes_with_time_and_when_the_clock_jumps_back(later_us: int, passed: bool) -> None:
    clock = SetClock()
    interval = Interval(clock, 1)
    assert interval.passed()
    clock.us += later_us
    assert interval.passed() is passed
