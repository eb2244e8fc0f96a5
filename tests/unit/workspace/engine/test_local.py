"""The local engine drives what is due, once at a time, and loses nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.journal import Advance, Batch, Draft, genesis, link
from contextos.deployment.dead_letters import dead_letter, list_dead_letters, removal
from contextos.errors import Conflict, Integrity, NotFound, Unavailable
from contextos.workspace.engine.failure_tracker import HEARTBEAT, SWEEP
from contextos.workspace.engine.local import EngineLimits, LocalEngine
from contextos_sim.memory.stores import MemoryStores
from tests.suites.store_suite import SettableClock

ENDED = Advance("completed", None)
LIMITS = EngineLimits(sweep_interval_ms=1, conflict_backoff_ms=0, stop_grace_ms=50)
NO_SWEEP = replace(LIMITS, sweep_interval_ms=3_600_000)


class World:
    """Stores, a clock, and a fake `advance` that plays a script for each run and then ends it in the store."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.stores = MemoryStores(clock=self.clock)
        self.script: dict[str, list[Any]] = {}
        self.drives: list[str] = []
        self.now: Counter[str] = Counter()
        self.most = 0
        self.reported: list[tuple[str, str, BaseException]] = []

    async def wake(self, run: str, when_us: int = 1, tenant: str = "acme") -> None:
        store = self.stores.tenant(tenant)
        if not await store.read(run):
            await add(store, tenant, run, "run.received")
        await store.commit(Batch(run, wake_at_us=when_us))

    async def advance(self, tenant: str, run: str) -> Advance:
        self.now[run] += 1
        assert self.now[run] == 1, "a run is driven once at a time"
        self.most = max(self.most, self.now.total())
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

    def engine(self, limits: EngineLimits = LIMITS, **more: Any) -> LocalEngine:
        report = lambda tenant, run, fault: self.reported.append((tenant, run, fault))  # noqa: E731
        return LocalEngine(self.advance, self.stores, self.clock, limits=limits, on_failure=report, **more)


async def add(store: Any, tenant: str, run: str, kind: str, wake_at_us: int | None = None) -> None:
    """One more entry of a run's journal, by whomever."""
    before = await store.read(run)
    head = (before[-1].seq, before[-1].hash) if before else (0, genesis(tenant, run))
    entry = link(tenant, run, head[0] + 1, head[1], Draft(kind, "", 1, "test", b"{}", bytes(16)))
    await store.commit(Batch(run, entries=(entry,), wake_at_us=wake_at_us))


def play(scenario: Callable[[World], Awaitable[None]]) -> World:
    world = World()

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario(world)

    asyncio.run(bounded())
    return world


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is the engine's own doing
        await asyncio.sleep(0.001)


async def until_resting(store: Any) -> None:
    while not await list_dead_letters(store):  # noqa: ASYNC110 - the engine puts it there
        await asyncio.sleep(0.001)


def test_a_start_recovers_what_a_dead_owner_holds_and_looks_again_after_a_while() -> None:
    async def scenario(world: World) -> None:
        looks: list[int] = []

        async def orphans() -> AsyncIterator[tuple[str, str]]:
            looks.append(world.clock.us)
            yield "acme", f"run_{len(looks)}"

        for number in (1, 2):
            await world.wake(f"run_{number}", world.clock.us + 180_000_000)
        limits = replace(LIMITS, orphans_interval_ms=1000)
        engine = world.engine(limits, orphans=orphans)
        await engine.start()
        await engine.idle()
        assert world.drives == ["run_1"]
        world.clock.us += 999_999
        await world.wake("run_swept")
        await until(lambda: "run_swept" in world.drives)
        assert len(looks) == 1
        world.clock.us += 1
        await until(lambda: "run_2" in world.drives)
        await engine.stop()
        assert not engine.failures

    play(scenario)


def test_a_start_recovers_every_run_that_was_left_due() -> None:
    async def scenario(world: World) -> None:
        for run in ("run_a", "run_b"):
            await world.wake(run)
        await world.wake("run_later", world.clock.us + 1)
        await world.wake("run_ended", 0)
        engine = world.engine(NO_SWEEP)
        await engine.start()
        await engine.idle()
        assert sorted(world.drives) == ["run_a", "run_b"]
        await engine.stop()

    play(scenario)


def test_a_submit_is_driven_without_waiting_for_a_sweep_even_if_it_came_before_the_start() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        engine.submit("acme", "run_early")
        engine.submit("acme", "run_early")
        await engine.start()
        engine.submit("acme", "run_late")
        await engine.idle()
        assert world.drives == ["run_early", "run_late"]
        await engine.stop()

    play(scenario)


