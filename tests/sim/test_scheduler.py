"""Virtual time and hand-driven coroutines: who is due, who waits for whom, and what a death leaves behind."""

from __future__ import annotations

from random import Random

import pytest

from contextos.errors import Unavailable
from contextos.sim.faults import FAULT_KINDS, Faults
from contextos.sim.scheduler import HostDown, Scheduler, die, immediately, join, pause


def scheduler(seed: int = 1) -> Scheduler:
    made = Scheduler(Random(seed), 1_000, lambda host: made.kill(host))
    return made


def drain(made: Scheduler) -> None:
    while made.step():
        pass


def test_time_jumps_to_whoever_is_due_next_and_never_goes_back():
    made, seen = scheduler(), []

    async def sleeper(us: int) -> None:
        await pause(us)
        seen.append((us, made.now_us))

    for us in (5_000, 100, 70):
        made.spawn("sleeper", sleeper(us))
    drain(made)
    assert seen == [(70, 1_070), (100, 1_100), (5_000, 6_000)]


def test_nothing_after_the_horizon_runs():
    made = scheduler()

    async def late() -> None:
        await pause(10)

    made.spawn("late", late(), delay_us=500)
    assert not made.step(until_us=1_400)
    assert made.now_us == 1_000
    made.close()


def test_join_gives_the_result_or_raises_the_failure():
    made, seen = scheduler(), []

    async def good() -> int:
        await pause(3)
        return 7

    async def bad() -> None:
        await pause(3)
        raise Unavailable("store", "it is away")

    async def asks() -> None:
        seen.append(await join(made.spawn("good", good())))
        with pytest.raises(Unavailable):
            await join(made.spawn("bad", bad()))
        seen.append("refused")

    made.spawn("asks", asks())
    drain(made)
    assert seen == [7, "refused"]
    assert made.strays == []


def test_a_failure_that_nobody_joins_is_kept():
    made = scheduler()

    async def bad() -> None:
        raise KeyError("lost")

    made.spawn("bad", bad())
    drain(made)
    assert [type(task.fault) for task in made.strays] == [KeyError]


def test_a_process_that_dies_takes_all_of_its_tasks_along_and_only_those():
    made, seen = scheduler(), []

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
            await join(made.spawn("call", inside(True), host="h1"))
        seen.append("told")

    made.spawn("other", inside(False), host="h1")
    made.spawn("elsewhere", inside(False), host="h2")
    made.spawn("caller", caller())
    drain(made)
    assert sorted(seen) == ["dropped", "dropped", "dropped", "survived", "told"]


def test_a_stalled_process_stands_still_and_goes_on():
    made, seen = scheduler(), []

    async def tick() -> None:
        await pause(1)
        seen.append(made.now_us)

    made.spawn("tick", tick(), host="h1")
    made.step()
    made.stall("h1", 9_000)
    drain(made)
    assert seen == [10_000]


def test_a_coroutine_that_suspends_is_no_immediate_one():
    with pytest.raises(AssertionError, match="suspended"):
        immediately(pause(1))


def test_the_order_of_equals_is_the_seeds_and_only_the_seeds():
    def order(seed: int) -> tuple[list[int], str]:
        made, seen = scheduler(seed), []

        async def one(number: int) -> None:
            await pause(5)
            seen.append(number)

        for number in range(6):
            made.spawn("one", one(number))
        drain(made)
        return seen, made.digest

    assert order(1) == order(1)
    assert len({tuple(order(seed)[0]) for seed in range(8)}) > 1


def test_each_seed_has_its_own_weather_and_calm_has_none():
    weather = {tuple(Faults(Random(seed)).rates.items()) for seed in range(20)}
    assert len(weather) == 20
    assert all(any(Faults(Random(seed)).rates[kind] for seed in range(40)) for kind in FAULT_KINDS)
    assert not any(Faults(Random(1), calm=True).rates.values())
    assert not Faults(Random(1), calm=True).strikes("crash")
