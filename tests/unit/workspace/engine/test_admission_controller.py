"""Admission is bounded and fair: a caller past a bound is refused at once, and every turn is given back."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.errors import Overloaded, Unavailable
from contextos.workspace.engine.admission_controller import AdmissionController
from tests.world import run

SMALL = AdmissionLimits(
    max_callers=6, max_callers_per_tenant=4, max_turns=3, max_turns_per_tenant=2, max_new_runs_per_minute_per_tenant=3
)


class StandingClock:
    at_us = 1_000_000_000

    def now_us(self) -> int:
        return self.at_us


def gate(limits: AdmissionLimits = SMALL, clock: StandingClock | None = None) -> AdmissionController:
    return AdmissionController(limits, clock or StandingClock())


@pytest.mark.requirement("R-OVERLOADED")
def test_a_caller_past_a_bound_is_refused_at_once_and_the_next_is_in_when_one_leaves() -> None:
    made = gate()
    with ExitStack() as inside:
        for _ in range(4):
            inside.enter_context(made.caller("noisy"))
        with pytest.raises(Overloaded, match="4 callers of this tenant") as raised, made.caller("noisy"):
            pass
        assert raised.value.retry_after_ms > 0
        assert isinstance(raised.value, Unavailable)
        inside.enter_context(made.caller("quiet"))
        with pytest.raises(Overloaded, match="the last 1 places are kept"), made.caller("quiet"):
            pass
        inside.enter_context(made.caller("late"))
        with pytest.raises(Overloaded, match="6 callers are in"), made.caller("third"):
            pass
        assert made.callers == 6
    assert made.callers == 0
    with made.caller("noisy"):
        assert made.callers == 1


def test_a_refused_caller_is_logged_with_its_tenant_and_when_to_retry(caplog: pytest.LogCaptureFixture) -> None:
    made = gate(replace(SMALL, max_callers_per_tenant=1))
    with caplog.at_level(logging.DEBUG, "contextos.workspace.engine"), made.caller("noisy"):
        assert not caplog.records
        with pytest.raises(Overloaded) as raised, made.caller("noisy"):
            pass
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("DEBUG", "admission refused")
    named = {name: vars(record)[name] for name in ("tenant", "retry_after_ms")}
    assert named == {"tenant": "noisy", "retry_after_ms": raised.value.retry_after_ms}


@pytest.mark.requirement("R-QUOTA")
def test_the_quota_of_new_runs_tells_when_the_next_is_allowed_and_keeps_to_it() -> None:
    clock = StandingClock()
    made = gate(clock=clock)
    for _ in range(3):
        made.begin("noisy")
    with pytest.raises(Overloaded, match="3 runs within a minute") as raised:
        made.begin("noisy")
    made.begin("quiet")
    assert raised.value.retry_after_ms == 20_000
    clock.at_us += 20_000_000 - 1
    with pytest.raises(Overloaded):
        made.begin("noisy")
    clock.at_us += 1
    made.begin("noisy")
    with pytest.raises(Overloaded):
        made.begin("noisy")


def test_a_clock_that_is_put_back_makes_nobody_wait_for_longer_than_a_period() -> None:
    clock = StandingClock()
    made = gate(clock=clock)
    for _ in range(3):
        made.begin("noisy")
    clock.at_us -= 3_600_000_000
    with pytest.raises(Overloaded) as raised:
        made.begin("noisy")
    assert raised.value.retry_after_ms <= 20_000


def test_a_tenant_that_is_alone_has_every_turn_until_another_comes_and_again_a_minute_after_it_left() -> None:
    clock = StandingClock()
    made, most = gate(clock=clock), Counter[str]()

    async def drive(tenant: str, number: int) -> None:
        async with made.turn(tenant, f"run_{number}"):
            most[tenant] = max(most[tenant], made.driving)
            await asyncio.sleep(0)

    async def alone() -> int:
        most.clear()
        await asyncio.gather(*(drive("one", number) for number in range(10)))
        return most["one"]

    async def act() -> None:
        assert await alone() == 3
        await drive("two", 0)
        assert await alone() == 2
        clock.at_us += 60_000_000
        assert await alone() == 3

    run(act())


def test_refused_callers_get_retry_times_as_far_apart_as_places_become_free() -> None:
    clock = StandingClock()
    made = gate(clock=clock)

    def refused(tenant: str) -> int:
        with pytest.raises(Overloaded) as raised, made.caller(tenant):
            pass
        return raised.value.retry_after_ms

    with ExitStack() as inside:
        inside.enter_context(made.caller("noisy"))
        for _ in range(100):
            with made.caller("noisy"):
                clock.at_us += 4_000_000
        for _ in range(3):
            inside.enter_context(made.caller("noisy"))
        times = [refused("noisy") for _ in range(5)]
        assert [round(time / 1_000) for time in times] == [1, 2, 3, 4, 5]
        assert max(refused("noisy") for _ in range(200)) == 60_000


@pytest.mark.requirement("R-OVERLOADED")
def test_where_the_whole_process_is_full_its_places_go_round_the_tenants_that_wait() -> None:
    clock = StandingClock()
    made = gate(clock=clock)

    def refused(tenant: str) -> int:
        with pytest.raises(Overloaded) as raised, made.caller(tenant):
            pass
        return raised.value.retry_after_ms

    for _ in range(100):
        with made.caller("noisy"):
            clock.at_us += 6_000_000
    with ExitStack() as inside:
        for tenant, count in (("noisy", 4), ("quiet", 1), ("late", 1)):
            for _ in range(count):
                inside.enter_context(made.caller(tenant))
        noisy = [refused("noisy") for _ in range(5)]
        others = [refused(f"tenant_{number}") for number in range(4)]
        again = refused("tenant_0")
        clock.at_us += 60_000_000
        calm = refused("tenant_0")
        flood = [refused(f"invented_{number}") for number in range(2_000)]
    seconds = [round(time / 1_000) for time in (*noisy, *others, again, calm)]
    assert seconds[:5] == [1, 2, 3, 4, 5], "six places, each taken for six seconds"
    assert seconds[5:] == [2, 3, 4, 5, 7, 1], "one of each tenant that waits is ahead, and not all of the noisy one"
    assert (max(flood), len(made._retry_at_us)) == (60_000, 1_024)


def test_no_more_runs_have_a_turn_than_are_allowed_and_every_one_gets_it() -> None:
    made, now, most, served = gate(), Counter[str](), Counter[str](), Counter[str]()

    async def drive(tenant: str, number: int) -> None:
        async with made.turn(tenant, f"run_{number}"):
            now[tenant] += 1
            most[tenant], most["all"] = max(most[tenant], now[tenant]), max(most["all"], now.total())
            await asyncio.sleep(0)
            now[tenant] -= 1
            served[tenant] += 1

    async def act() -> None:
        await asyncio.gather(*(drive(f"t{number % 2}", number) for number in range(60)))

    run(act())
    assert served == {"t0": 30, "t1": 30}
    assert (most["all"], max(most["t0"], most["t1"])) == (3, 2)
    assert made.driving == 0


@pytest.mark.requirement("R-FAIR")
def test_a_quiet_tenant_does_not_wait_behind_the_queue_of_a_noisy_one() -> None:
    made, order = gate(replace(SMALL, max_turns=1)), list[str]()

    async def drive(tenant: str, number: int) -> None:
        async with made.turn(tenant, f"run_{number}"):
            order.append(tenant)
            await asyncio.sleep(0)

    async def act() -> None:
        noisy = [asyncio.ensure_future(drive("noisy", number)) for number in range(50)]
        await asyncio.sleep(0)
        await drive("quiet", 99)
        await asyncio.gather(*noisy)

    run(act())
    assert order.index("quiet") <= 3


def test_a_run_that_yields_its_turn_lets_another_work_and_comes_back() -> None:
    made, order = gate(replace(SMALL, max_turns=1)), list[str]()

    async def slow() -> None:
        async with made.turn("one", "run_slow"):
            with suppress(KeyError):
                async with made.yield_turn("one", "run_slow"):
                    await asyncio.sleep(0.01)
                    raise KeyError
            order.append("slow")
            assert made.driving == 1

    async def quick() -> None:
        async with made.turn("one", "run_quick"):
            order.append("quick")

    async def act() -> None:
        await asyncio.gather(slow(), quick())

    run(act())
    assert order == ["quick", "slow"]
    assert made.driving == 0


@pytest.mark.requirement("R-TURN-BACK")
def test_a_run_with_its_answer_goes_before_a_new_one_of_its_tenant_and_after_a_quiet_tenant() -> None:
    made, order = gate(replace(SMALL, max_turns=1)), list[str]()

    async def asks(name: str, answered: asyncio.Event) -> None:
        async with made.turn("one", name):
            async with made.yield_turn("one", name):
                await answered.wait()
            order.append(name)

    async def new(tenant: str, name: str) -> None:
        async with made.turn(tenant, name):
            order.append(name)
            await asyncio.sleep(0)

    async def act() -> None:
        answered = asyncio.Event()
        asking = [asyncio.ensure_future(asks(f"asked_{number}", answered)) for number in range(2)]
        await asyncio.sleep(0.01)
        async with made.turn("two", "other"):
            waiting = [asyncio.ensure_future(new("one", f"new_{number}")) for number in range(5)]
            waiting.append(asyncio.ensure_future(new("two", "quiet")))
            await asyncio.sleep(0)
            answered.set()
            await asyncio.sleep(0.01)
        await asyncio.gather(*asking, *waiting)

    run(act())
    assert order == ["quiet", "asked_0", "asked_1", *(f"new_{number}" for number in range(5))]


def test_a_run_that_yielded_learns_how_long_it_waited_for_a_turn_and_not_how_long_its_call_took() -> None:
    clock = StandingClock()
    made, turn_taken, turn_over = gate(replace(SMALL, max_turns=1), clock), asyncio.Event(), asyncio.Event()

    async def other() -> None:
        async with made.turn("two", "run_2"):
            turn_taken.set()
            await turn_over.wait()
            clock.at_us += 7_000

    async def act() -> None:
        async with made.turn("one", "run_1"):
            async with made.yield_turn("one", "run_1") as alone:
                clock.at_us += 5_000
            busy = asyncio.ensure_future(other())
            with suppress(KeyError):
                async with made.yield_turn("one", "run_1") as beside:
                    await turn_taken.wait()
                    asyncio.get_running_loop().call_soon(turn_over.set)
                    raise KeyError
            await busy
        assert (alone.waited_us, beside.waited_us) == (0, 7_000)

    run(act())


@pytest.mark.parametrize("held_up_in", ["waiting", "granted", "driving", "aside"])
def test_a_cancelled_caller_gives_back_its_place(held_up_in: str) -> None:
    made = gate(replace(SMALL, max_turns=1))

    async def drive() -> None:
        async with made.turn("one", "run_1"):
            if held_up_in == "aside":
                async with made.yield_turn("one", "run_1"):
                    await asyncio.sleep(60)
            await asyncio.sleep(60)

    async def act() -> None:
        with ExitStack() as stack:
            if held_up_in == "waiting":
                other = made.turn("two", "run_2")
                await other.__aenter__()
            task = asyncio.ensure_future(drive())
            for _ in range(1 if held_up_in == "granted" else 5):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            stack.close()
            assert made.driving == (1 if held_up_in == "waiting" else 0)
            if held_up_in == "waiting":
                await other.__aexit__(None, None, None)
        async with made.turn("three", "run_3"):
            assert made.driving == 1

    run(act())
    assert (made.driving, len(made._waiters), len(made._queue)) == (0, 0, 0)


def test_a_turn_is_given_within_an_event_loop_without_waking_it_as_another_thread_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act() -> None:
        made, loop, woken = gate(replace(SMALL, max_turns=1)), asyncio.get_running_loop(), []
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *named: woken.append(named))
        last: list[str] = []

        async def drive(run_id: str) -> None:
            async with made.turn("acme", run_id):
                async with made.yield_turn("acme", run_id):
                    await asyncio.sleep(0)
                last.append(run_id)

        await asyncio.gather(drive("run_a"), drive("run_b"))
        assert sorted(last) == ["run_a", "run_b"]
        assert not woken

    run(act())


def test_a_turn_is_handed_over_between_the_event_loops_of_two_threads() -> None:
    made, now, most = gate(replace(SMALL, max_turns=1, max_turns_per_tenant=1)), Counter[str](), list[int]()

    async def drive(name: str) -> None:
        for number in range(50):
            async with made.turn(name, f"{name}_{number}"):
                now["in"] += 1
                most.append(now["in"])
                await asyncio.sleep(0)
                now["in"] -= 1

    threads = [threading.Thread(target=lambda name=name: run(drive(name))) for name in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (150, 1)


def test_a_turn_for_a_loop_that_is_closed_goes_to_the_next() -> None:
    made = gate(replace(SMALL, max_turns=1))
    left = asyncio.new_event_loop()

    async def wait() -> None:
        async with made.turn("gone", "run_gone"):
            pass

    async def act() -> None:
        async with made.turn("one", "run_1"):
            waiting = wait()
            task = left.create_task(waiting)
            left.call_soon(left.stop)
            await asyncio.to_thread(left.run_forever)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            left.close()
        async with made.turn("two", "run_2"):
            assert made.driving == 1

    run(act())
    assert made.driving == 0