def test_an_engine_that_drives_nothing_still_publishes_and_sends_heartbeats() -> None:
    async def scenario(world: World) -> None:
        done: list[str] = []

        async def publish() -> None:
            done.append("published")

        async def beat() -> None:
            done.append("beat")

        await world.wake("run_due")
        engine = world.engine(replace(LIMITS, max_drives=0), witness=publish, heartbeat=beat)
        await engine.start()
        engine.submit("acme", "run_due")
        await until(lambda: {"published", "beat"} <= set(done))
        await engine.idle()
        await engine.stop()
        assert world.drives == []

    play(scenario)


def test_the_sweep_finds_runs_that_nobody_submitted() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine()
        await engine.start()
        await engine.idle()
        await world.wake("run_a")
        await until(lambda: world.drives)
        world.clock.us += 50
        await world.wake("run_b", world.clock.us + 10)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert world.drives == ["run_a"], "what is not due yet is left alone"
        world.clock.us += 10
        await until(lambda: world.drives == ["run_a", "run_b"])
        await engine.stop()

    play(scenario)


def test_a_wake_during_a_drive_is_followed_by_one_more_drive() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)

        async def woken() -> Advance:
            for _ in range(3):
                engine.submit("acme", "run_a")
            return ENDED

        world.script["run_a"] = [woken]
        await engine.start()
        engine.submit("acme", "run_a")
        await engine.idle()
        assert world.drives == ["run_a", "run_a"]
        await engine.stop()

    play(scenario)


def test_a_sweep_during_a_drive_does_not_drive_again() -> None:
    async def scenario(world: World) -> None:
        engine, release = world.engine(), asyncio.Event()

        async def slow() -> Advance:
            await release.wait()
            return ENDED

        world.script["run_a"] = [slow]
        await world.wake("run_a")
        await engine.start()
        for _ in range(20):
            await asyncio.sleep(0.001)
        release.set()
        await engine.idle()
        assert world.drives == ["run_a"]
        await engine.stop()

    play(scenario)


def test_a_run_that_names_its_wake_is_driven_then_by_a_timer() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script["run_a"] = [Advance("waiting", world.clock.us + 2000), Advance("waiting", 1), ENDED]
        await engine.start()
        engine.submit("acme", "run_a")
        await until(lambda: len(world.drives) == 3)
        await engine.idle()
        await engine.stop()
        assert len(world.drives) == 3, "the end names no wake"
        assert engine.failures == {}

    play(scenario)


def test_a_timer_that_rings_during_a_drive_is_followed_by_one_more_drive() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)

        async def slow() -> Advance:
            engine.at("acme", "run_a", world.clock.us)
            await until(lambda: not engine._timers)
            return ENDED

        world.script["run_a"] = [slow]
        await engine.start()
        engine.submit("acme", "run_a")
        await engine.idle()
        assert world.drives == ["run_a", "run_a"]
        await engine.stop()

    play(scenario)


def test_a_wake_during_a_drive_that_fails_is_not_lost() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)

        async def woken() -> BaseException:
            engine.submit("acme", "run_a")
            return Integrity("the chain is broken")

        world.script["run_a"] = [woken]
        await engine.start()
        engine.submit("acme", "run_a")
        await engine.idle()
        assert world.drives == ["run_a", "run_a"]
        assert len(world.reported) == 1
        assert not engine.failures
        await engine.stop()

    play(scenario)


def test_of_two_timers_of_a_run_the_earlier_one_is_kept() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        await engine.start()
        soon = world.clock.us + 1000
        for when_us in (soon + 20_000_000, soon, soon + 10_000_000, soon + 10**15):
            engine.at("acme", "run_a", when_us)
        assert engine._timers["acme", "run_a"][0] == soon
        await until(lambda: world.drives)
        await engine.idle()
        assert world.drives == ["run_a"]
        assert not engine._timers
        await engine.stop()

    play(scenario)


def test_drives_are_bounded_in_all_and_per_tenant_and_tenants_take_turns() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(NO_SWEEP, max_drives=3, max_drives_per_tenant=2))
        for number in range(6):
            engine.submit("greedy", f"run_g{number}")
        engine.submit("modest", "run_m")
        await engine.start()
        await engine.idle()
        assert world.most == 3
        assert world.drives[:3] == ["run_g0", "run_m", "run_g1"], "tenants take turns"
        assert len(world.drives) == 7
        world.most = 0
        for number in range(6):
            engine.submit("greedy", f"run_g{number}")
        await engine.idle()
        assert world.most == 2
        await engine.stop()

    play(scenario)


