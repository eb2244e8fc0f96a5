"""Steps yield: a tenant with waiting runs lets a quiet tenant's step go first, and only for a short time."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine import admission_controller as gates
from contextos.workspace.engine import fair_queue
from contextos.workspace.engine.admission_controller import AdmissionController
from tests.world import run

LIMITS = AdmissionLimits(max_turns=3, max_turns_per_tenant=1)
TURNS = 20


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step loses its priority because this machine is slow."""
    monkeypatch.setattr(gates, "MAX_YIELD_S", 60.0)


async def a_moment() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Two:
    """A noisy tenant with a run in its turn and `waiting` that wait for one, and a quiet tenant's run in its turn."""

    def __init__(self, *, waiting: int = 1, limits: AdmissionLimits = LIMITS) -> None:
        self.gate, self.waiting = AdmissionController(limits, SystemClock()), waiting
        self.noisy, self.quiet = AsyncExitStack(), AsyncExitStack()
        self._queued: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Two:
        # Both are known, so that a tenant keeps to its share of the turns.
        await self.quiet.enter_async_context(self.gate.turn("quiet", "run_before"))
        await self.noisy.enter_async_context(self.gate.turn("noisy", "run_noisy"))
        await self.quiet.aclose()
        for number in range(self.waiting):
            self._queued.append(asyncio.ensure_future(self._wait(f"run_{number}")))
        for _ in range(8):
            await self.gate.yield_to_others("noisy", "run_noisy")
        await self.quiet.enter_async_context(self.gate.turn("quiet", "run_quiet"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.quiet.aclose()
        await self.noisy.aclose()
        await asyncio.gather(*self._queued)
        assert (self.gate.driving, len(self.gate._queue), self.gate._waiters, self.gate._yielders) == (0, 0, {}, [])
        assert self.gate._priority_until_s == {}

    async def _wait(self, name: str) -> None:
        async with self.gate.turn("noisy", name):
            pass

    def steps(self, tenant: str) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.gate.yield_to_others(tenant, f"run_{tenant}"))


@pytest.mark.requirement("R-FAIR")
def test_a_step_of_a_tenant_with_waiting_runs_yields_to_the_run_of_a_quiet_tenant() -> None:
    async def act() -> None:
        async with Two() as two:
            noisy = two.steps("noisy")
            await a_moment()
            for _ in range(3):
                await asyncio.wait_for(two.steps("quiet"), 60)
            assert not noisy.done()
            await two.quiet.aclose()
            await asyncio.wait_for(noisy, 60)

    run(act())


@pytest.mark.requirement("R-FAIR")
@pytest.mark.parametrize("short_s", [0.0, 60.0])
def test_a_call_of_a_quiet_tenant_holds_others_up_for_a_moment_only(
    short_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "SHORT_CALL_S", short_s)

    async def act() -> None:
        async with Two() as two:
            noisy = two.steps("noisy")
            await a_moment()
            assert not noisy.done()
            async with two.gate.yield_turn("quiet", "run_quiet"):
                await a_moment()
                assert noisy.done() == (short_s == 0)
            await two.quiet.aclose()
            await asyncio.wait_for(noisy, 60)

    run(act())


@pytest.mark.requirement("R-FAIR")
def test_a_turn_is_kept_for_a_quiet_tenant_while_others_have_queues() -> None:
    made, order = AdmissionController(AdmissionLimits(max_turns=4), SystemClock()), list[str]()

    async def drives(tenant: str, name: str, over: asyncio.Event) -> None:
        async with made.turn(tenant, name):
            order.append(tenant)
            await over.wait()

    async def act() -> None:
        over, one_over = asyncio.Event(), asyncio.Event()
        async with made.turn("quiet", "run_before"):
            pass
        busy = [asyncio.ensure_future(drives("busy_0", "run_first", one_over))]
        busy += [asyncio.ensure_future(drives(f"busy_{n % 4}", f"run_{n}", over)) for n in range(1, 20)]
        await a_moment()
        assert (made.driving, order) == (4, ["busy_0", "busy_1", "busy_2", "busy_3"])
        one_over.set()
        await a_moment()
        assert (made.driving, order[4:]) == (3, [])
        quiet = asyncio.ensure_future(drives("quiet", "run_quiet", over))
        await a_moment()
        assert (made.driving, order[4:]) == (4, ["quiet"])
        over.set()
        await asyncio.gather(*busy, quiet)

    run(act())


def test_a_tenant_without_waiting_runs_yields_to_nobody() -> None:
    async def act() -> None:
        async with Two(waiting=0) as two:
            noisy = two.steps("noisy")
            await a_moment()
            assert noisy.done()

    run(act())


def test_two_tenants_with_waiting_runs_do_not_yield_to_each_other() -> None:
    async def act() -> None:
        async with Two() as two:
            waiting = asyncio.ensure_future(another(two.gate))
            await a_moment()
            assert two.gate._queue.waits("quiet")
            await asyncio.wait_for(two.steps("noisy"), 60)
            await two.quiet.aclose()
            await waiting

    async def another(made: AdmissionController) -> None:
        async with made.turn("quiet", "run_more"):
            pass

    run(act())


@pytest.mark.requirement("R-FAIR")
@pytest.mark.parametrize("runs", [1, 2])
def test_a_tenant_that_used_as_much_loses_its_priority(runs: int) -> None:
    """One request after the other weighs an eighth of what two at a time do."""

    async def act() -> None:
        limits = AdmissionLimits(max_turns=5, max_turns_per_tenant=runs)
        async with Two(waiting=runs, limits=limits) as two, AsyncExitStack() as more:
            for number in range(1, runs):
                await more.enter_async_context(two.gate.turn("quiet", f"run_more_{number}"))
            used, steps = two.gate._queue.used, 0
            while used("quiet") < used("noisy"):
                noisy = two.steps("noisy")
                await a_moment()
                assert not noisy.done()
                noisy.cancel()
                await asyncio.wait([noisy])
                await two.gate.yield_to_others("quiet", "run_quiet")
                steps += 1
            await asyncio.wait_for(two.steps("noisy"), 60)
            assert (steps > 50) == (runs == 1)
            await more.aclose()

    run(act())


def test_old_steps_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "RECENT_STEPS", 64)

    async def act() -> None:
        async with Two() as two:
            for _ in range(200):
                await two.gate.yield_to_others("quiet", "run_quiet")
            # The quiet tenant had far more steps, then the noisy one had all of them: the quiet one has priority again.
            await two.quiet.aclose()
            for _ in range(200):
                await two.gate.yield_to_others("noisy", "run_noisy")
            await two.quiet.enter_async_context(two.gate.turn("quiet", "run_again"))
            noisy = two.steps("noisy")
            await a_moment()
            assert not noisy.done()
            assert two.gate._queue._steps.total() <= 64

    run(act())


