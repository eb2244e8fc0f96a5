"""Workers that share a store drive what is due, each run once at a time, and lose nothing. On a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from contextos.contracts.journal import CLOCK_MARGIN_US, Advance, Batch, Draft, genesis, link
from contextos.contracts.ports.claims import ClaimLimits
from contextos.deployment.dead_letters import dead_letter, list_dead_letters, removal
from contextos.errors import ClockOff, Conflict, Integrity, Unavailable, UnknownSemantics
from contextos.store.postgres.claims import PostgresClaims
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.failure_tracker import SWEEP
from contextos.workspace.engine.lease_owner import LeasedOwner
from contextos.workspace.engine.shared import NOTIFICATIONS, SharedEngine, SharedLimits
from tests.e2e.faulty_storage import FaultyPostgres
from tests.postgres import Database, Server, own_server

ENDED = Advance("completed", None)
LIMITS = SharedLimits(sweep_interval_ms=50, conflict_backoff_ms=1, stop_grace_ms=200)
NO_POLLS = replace(LIMITS, sweep_interval_ms=3_600_000)
HOUR_US = 3_600_000_000


class ShiftedClock:
    """A clock that is `off_us` ahead of this machine's."""

    def __init__(self) -> None:
        self.off_us = 0

    def now_us(self) -> int:
        return SystemClock().now_us() + self.off_us