def test_a_submit_past_the_bound_is_dropped_and_the_sweep_finds_it() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, max_waiting=2))
        for run in ("run_a", "run_b", "run_c"):
            await world.wake(run)
            engine.submit("acme", run)
        assert len(engine._waiting) == 2
        await engine.start()
        await until(lambda: sorted(world.drives) == ["run_a", "run_b", "run_c"])
        await engine.stop()

    play(scenario)


def test_timers_and_retries_past_the_bound_are_dropped_and_the_sweep_finds_their_runs() -> None:
    runs = ["run_a", "run_b", "run_c", "run_d"]

    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, max_waiting=2, sweep_interval_ms=20))
        await engine.start()
        for run in runs:
            engine.at("acme", run, world.clock.us + 30_000_000)
            world.script[run] = [Unavailable("store", "it is away", retry_after_ms=30)]
        assert len(engine._timers) == 2
        most = 0
        for run in runs:
            await world.wake(run)
        while Counter(world.drives) != dict.fromkeys(runs, 2):
            most = max(most, len(engine._retries))
            await asyncio.sleep(0.001)
        assert most == 2
        await engine.stop()

    play(scenario)


def test_a_conflict_is_driven_again_and_success_starts_the_count_anew() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(NO_SWEEP, max_conflicts=2))
        lost = Conflict("run_a")
        world.script["run_a"] = [lost, lost, Advance("waiting", None), lost, lost, ENDED]
        await engine.start()
        engine.submit("acme", "run_a")
        await engine.idle()
        assert len(world.drives) == 3
        engine.submit("acme", "run_a")
        await engine.idle()
        assert len(world.drives) == 6
        assert not engine.failures
        assert not world.reported
        await engine.stop()

    play(scenario)


def test_conflicts_without_end_are_reported_and_left_to_the_sweep() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(NO_SWEEP, max_conflicts=2))
        world.script["run_a"] = [Conflict("run_a")] * 4
        await world.wake("run_a")
        await engine.start()
        await engine.idle()
        assert len(world.drives) == 3
        assert isinstance(engine.failures["acme", "run_a"], Conflict)
        assert [fault[:2] for fault in world.reported] == [("acme", "run_a")]
        engine._start_sweep()
        await engine.idle()
        assert len(world.drives) == 5
        assert not engine.failures
        await engine.stop()

    play(scenario)


def test_an_unavailable_dependency_is_tried_again_as_often_as_it_takes() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script["run_a"] = [Unavailable("store", "gone", retry_after_ms=0)] * 30
        await engine.start()
        engine.submit("acme", "run_a")
        await engine.idle()
        assert len(world.drives) == 31
        assert not engine.failures
        await engine.stop()

    play(scenario)


def test_a_run_that_waits_to_be_tried_again_is_not_swept_but_a_submit_drives_it_at_once() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine()
        world.script["run_a"] = [Unavailable("store", "gone", retry_after_ms=3_600_000)]
        await world.wake("run_a")
        await engine.start()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert world.drives == ["run_a"]
        engine.submit("acme", "run_a")
        await engine.idle()
        assert world.drives == ["run_a", "run_a"]
        await engine.stop()

    play(scenario)


@pytest.mark.parametrize(
    "fault",
    [Integrity("the chain is broken"), KeyError("a bug"), RuntimeError("no text: \udcff")],
    ids=["typed", "bug", "no text"],
)
def test_a_repeated_failure_is_reported_once_and_the_run_is_a_dead_letter_until_it_is_retried(fault: Exception) -> None:
    async def scenario(world: World) -> None:
        store = world.stores.tenant("acme")
        engine = world.engine(replace(LIMITS, sweep_page=1))
        world.script["run_a"] = [fault, fault]
        await world.wake("run_a", 1)
        await world.wake("run_b", 2)
        await engine.start()
        await until_resting(store)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert sorted(world.drives) == ["run_a", "run_a", "run_b"], "it is not swept, and hides no other from a page"
        assert engine.failures == {("acme", "run_a"): fault}
        assert world.reported == [("acme", "run_a", fault)]
        await store.commit(Batch(run="run_a", writes=(removal(await dead_letter(store, "run_a")),)))
        await until(lambda: len(world.drives) == 4)
        await engine.idle()
        assert not engine.failures
        assert not await list_dead_letters(store)
        await engine.stop()

    play(scenario)


