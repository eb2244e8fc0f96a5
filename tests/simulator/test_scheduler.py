"""The seeded scheduler: which task is due, joins, failures, and the death of a process."""

from __future__ import annotations

from random import Random

import pytest

from contextos.errors import Unavailable
from contextos_sim.faults import FAULT_KINDS, Faults
from contextos_sim.scheduler import HostDown, Scheduler, die, immediately, join, pause


def scheduler(seed: int = 1) -> Scheduler:
    created = Scheduler(Random(seed), 1_000, lambda host: created.kill(host))
    return created


def drain(created: Scheduler) -> None:
    while created.step():
        pass


def test_time_jumps_to_the_next_due_task_and_never_goes_back():
    created, seen = scheduler(), []

    async def sleeper(us: int) -> None:
        await pause(us)
        seen.append((us, created.now_us))

    for us in (5_000, 100, 70):
        created.spawn("sleeper", sleeper(us))
    drain(created)
    assert seen == [(70, 1_070), (100, 1_100), (5_000, 6_000)]


def test_nothing_after_the_horizon_runs():
    created = scheduler()

    async def late() -> None:
        await pause(10)

    created.spawn("late", late(), delay_us=500)
    assert not created.step(until_us=1_400)
    assert created.now_us == 1_000
    created.close()


def test_join_returns_the_result_or_raises_the_failure():
    created, seen = scheduler(), []

    async def good() -> int:
        await pause(3)
        return 7

    async def bad() -> None:
        await pause(3)
        raise Unavailable("store", "it is away")

    async def asks() -> None:
        seen.append(await join(created.spawn("good", good())))
        with pytest.raises(Unavailable):
            await join(created.spawn("bad", bad()))
        seen.append("refused")

    created.spawn("asks", asks())
    drain(created)
    assert seen == [7, "refused"]
    assert created.unjoined_failures == []


def test_a_failure_that_nobody_joins_is_kept():
    created = scheduler()

    async def bad() -> None:
        raise KeyError("lost")

    created.spawn("bad", bad())
    drain(created)
    assert [type(task.fault) for task in created.unjoined_failures] == [KeyError]


def test_the_death_of_a_process_ends_exactly_its_own_tasks():
    created, seen = scheduler(), []

    async def inside(last: bool) -> None:
        try:
            await pause(1)
            if last:
                await die()
            await pause(1_000)
            seen.append("survived")
        finally:
            seen.append("dropped")

    async def caller() -> None:
        with pytest.raises(HostDown):
            await join(created.spawn("call", inside(True), host="h1"))
        seen.append("learned")

    created.spawn("other", inside(False), host="h1")
    created.spawn("elsewhere", inside(False), host="h2")
    created.spawn("caller", caller())
    drain(created)
    assert sorted(seen) == ["dropped", "dropped", "dropped", "learned", "survived"]


def test_a_stalled_process_pauses_and_goes_on():
    created, seen = scheduler(), []

    async def tick() -> None:
        await pause(1)
        seen.append(created.now_us)

    created.spawn("tick", tick(), host="h1")
    created.step()
    created.stall("h1", 9_000)
    drain(created)
    assert seen == [10_000]


def test_a_coroutine_that_suspends_cannot_be_run_immediately():
    with pytest.raises(AssertionError, match="suspended"):
        immediately(pause(1))


def test_only_the_seed_decides_the_order_of_tasks_due_at_once():
    def order(seed: int) -> tuple[list[int], str]:
        created, seen = scheduler(seed), []

        async def one(number: int) -> None:
            await pause(5)
            seen.append(number)

        for number in range(6):
            created.spawn("one", one(number))
        drain(created)
        return seen, created.digest

    assert order(1) == order(1)
    assert len({tuple(order(seed)[0]) for seed in range(8)}) > 1


def test_each_seed_has_its_own_fault_schedule_and_disabled_faults_never_strike():
    schedules = {tuple(Faults(Random(seed)).rates.items()) for seed in range(20)}
    assert len(schedules) == 20
    assert all(any(Faults(Random(seed)).rates[kind] for seed in range(40)) for kind in FAULT_KINDS)
    assert not any(Faults(Random(1), disabled=True).rates.values())
    assert not Faults(Random(1), disabled=True).strikes("crash")