class World:
    """Several engines over one store, and a fake `advance` that plays a script for each run and then ends it."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, SystemClock()
        self.stores = PostgresStores(url)
        self.script: dict[str, list[Any]] = {}
        self.drives: list[str] = []
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.reported: list[tuple[str, str, BaseException]] = []
        self.engines: list[SharedEngine] = []
        self.owners: list[LeasedOwner] = []
        self.orphans = 0

    async def wake(self, run: str, when_us: int = 1, tenant: str = "acme") -> None:
        store = self.stores.tenant(tenant)
        before = await store.read(run)
        head = (before[-1].seq, before[-1].hash) if before else (0, genesis(tenant, run))
        entry = link(tenant, run, head[0] + 1, head[1], Draft("run.received", "", 1, "test", b"{}", bytes(16)))
        await store.commit(Batch(run, entries=() if before else (entry,), wake_at_us=when_us))

    async def advance(self, tenant: str, run: str) -> Advance:
        self.now[run] += 1
        self.now[tenant] += 1
        assert self.now[run] == 1, "a run is driven once at a time"
        self.most[tenant] = max(self.most[tenant], self.now[tenant])
        self.drives.append(run)
        try:
            step = self.script.get(run, []).pop(0) if self.script.get(run) else ENDED
            if callable(step):
                step = await step()
            if isinstance(step, BaseException):
                raise step
            await self.wake(run, step.wake_at_us or 0, tenant)
            return step
        finally:
            self.now[run] -= 1
            self.now[tenant] -= 1

    async def wake_orphans(self) -> None:
        self.orphans += 1

    def engine(self, limits: SharedLimits = LIMITS, *, clock: Any = None, url: str = "") -> SharedEngine:
        owner = LeasedOwner()
        claims = PostgresClaims(url or self.url, owner.id, clock or self.clock, limits.claims)
        report = lambda tenant, run, fault: self.reported.append((tenant, run, fault))  # noqa: E731
        engine = SharedEngine(
            self.advance,
            self.stores,
            clock or self.clock,
            claims,
            on_dead=owner.set_dead,
            wake_orphans=self.wake_orphans,
            limits=limits,
            on_failure=report,
        )
        self.engines.append(engine)
        self.owners.append(owner)
        return engine


def play(database: Database, scenario: Callable[[World], Awaitable[None]]) -> World:
    world = World(database.app)

    async def bounded() -> None:
        try:
            async with asyncio.timeout(60):
                await scenario(world)
        finally:
            for engine in world.engines:
                await engine.stop()
            await world.stores.aclose()

    asyncio.run(bounded())
    return world


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is the engine's own doing
        await asyncio.sleep(0.005)


async def a_while() -> None:
    """Long enough for several exchanges; what must not happen has its chance."""
    await asyncio.sleep(0.3)


def freeze(engine: SharedEngine) -> None:
    """Let a worker fall silent, as a killed or stopped one does: it neither exchanges claims nor says goodbye."""
    assert engine._exchange_task is not None
    engine._exchange_task.cancel()
    engine._running = False
    claims: Any = engine._claims
    claims._connection.terminate()


def held_until(release: asyncio.Event) -> Callable[[], Awaitable[Advance]]:
    async def held() -> Advance:
        await release.wait()
        return ENDED

    return held


@pytest.mark.requirement("E-DUE")
def test_a_start_drives_every_run_that_was_left_due_and_leaves_the_others(database: Database) -> None:
    async def scenario(world: World) -> None:
        await world.wake("run_due", 5)
        await world.wake("run_late", 7, tenant="other")
        await world.wake("run_later", world.clock.now_us() + HOUR_US)
        await world.wake("run_waits", 0)
        await world.engine().start()
        await until(lambda: len(world.drives) == 2)
        await a_while()
        assert sorted(world.drives) == ["run_due", "run_late"]

    play(database, scenario)


@pytest.mark.requirement("E-DUE")
def test_a_run_that_another_process_receives_is_driven_without_a_poll(database: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_POLLS)
        await engine.start()
        await until(lambda: engine._claims.is_notified)
        for number in range(3):
            await world.wake(f"run_{number}", world.clock.now_us())
            await until(lambda: len(world.drives) == number + 1)  # noqa: B023 - awaited at once

    play(database, scenario)


def test_behind_a_pooler_runs_are_found_by_polling_and_that_is_said_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextos.workspace.engine.shared.NOTIFIED_WITHIN_S", 0.2)

    async def scenario(world: World) -> None:
        relay = FaultyPostgres(database, "deaf")
        engine = world.engine(url=await relay.start())
        await engine.start()
        await world.wake("run_a")
        await until(lambda: world.drives)
        await until(lambda: engine.failures)
        await a_while()
        [(_, what, fault)] = world.reported
        assert (what, list(engine.failures)) == (NOTIFICATIONS[1], [NOTIFICATIONS])
        assert "they do not arrive, as behind a pooler, so this worker asks for due runs every 0.05 s" in str(fault)
        await engine.stop()
        await relay.stop()

    play(database, scenario)


def test_a_worker_whose_connection_falls_silent_opens_another_before_it_counts_as_dead(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextos.store.postgres.claims.ANSWERED_WITHIN_S", 0.2)

    async def scenario(world: World) -> None:
        relay = FaultyPostgres(database, "silent")
        engine = world.engine(url=await relay.start())
        await engine.start()
        await until(lambda: engine._claims.is_notified)
        await relay.arm(0)
        await until(lambda: SWEEP in engine.failures)
        await relay.disarm()
        await world.wake("run_a")
        await until(lambda: world.drives)
        await relay.arm(0)
        await engine.stop()
        await relay.stop()

    play(database, scenario)


@pytest.mark.requirement("E-DUE")
def test_a_run_that_names_its_wake_is_driven_then_and_not_before(database: Database) -> None:
    async def scenario(world: World) -> None:
        at_us: list[int] = []

        async def at() -> Advance:
            at_us.append(world.clock.now_us())
            return Advance("executing", at_us[0] + 200_000) if len(at_us) == 1 else ENDED

        world.script["run_a"] = [at, at]
        await world.wake("run_a")
        await world.engine(NO_POLLS).start()
        await until(lambda: len(at_us) == 2)
        assert at_us[1] >= at_us[0] + 200_000

    play(database, scenario)


def test_an_answer_that_comes_during_a_drive_leads_to_another_drive(database: Database) -> None:
    async def scenario(world: World) -> None:
        async def answered() -> Advance:
            return Advance("waiting", world.clock.now_us())

        world.script["run_a"] = [answered]
        await world.wake("run_a")
        await world.engine(NO_POLLS).start()
        await until(lambda: world.drives == ["run_a", "run_a"])

    play(database, scenario)


def test_a_run_whose_drive_changes_nothing_is_no_treadmill(database: Database) -> None:
    async def scenario(world: World) -> None:
        async def left_due() -> Advance:
            return Advance("waiting", 1)

        world.script["run_a"] = [left_due] * 1000
        await world.wake("run_a")
        await world.engine().start()
        await until(lambda: len(world.drives) > 1)
        await a_while()
        assert len(world.drives) < 4

    play(database, scenario)


@pytest.mark.requirement("E-TENANT-SHARE")
def test_drives_are_bounded_in_all_and_per_tenant(database: Database) -> None:
    async def scenario(world: World) -> None:
        release = asyncio.Event()
        for number in range(6):
            world.script[f"run_g{number}"] = [held_until(release)]
            await world.wake(f"run_g{number}", tenant="greedy")
        await world.engine(replace(LIMITS, max_drives=3, claims=ClaimLimits(per_tenant=2))).start()
        await until(lambda: len(world.drives) == 2)
        await a_while()
        assert len(world.drives) == 2
        await world.wake("run_m", tenant="modest")
        await until(lambda: "run_m" in world.drives)
        release.set()
        await until(lambda: len(world.drives) == 7)
        assert world.most["greedy"] == 2

    play(database, scenario)


@pytest.mark.requirement("E-TENANT-SHARE")
def test_all_workers_together_drive_no_more_runs_of_a_tenant_than_its_bound(database: Database) -> None:
    async def scenario(world: World) -> None:
        release = asyncio.Event()
        limits = replace(LIMITS, claims=ClaimLimits(per_tenant_in_all=3))
        for number in range(9):
            world.script[f"run_g{number}"] = [held_until(release)]
            await world.wake(f"run_g{number}", tenant="greedy")
        for _ in range(3):
            await world.engine(limits).start()
        await until(lambda: len(world.drives) == 3)
        await a_while()
        assert len(world.drives) == 3
        release.set()
        await until(lambda: len(world.drives) == 9)
        assert world.most["greedy"] == 3

    play(database, scenario)


@pytest.mark.requirement("E-TENANT-SHARE")
def test_a_tenant_starts_no_more_drives_than_its_rate_over_all_workers(database: Database) -> None:
    async def scenario(world: World) -> None:
        limits = replace(LIMITS, claims=ClaimLimits(rate_per_tenant=2, rate_period_ms=3_600_000))
        for number in range(5):
            await world.wake(f"run_g{number}", tenant="greedy")
        await world.wake("run_m", tenant="modest")
        for _ in range(2):
            await world.engine(limits).start()
        await until(lambda: len(world.drives) == 3)
        await a_while()
        assert len(world.drives) == 3
        assert world.most["modest"] == 1

    play(database, scenario)


@pytest.mark.requirement("E-TENANT-SHARE")
def test_a_long_backlog_of_one_tenant_hides_no_run_of_another(database: Database) -> None:
    async def scenario(world: World) -> None:
        release = asyncio.Event()
        for number in range(300):
            world.script[f"run_g{number}"] = [held_until(release)]
        await asyncio.gather(*(world.wake(f"run_g{number}", 1, "greedy") for number in range(300)))
        for tenant in ("a_small", "z_small"):
            await world.wake(f"run_{tenant}", world.clock.now_us(), tenant)
        await world.engine(replace(LIMITS, max_drives=6, claims=ClaimLimits(per_tenant=4))).start()
        await until(lambda: {"run_a_small", "run_z_small"} <= set(world.drives))
        assert len(world.drives) < 10
        release.set()

    play(database, scenario)


@pytest.mark.requirement("E-ONCE")
def test_four_workers_drive_each_of_many_runs_once_and_share_them(database: Database) -> None:
    async def scenario(world: World) -> None:
        async def worked() -> Advance:
            await asyncio.sleep(0.01)
            return ENDED

        for number in range(100):
            world.script[f"run_{number}"] = [worked]
        await asyncio.gather(*(world.wake(f"run_{number}") for number in range(100)))
        for _ in range(4):
            await world.engine(NO_POLLS).start()
        await until(lambda: len(world.drives) == 100)
        await a_while()
        assert Counter(world.drives) == {f"run_{number}": 1 for number in range(100)}
        assert world.most["acme"] > 8, "more than one worker drove them"

    play(database, scenario)


@pytest.mark.requirement("E-WORKER-DEATH")
def test_a_silent_worker_counts_as_dead_and_its_runs_are_driven_by_another(database: Database) -> None:
    async def scenario(world: World) -> None:
        limits = replace(LIMITS, claims=ClaimLimits(alive_ms=500))
        release = asyncio.Event()
        world.script["run_a"] = [held_until(release), ENDED]
        await world.wake("run_a")
        first = world.engine(limits)
        await first.start()
        await until(lambda: world.drives)
        await world.engine(limits).start()
        await a_while()
        assert world.drives == ["run_a"], "it lives"
        assert world.owners[1].alive(world.owners[0].id)
        freeze(first)
        world.now.clear()
        await until(lambda: world.drives == ["run_a", "run_a"])
        assert not world.owners[1].alive(world.owners[0].id), "its leases are over at once"
        assert world.owners[1].alive("somebody else"), "a process that is no worker keeps its leases"
        release.set()

    play(database, scenario)


def test_an_engine_that_drives_nothing_takes_no_run_and_its_death_is_noticed(database: Database) -> None:
    async def scenario(world: World) -> None:
        limits = replace(LIMITS, claims=ClaimLimits(alive_ms=500))
        idle = world.engine(replace(limits, max_drives=0))
        await idle.start()
        await world.wake("run_a")
        idle.submit("acme", "run_a")
        await a_while()
        assert world.drives == []
        await world.engine(limits).start()
        await until(lambda: world.drives == ["run_a"])
        assert world.owners[1].alive(world.owners[0].id)
        freeze(idle)
        await until(lambda: not world.owners[1].alive(world.owners[0].id))
        await until(lambda: world.orphans)
        await a_while()
        assert world.orphans == 1, "once for each death, and not by the one that drives nothing"

    play(database, scenario)


@pytest.mark.requirement("E-WORKER-DEATH")
def test_a_stopped_worker_gives_its_runs_back_at_once(database: Database) -> None:
    async def scenario(world: World) -> None:
        world.script["run_a"] = [asyncio.Event().wait, ENDED]
        await world.wake("run_a")
        first = world.engine()
        await first.start()
        await until(lambda: world.drives)
        await first.stop()
        await world.engine(NO_POLLS).start()
        await until(lambda: world.drives == ["run_a", "run_a"])

    play(database, scenario)


@pytest.mark.requirement("E-WORKER-DEATH")
def test_a_run_that_a_stop_cancels_does_not_wait_until_its_lease_is_over(database: Database) -> None:
    async def scenario(world: World) -> None:
        async def leased() -> Advance:
            await world.wake("run_a", world.clock.now_us() + HOUR_US)
            await asyncio.Event().wait()
            return ENDED

        world.script["run_a"] = [leased, ENDED]
        await world.wake("run_a")
        first = world.engine()
        await first.start()
        await until(lambda: world.drives)
        await first.stop()
        await world.engine(NO_POLLS).start()
        await until(lambda: world.drives == ["run_a", "run_a"])

    play(database, scenario)


@pytest.mark.parametrize("off_us", [CLOCK_MARGIN_US + 1_000_000, -300_000_000])
def test_a_worker_with_a_wrong_clock_takes_no_run_and_says_so_once(database: Database, off_us: int) -> None:
    async def scenario(world: World) -> None:
        clock = ShiftedClock()
        clock.off_us = off_us
        engine = world.engine(clock=clock)
        await world.wake("run_a")
        await engine.start()
        await until(lambda: engine.failures)
        await a_while()
        assert world.drives == []
        assert isinstance(engine.failures[SWEEP], ClockOff)
        clock.off_us = 0
        await until(lambda: world.drives)
        await until(lambda: not engine.failures)

    play(database, scenario)


def test_a_worker_that_is_given_a_run_once_more_while_it_drives_it_drives_it_once(database: Database) -> None:
    async def scenario(world: World) -> None:
        release = asyncio.Event()
        world.script["run_a"] = [held_until(release)]
        await world.wake("run_a")
        engine = world.engine()
        await engine.start()
        await until(lambda: world.drives)
        # As if it had been silent for so long that another worker freed its claims.
        await database.fetch("UPDATE contextos.runs SET worker = NULL, claim_at_us = 1")
        while not (await database.fetch("SELECT worker FROM contextos.runs"))[0]["worker"]:
            await a_while()
        release.set()
        while (await database.fetch("SELECT worker FROM contextos.runs"))[0]["worker"]:
            await a_while()
        assert world.drives == ["run_a"]
        assert not engine.failures

    play(database, scenario)


def test_a_run_whose_driver_has_a_wrong_clock_goes_on_elsewhere_at_once(database: Database) -> None:
    async def scenario(world: World) -> None:
        world.script["run_a"] = [ClockOff(300_000_000, CLOCK_MARGIN_US), ENDED]
        await world.wake("run_a")
        for _ in range(2):
            await world.engine().start()
        await until(lambda: world.drives == ["run_a", "run_a"])

    play(database, scenario)


def test_a_conflict_is_driven_again_and_without_end_it_is_reported(database: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, max_conflicts=2))
        world.script["run_a"] = [Conflict("run_a")] * 3
        await world.wake("run_a")
        await engine.start()
        await until(lambda: len(world.drives) == 3)
        await until(lambda: isinstance(engine.failures.get(("acme", "run_a")), Conflict))
        await until(lambda: len(world.drives) == 4)
        await until(lambda: not engine.failures)

    play(database, scenario)


def test_an_unavailable_dependency_is_tried_again_when_it_says_by_any_worker(database: Database) -> None:
    async def scenario(world: World) -> None:
        world.script["run_a"] = [Unavailable("bank", "closed", retry_after_ms=10)] * 12
        await world.wake("run_a")
        for _ in range(2):
            await world.engine().start()
        await until(lambda: len(world.drives) == 13)
        assert not world.reported

    play(database, scenario)


@pytest.mark.requirement("E-DEAD-LETTERS")
@pytest.mark.parametrize(
    ("fault", "code"),
    [(Integrity("the chain is broken"), "integrity"), (KeyError("a bug"), "KeyError")],
    ids=["typed", "bug"],
)
def test_a_run_that_always_fails_is_a_dead_letter_in_every_worker_until_it_is_retried(
    database: Database, fault: Exception, code: str
) -> None:
    async def scenario(world: World) -> None:
        store = world.stores.tenant("acme")
        world.script["run_a"] = [fault] * 2
        await world.wake("run_a")
        await world.engine().start()
        await until(lambda: len(world.drives) == 2)
        while not (letters := await list_dead_letters(store)):  # noqa: ASYNC110 - the engine puts it there
            await asyncio.sleep(0.005)
        await world.engine().start()
        await world.wake("run_a", 2)
        await a_while()
        assert len(world.drives) == 2
        assert [(letter.run_id, letter.code) for letter in letters] == [("run_a", code)]
        assert world.reported == [("acme", "run_a", fault)]
        retried = removal(await dead_letter(store, "run_a"))
        await store.commit(Batch("run_a", writes=(retried,), wake_at_us=3))
        await until(lambda: len(world.drives) == 3)

    play(database, scenario)


def test_a_drive_that_somebody_cancels_is_a_failure_and_not_forgotten(database: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine()

        async def cancelled() -> Advance:
            raise asyncio.CancelledError

        world.script["run_a"] = [cancelled]
        await world.wake("run_a")
        await engine.start()
        await until(lambda: len(world.drives) == 2)
        assert isinstance(world.reported[0][2], asyncio.CancelledError)

    play(database, scenario)


@pytest.mark.parametrize("fault", [Integrity("a damaged page"), RuntimeError("a bug")], ids=["damaged", "bug"])
def test_a_worker_whose_exchange_fails_says_so_and_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    async def scenario(world: World) -> None:
        exchange = PostgresClaims.exchange
        monkeypatch.setattr(PostgresClaims, "exchange", AsyncMock(side_effect=fault))
        engine = world.engine()
        await engine.start()
        await world.wake("run_a")
        await until(lambda: world.reported)
        assert engine.failures == {SWEEP: fault}
        monkeypatch.setattr(PostgresClaims, "exchange", exchange)
        await until(lambda: world.drives == ["run_a"])
        await until(lambda: not engine.failures)

    play(database, scenario)


def test_a_dependency_that_is_away_for_longer_than_a_number_can_say_stops_no_worker(database: Database) -> None:
    async def scenario(world: World) -> None:
        world.script["run_a"] = [Unavailable("bank", "closed", retry_after_ms=2**62)]
        await world.wake("run_a")
        await world.engine().start()
        await until(lambda: world.drives == ["run_a"])
        await a_while()
        await world.wake("run_b")
        await until(lambda: world.drives == ["run_a", "run_b"])
        await world.wake("run_a", 2)
        await until(lambda: world.drives == ["run_a", "run_b", "run_a"])

    play(database, scenario)


@pytest.mark.requirement("E-DEAD-LETTERS")
def test_a_run_of_another_version_is_left_to_its_workers_and_is_no_dead_letter(database: Database) -> None:
    async def scenario(world: World) -> None:
        unknown = UnknownSemantics("the run has semantics 9, this runtime knows 1")
        world.script["run_a"] = [unknown] * 3
        await world.wake("run_a")
        await world.engine().start()
        await until(lambda: len(world.drives) == 4)
        assert world.reported == [("acme", "run_a", unknown)]
        assert not await list_dead_letters(world.stores.tenant("acme"))

    play(database, scenario)


def test_a_restarted_server_costs_no_run_and_leaves_no_claim_behind() -> None:
    with own_server() as server:
        restarted(server)


def test_a_server_that_is_down_is_not_said_to_pass_on_no_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextos.workspace.engine.shared.NOTIFIED_WITHIN_S", 0)

    async def scenario(world: World) -> None:
        engine = world.engine()
        await engine.start()
        await until(lambda: engine._claims.is_notified)
        await asyncio.to_thread(server.crash)
        await until(lambda: world.reported)
        await a_while()
        await asyncio.to_thread(server.start)
        await until(lambda: SWEEP not in engine.failures)
        assert {one[:2] for one in world.reported} == {SWEEP}

    with own_server() as server:
        play(server.database(), scenario)


def restarted(server: Server) -> None:
    async def scenario(world: World) -> None:
        release = asyncio.Event()
        for number in range(20):
            world.script[f"run_{number}"] = [held_until(release)]
        await asyncio.gather(*(world.wake(f"run_{number}") for number in range(20)))
        for _ in range(2):
            await world.engine().start()
        await until(lambda: len(world.drives) >= 4)
        await asyncio.to_thread(server.restart)
        release.set()
        await until(lambda: len(set(world.drives)) == 20)
        rows = "SELECT run FROM contextos.runs WHERE worker IS NOT NULL OR wake_at_us <> 0"
        while await database.fetch(rows):  # noqa: ASYNC110 - the engines give them back
            await asyncio.sleep(0.05)

    database = server.database()
    play(database, scenario)