def test_an_entry_appended_during_a_failing_drive_is_seen_by_another_drive() -> None:
    async def scenario(world: World) -> None:
        store, fault = world.stores.tenant("acme"), Integrity("damaged")

        async def answered() -> BaseException:
            await add(store, "acme", "run_a", "approval.answered", 1)
            return fault

        world.script["run_a"] = [fault, answered, fault]
        engine = world.engine()
        await world.wake("run_a")
        await engine.start()
        await until_resting(store)
        await engine.stop()
        assert len(world.drives) == 3, "the third drive is the first that has seen the answer"

    play(scenario)


def test_a_run_that_is_absent_or_ended_is_reported_and_gets_no_dead_letter() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script = {"run_nobody": [NotFound("there is no run")], "run_over": [KeyError("a bug")]}
        await add(world.stores.tenant("acme"), "acme", "run_over", "run.ended", 0)
        await engine.start()
        for run in world.script:
            engine.submit("acme", run)
        await engine.idle()
        assert sorted(world.drives) == ["run_nobody", "run_over"]
        assert not await list_dead_letters(world.stores.tenant("acme"))
        assert len(engine.failures) == 2
        await engine.stop()

    play(scenario)


def test_a_backlog_hides_no_run_of_anybody() -> None:
    async def scenario(world: World) -> None:
        hold = asyncio.Event()

        async def held() -> Advance:
            await hold.wait()
            return ENDED

        for number in range(40):
            world.script[f"run_{number:03}"] = [held]
            await world.wake(f"run_{number:03}", 1, "greedy")
        await world.wake("run_modest", 2, "modest")
        engine = world.engine(replace(LIMITS, sweep_page=10, max_drives_per_tenant=2))
        await engine.start()
        await until(lambda: "run_modest" in world.drives)
        assert len(world.drives) == 3, "the greedy one has two drives, and 38 runs wait before the modest one"
        hold.set()
        await engine.stop()

    play(scenario)


def test_a_sweep_that_fails_is_reported_and_the_next_one_is_made() -> None:
    async def scenario(world: World) -> None:
        faults: list[BaseException] = [Unavailable("store", "gone", retry_after_ms=0), Integrity("damaged")]
        due = world.stores.due

        async def failing(before_us: int, *, limit: int = 1000, skip: int = 0) -> Any:
            if faults:
                raise faults.pop(0)
            async for run in due(before_us, limit=limit, skip=skip):
                yield run

        world.stores.due = failing
        engine = world.engine()
        await world.wake("run_a")
        await engine.start()
        await until(lambda: world.drives)
        assert [(tenant, run) for tenant, run, _ in world.reported] == [SWEEP, SWEEP]
        await until(lambda: SWEEP not in engine.failures)
        await engine.stop()

    play(scenario)


def test_stopping_lets_drives_end_cancels_the_late_ones_and_starts_nothing() -> None:
    async def scenario(world: World) -> None:
        engine, started = world.engine(), asyncio.Event()

        async def quick() -> Advance:
            await started.wait()
            await asyncio.sleep(0.001)
            return Advance("waiting", 1)

        async def endless() -> Advance:
            started.set()
            await asyncio.Event().wait()
            return ENDED

        world.script |= {"run_quick": [quick], "run_endless": [endless]}
        await engine.start()
        for run in world.script:
            engine.submit("acme", run)
        engine.at("acme", "run_later", world.clock.us + 1000)
        await started.wait()
        await engine.stop()
        assert world.now.total() == 0
        assert world.drives == ["run_quick", "run_endless"]
        engine.submit("acme", "run_after")
        engine.at("acme", "run_after", 0)
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert world.drives == ["run_quick", "run_endless"]
        assert not engine.failures
        assert len(asyncio.all_tasks()) == 1, "nothing is left behind"

    play(scenario)


def test_a_drive_that_somebody_cancels_is_a_failure_and_not_forgotten() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script["run_a"] = [asyncio.Event().wait]
        await engine.start()
        engine.submit("acme", "run_a")
        await asyncio.sleep(0.001)
        engine._drives["acme", "run_a"].cancel()
        await engine.idle()
        assert isinstance(engine.failures["acme", "run_a"], asyncio.CancelledError)
        await engine.stop()

    play(scenario)


def test_a_stopped_engine_is_idle_even_if_a_run_was_about_to_be_tried_again() -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script["run_a"] = [Unavailable("store", "gone", retry_after_ms=3_600_000)]
        await engine.start()
        engine.submit("acme", "run_a")
        await until(lambda: engine._retries)
        await engine.stop()
        await engine.idle()
        assert world.drives == ["run_a"]

    play(scenario)