def test_a_run_that_hangs_in_its_turn_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        async with Two() as two:
            monkeypatch.setattr(gates, "MAX_YIELD_S", 0.01)
            await two.gate.yield_to_others("quiet", "run_quiet")
            await asyncio.wait_for(two.steps("noisy"), 60)
            await asyncio.sleep(0.02)
            # From now on no step waits for it.
            for _ in range(3):
                with pytest.raises(StopIteration):
                    two.gate.yield_to_others("noisy", "run_noisy").send(None)

    run(act())


@pytest.mark.parametrize("other_hangs", [False, True])
def test_priority_depends_on_the_age_of_the_step_and_not_of_the_turn_or_of_another_step(other_hangs: bool) -> None:
    async def act() -> None:
        async with Two() as two, AsyncExitStack() as stack:
            if other_hangs:
                await stack.enter_async_context(two.gate.turn("other", "run_other"))
            for run_key in two.gate._priority_until_s:
                two.gate._priority_until_s[run_key] -= 3600 if run_key[0] != "noisy" else 0
            await two.gate.yield_to_others("quiet", "run_quiet")
            noisy = two.steps("noisy")
            await a_moment()
            assert not noisy.done()
            await two.quiet.aclose()
            await asyncio.wait_for(noisy, 60)

    run(act())


def test_no_step_waits_for_long_however_busy_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        async with Two() as two:
            monkeypatch.setattr(gates, "MAX_YIELD_S", 0.05)
            monkeypatch.setattr(fair_queue, "RECENT_STEPS", 10**12)
            two.gate._queue._steps["noisy"] = 10**9
            noisy = two.steps("noisy")
            async with asyncio.timeout(30):
                while not noisy.done():
                    await two.gate.yield_to_others("quiet", "run_quiet")
                    await asyncio.sleep(0.001)
            # It still has its turn, and has priority over the next step.
            assert two.gate._waiters["quiet", "run_quiet"].granted

    run(act())


def test_a_cancelled_yield_leaves_nothing_behind() -> None:
    async def act() -> None:
        async with Two() as two:
            noisy = two.steps("noisy")
            await a_moment()
            assert len(two.gate._yielders) == 1
            noisy.cancel()
            with pytest.raises(asyncio.CancelledError):
                await noisy
            assert two.gate._yielders == []

    run(act())


def test_a_step_goes_on_in_its_own_thread_when_the_run_that_went_first_leaves_in_another() -> None:
    made = AdmissionController(LIMITS, SystemClock())
    held, over = threading.Event(), list[str]()

    async def noisy() -> None:
        async with made.turn("noisy", "run_noisy"):
            waiting = asyncio.ensure_future(queued())
            await a_moment()
            for _ in range(8):
                await made.yield_to_others("noisy", "run_noisy")
            ready.set()
            await asyncio.to_thread(taken.wait, 30)
            step = asyncio.ensure_future(made.yield_to_others("noisy", "run_noisy"))
            await a_moment()
            assert not step.done()
            held.set()
            await asyncio.wait_for(step, 30)
            over.append("noisy")
        await waiting

    async def queued() -> None:
        async with made.turn("noisy", "run_queued"):
            pass

    async def quiet() -> None:
        async with made.turn("quiet", "run_before"):
            known.set()
        await asyncio.to_thread(ready.wait, 30)
        async with made.turn("quiet", "run_quiet"):
            taken.set()
            await asyncio.to_thread(held.wait, 30)
            over.append("quiet")

    ready, taken, known = threading.Event(), threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: run(quiet()))
    other.start()
    known.wait(30)
    run(noisy())
    other.join()
    assert over == ["quiet", "noisy"]