def test_heads_are_published_at_intervals_and_a_failing_witness_stops_no_run() -> None:
    async def scenario(world: World) -> None:
        published = []

        async def witness() -> None:
            published.append(world.clock.us)
            if len(published) == 1:
                raise Unavailable("witness", "its disk is full", retry_after_ms=0)

        engine = world.engine(replace(LIMITS, witness_interval_ms=100), witness=witness)
        await engine.start()
        await world.wake("run_1")
        await asyncio.sleep(0.05)
        assert len(published) == 1, "not before its time, also after a failure"
        await until(lambda: len(published) == 2)
        assert world.drives == ["run_1"]
        await engine.stop()

    play(scenario)


def test_a_witness_that_hangs_holds_up_no_run_and_a_clock_that_jumps_does_not_silence_it() -> None:
    async def scenario(world: World) -> None:
        published: list[int] = []

        async def witness() -> None:
            published.append(world.clock.us)
            if len(published) == 1:
                await asyncio.Event().wait()

        engine = world.engine(replace(LIMITS, witness_interval_ms=10), witness=witness)
        await engine.start()
        await until(lambda: published)
        await world.wake("run_a")
        await until(lambda: world.drives)
        await engine.stop()
        engine = world.engine(replace(LIMITS, witness_interval_ms=10), witness=witness)
        world.clock.us += 10**13
        await engine.start()
        await until(lambda: len(published) == 2)
        world.clock.us -= 10**13
        await until(lambda: published[-1] < published[1])
        await engine.stop()
        assert world.drives == ["run_a"]

    play(scenario)


@pytest.mark.requirement("R-HEARTBEAT")
@pytest.mark.parametrize("fault", [Unavailable("store", "it is away"), Integrity("it is another")])
def test_an_engine_beats_before_it_drives_and_a_beat_that_fails_holds_up_neither_drives_nor_beats(
    fault: Exception,
) -> None:
    async def scenario(world: World) -> None:
        beats: list[int] = []

        async def beat() -> None:
            beats.append(len(world.drives))
            if len(beats) < 3:
                raise fault

        await world.wake("run_1")
        engine = world.engine(heartbeat=beat)
        await engine.start()
        await until(lambda: world.drives == ["run_1"] and len(beats) > 3)
        assert beats[0] == 0
        assert world.reported == [(*HEARTBEAT, fault)], "said once, although it came twice"
        assert not engine.failures, "it goes well again"
        await engine.stop()

    play(scenario)


@pytest.mark.requirement("R-HEARTBEAT")
def test_who_fails_at_hearing_of_a_failure_stops_no_beat_no_sweep_and_no_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        beats: list[int] = []
        shown: list[BaseException] = []
        honest = world.stores.due
        fault = BrokenPipeError("nobody reads stderr any more")

        async def due(before_us: int, **page: int) -> AsyncIterator[tuple[str, str]]:
            if len(beats) < 3:
                raise Unavailable("store", "it is away", retry_after_ms=0)
            async for run in honest(before_us, **page):
                yield run

        async def beat() -> None:
            beats.append(1)
            if len(beats) < 3:
                raise Unavailable("store", "it is away")

        def say(*_: object) -> None:
            raise fault

        monkeypatch.setattr(world.stores, "due", due)
        asyncio.get_running_loop().set_exception_handler(lambda _, published: shown.append(published["exception"]))
        for run in ("run_1", "run_2"):
            await world.wake(run)
        world.script["run_1"] = [Integrity("it is another"), ENDED]
        engine = LocalEngine(world.advance, world.stores, world.clock, heartbeat=beat, limits=LIMITS, on_failure=say)
        await engine.start()
        await until(lambda: sorted(world.drives) == ["run_1", "run_1", "run_2"])
        seen = len(beats)
        await until(lambda: len(beats) > seen + 2)
        await engine.stop()
        assert shown == [fault] * 3, "a beat, a sweep and a drive could not be said, and that is not hidden"

    play(scenario)


@pytest.mark.requirement("R-HEARTBEAT")
def test_an_engine_beats_while_a_sweep_hangs_and_not_after_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        beats: list[int] = []
        sweeping = asyncio.Event()

        async def due(before_us: int, **page: int) -> AsyncIterator[tuple[str, str]]:
            sweeping.set()
            await asyncio.Event().wait()
            yield "acme", "run_never"

        async def beat() -> None:
            beats.append(1)

        monkeypatch.setattr(world.stores, "due", due)
        engine = world.engine(heartbeat=beat)
        await engine.start()
        await sweeping.wait()
        seen = len(beats)
        await until(lambda: len(beats) > seen + 2)
        await engine.stop()
        seen = len(beats)
        await asyncio.sleep(0.02)
        assert len(beats) == seen
        assert len(asyncio.all_tasks()) == 1

    play(scenario)
