"""The durable engine drives what is due, once at a time over all workers, and loses nothing. On a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.journal import Advance, Batch, Draft, genesis, link
from contextos.engine.durable.engine import DurableEngine, DurableLimits
from contextos.engine.durable.queue_connection import migrate_queue_tables
from contextos.engine.durable.workflows import QueueLimits
from contextos.engine.failure_tracker import SWEEP
from contextos.errors import Conflict, Integrity, InvalidSettings, Unavailable
from contextos.operations.dead_letters import DeadLetter, dead_letter, list_dead_letters, removal
from contextos.store.memory.stores import MemoryStores
from contextos.store.shared.clock import SystemClock
from tests.postgres import LOGIN, PASSWORD, Database, Server

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
        self.engines: list[DurableEngine] = []

    async def wake(self, run: str, when_us: int = 1, tenant: str = "acme") -> None:
        store = self.stores.tenant(tenant)
        if not await store.read(run):
            await add(store, tenant, run, "run.received")
        await store.commit(Batch(run, wake_at_us=when_us))

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
        engine = DurableEngine(
            self.advance, self.stores, self.clock, limits=limits, on_failure=report, **{"url": self.url, **more}
        )
        self.engines.append(engine)
        return engine


async def add(store: Any, tenant: str, run: str, kind: str, wake_at_us: int | None = None) -> None:
    """One more entry of a run's journal, by whomever."""
    before = await store.read(run)
    head = (before[-1].seq, before[-1].hash) if before else (0, genesis(tenant, run))
    entry = link(tenant, run, head[0] + 1, head[1], Draft(kind, "", 1, "test", b"{}", bytes(16)))
    await store.commit(Batch(run, entries=(entry,), wake_at_us=wake_at_us))


def play(url: str, scenario: Callable[[World], Awaitable[None]]) -> World:
    world = World(url)

    async def bounded() -> None:
        try:
            async with asyncio.timeout(120):
                await scenario(world)
        finally:
            for engine in world.engines:
                await engine.stop()

    asyncio.run(bounded())
    return world


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is the engine's own doing
        await asyncio.sleep(0.005)


async def a_while() -> None:
    """Long enough for several looks at the queue and several sweeps; what must not happen has its chance."""
    await asyncio.sleep(0.3)


async def statuses(queue: Database, name: str = "contextos.drive") -> Counter[str]:
    rows = await queue.fetch(f"SELECT status FROM dbos.workflow_status WHERE name = '{name}'")
    return Counter(row[0] for row in rows)


async def taken_off(world: World) -> None:
    """`run_a` is taken off the dead-letter list, as `retry` does."""
    store = world.stores.tenant("acme")
    await store.commit(Batch(run="run_a", writes=(removal(await dead_letter(store, "run_a")),)))


async def dead_letters(world: World, tenant: str = "acme") -> list[DeadLetter]:
    return list(await list_dead_letters(world.stores.tenant(tenant)))


async def until_resting(world: World) -> None:
    while not await dead_letters(world):  # noqa: ASYNC110 - the engine puts it there
        await asyncio.sleep(0.005)


@pytest.mark.requirement("E-DUE")
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


def test_a_sweep_during_a_drive_does_not_drive_again(url: str) -> None:
    async def scenario(world: World) -> None:
        engine, release = world.engine(), asyncio.Event()

        async def slow() -> Advance:
            await release.wait()
            return ENDED

        world.script["run_a"] = [slow]
        await world.wake("run_a")
        await engine.start()
        await until(lambda: world.drives)
        await a_while()
        release.set()
        await engine.idle()
        assert world.drives == ["run_a"]
        await engine.stop()

    play(url, scenario)


def test_a_run_that_names_its_wake_is_driven_then(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        soon, later = (world.clock.now_us() + ms * 1000 for ms in (300, 2500))
        world.script["run_a"] = [Advance("waiting", soon), Advance("waiting", later), Advance("waiting", 1), ENDED]
        await engine.start()
        engine.submit("acme", "run_a")
        for number, not_before_us in ((2, soon), (3, later)):
            await until(lambda number=number: len(world.drives) >= number)
            assert world.clock.now_us() >= not_before_us
        await until(lambda: len(world.drives) == 4)
        await engine.idle()
        await a_while()
        await engine.stop()
        assert len(world.drives) == 4, "the end names no wake"
        assert engine.failures == {}

    play(url, scenario)


def test_of_two_timers_the_earlier_one_is_kept_and_a_submit_waits_for_none(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        await engine.start()
        soon = world.clock.now_us() + 2_000_000
        for when_us in (soon + 20_000_000, soon, soon + 10_000_000):
            engine.at("acme", "run_a", when_us)
            await until(lambda: not len(engine._enqueuer))
        engine.at("acme", "run_far", soon + HOUR_US)
        engine.at("acme", "run_b", soon + 20_000_000)
        await engine.idle()
        assert await statuses(queue) == {"DELAYED": 2}, "one timer a run, and none beyond the horizon"
        engine.submit("acme", "run_b")
        await until(lambda: world.drives == ["run_b"])
        await until(lambda: world.drives == ["run_b", "run_a"])
        assert world.clock.now_us() >= soon
        await engine.idle()
        await engine.stop()
        assert world.drives == ["run_b", "run_a"]

    play(url, scenario)


@pytest.mark.requirement("E-TENANT-SHARE")
def test_drives_are_bounded_in_all_and_per_tenant(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(NO_SWEEP, queue=replace(NO_SWEEP.queue, max_drives=3, max_drives_per_tenant=2)))
        release = asyncio.Event()

        async def held() -> Advance:
            await release.wait()
            return ENDED

        for number in range(6):
            world.script[f"run_g{number}"] = [held]
            engine.submit("greedy", f"run_g{number}")
        await engine.start()
        await until(lambda: len(world.drives) == 2)
        await a_while()
        assert len(world.drives) == 2
        engine.submit("modest", "run_m")
        await until(lambda: "run_m" in world.drives)
        release.set()
        await engine.idle()
        assert len(world.drives) == 7
        assert world.most["greedy"] == 2
        await engine.stop()

    play(url, scenario)


@pytest.mark.requirement("E-TENANT-SHARE")
def test_a_tenant_starts_no_more_drives_than_its_rate(url: str) -> None:
    async def scenario(world: World) -> None:
        rate = replace(NO_SWEEP.queue, rate_per_tenant=2, rate_period_ms=3_600_000)
        engine = world.engine(replace(NO_SWEEP, queue=rate))
        for number in range(5):
            engine.submit("greedy", f"run_g{number}")
        await engine.start()
        engine.submit("modest", "run_m")
        await until(lambda: len(world.drives) == 3)
        await a_while()
        assert len(world.drives) == 3
        assert world.most["modest"] == 1
        await engine.stop()

    play(url, scenario)


@pytest.mark.requirement("E-DUE")
def test_a_hint_past_the_bound_is_dropped_and_the_sweep_finds_the_run(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, max_waiting=2))
        for run in ("run_a", "run_b", "run_c"):
            await world.wake(run)
            engine.submit("acme", run)
        assert len(engine._enqueuer) == 2
        await engine.start()
        await until(lambda: sorted(world.drives) == ["run_a", "run_b", "run_c"])
        await engine.stop()

    play(url, scenario)


def test_a_conflict_is_driven_again_and_without_end_it_is_reported_and_left_to_the_sweep(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, max_conflicts=2))
        lost = Conflict("run_a")
        world.script = {"run_a": [lost, lost, ENDED], "run_b": [lost] * 4}
        await engine.start()
        engine.submit("acme", "run_a")
        await engine.idle()
        assert world.drives == ["run_a"] * 3
        assert not world.reported
        await world.wake("run_b")
        await until(lambda: world.drives.count("run_b") == 5)
        await engine.idle()
        assert [(tenant, run) for tenant, run, _ in world.reported] == [("acme", "run_b")]
        assert not engine.failures
        assert await dead_letters(world) == []
        await engine.stop()

    play(url, scenario)


def test_an_unavailable_dependency_is_tried_again_as_often_as_it_takes(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script["run_a"] = [Unavailable("store", "gone", retry_after_ms=0)] * 10
        await engine.start()
        engine.submit("acme", "run_a")
        await until(lambda: len(world.drives) == 11)
        await engine.idle()
        assert not engine.failures
        assert not world.reported
        await engine.stop()

    play(url, scenario)


def test_a_run_that_waits_to_be_tried_again_is_not_swept_but_a_submit_drives_it_at_once(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine()
        world.script["run_a"] = [Unavailable("store", "gone", retry_after_ms=3_600_000)]
        await world.wake("run_a")
        await engine.start()
        await until(lambda: world.drives)
        await a_while()
        assert world.drives == ["run_a"]
        engine.submit("acme", "run_a")
        await until(lambda: world.drives == ["run_a", "run_a"])
        await engine.idle()
        await engine.stop()

    play(url, scenario)


@pytest.mark.requirement("E-DEAD-LETTERS")
@pytest.mark.parametrize(
    ("fault", "code"),
    [(Integrity("the chain is broken"), "integrity"), (KeyError("a bug"), "KeyError")],
    ids=["typed", "bug"],
)
def test_a_run_that_always_fails_is_a_dead_letter_until_it_is_retried(url: str, fault: Exception, code: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, sweep_page=1))
        world.script["run_a"] = [fault] * 4
        await world.wake("run_a", 1)
        await engine.start()
        await until_resting(world)
        await world.wake("run_b", 2)
        await until(lambda: "run_b" in world.drives)
        await a_while()
        assert world.drives == ["run_a", "run_a", "run_b"], "it is not swept, and hides no other from a full page"
        assert engine.failures == {("acme", "run_a"): fault}
        assert world.reported == [("acme", "run_a", fault)]
        await engine.stop()

        engine = world.engine()
        before_us = world.clock.now_us()
        await engine.start()
        await a_while()
        assert len(world.drives) == 3, "it is a dead letter in other workers too"
        [letter] = await dead_letters(world)
        assert (letter.run_id, letter.code, letter.failures) == ("run_a", code, 1)
        assert (str(fault) == letter.detail) == (code == "integrity")
        assert 0 < letter.failed_at_us < before_us
        await taken_off(world)
        assert await dead_letters(world) == []
        await until_resting(world)
        [letter] = await dead_letters(world)
        assert letter.failures == 2
        assert letter.failed_at_us > before_us, "the newest failure of a run is shown"
        assert len(world.drives) == 5
        await taken_off(world)
        await until(lambda: len(world.drives) == 6)
        await engine.idle()
        assert await dead_letters(world) == []
        assert not engine.failures
        await a_while()
        await engine.stop()
        assert len(world.drives) == 6

    play(url, scenario)


def test_a_wake_during_a_drive_that_fails_is_not_lost(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)

        async def woken() -> BaseException:
            engine.submit("acme", "run_a")
            return Integrity("the chain is broken")

        world.script["run_a"] = [woken]
        await engine.start()
        engine.submit("acme", "run_a")
        await until(lambda: world.drives == ["run_a", "run_a"])
        await engine.idle()
        assert len(world.reported) == 1
        assert not engine.failures
        await engine.stop()

    play(url, scenario)


def test_a_drive_that_somebody_cancels_is_a_failure_and_not_forgotten(url: str) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script["run_a"] = [asyncio.Event().wait]
        await engine.start()
        engine.submit("acme", "run_a")
        await until(lambda: world.drives)
        engine._driving["acme", "run_a"].cancel()
        await engine.idle()
        assert isinstance(engine.failures["acme", "run_a"], asyncio.CancelledError)
        await engine.stop()

    play(url, scenario)


def test_a_sweep_that_fails_is_reported_and_the_next_one_is_made(url: str) -> None:
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

    play(url, scenario)


def test_stopping_lets_drives_end_cancels_the_late_ones_and_another_start_drives_those_on(
    url: str, queue: Database
) -> None:
    async def scenario(world: World) -> None:
        engine, started = world.engine(NO_SWEEP), asyncio.Event()

        async def quick() -> Advance:
            await started.wait()
            await asyncio.sleep(0.001)
            return ENDED

        async def endless() -> Advance:
            started.set()
            await asyncio.Event().wait()
            return ENDED

        world.script |= {"run_quick": [quick], "run_endless": [endless]}
        await engine.start()
        for run in world.script:
            engine.submit("acme", run)
        await started.wait()
        await until(lambda: len(world.drives) == 2)
        await engine.stop()
        await engine.stop()
        assert world.now.total() == 0
        engine.submit("acme", "run_after")
        await a_while()
        assert sorted(world.drives) == ["run_endless", "run_quick"]
        assert not engine.failures
        assert len(asyncio.all_tasks()) == 1, "nothing is left behind"
        assert await statuses(queue) == {"SUCCESS": 2, "ENQUEUED": 1}

        engine = world.engine(NO_SWEEP)
        await engine.start()
        await until(lambda: world.drives.count("run_endless") == 2)
        await engine.idle()
        await engine.stop()
        assert len(world.drives) == 3

    play(url, scenario)


@pytest.mark.requirement("E-JSON-QUEUE")
def test_payloads_and_results_are_stored_as_json_and_never_as_pickle(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(NO_SWEEP)
        world.script["run_b"] = [Integrity("the chain is broken")]
        await engine.start()
        for run in ("run_a", "run_b"):
            engine.submit("acme", run)
        await until(lambda: len(world.drives) == 2)
        await engine.idle()
        await engine.stop()

    play(url, scenario)
    serializers = queue.execute("SELECT DISTINCT serialization FROM dbos.workflow_status")
    assert serializers == [("portable_json",)]
    inputs = queue.execute("SELECT (inputs::json -> 'positionalArgs')::text FROM dbos.workflow_input")
    assert ('["acme","run_a"]',) in [(text.replace(" ", ""),) for (text,) in inputs]
    outputs = queue.execute("SELECT output, error FROM dbos.workflow_output")
    assert {tuple(row) for row in outputs} == {('"completed"', None), ('"integrity"', None)}


@pytest.mark.soak
@pytest.mark.requirement("E-WAITING-IS-FREE")
def test_thousands_of_runs_that_wait_for_a_person_are_no_workflows_and_an_answer_drives_one(
    url: str, queue: Database
) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, sweep_interval_ms=500))
        expiry = Advance("waiting", world.clock.now_us() + 24 * HOUR_US)
        world.script = {f"run_{number}": [expiry] for number in range(2000)}
        await engine.start()
        for run in world.script:
            engine.submit("acme", run)
        await until(lambda: len(world.drives) == 2000)
        await engine.idle()
        tasks = len(asyncio.all_tasks())
        assert await statuses(queue) == {"SUCCESS": 2000}
        assert not len(engine._enqueuer)
        engine.submit("acme", "run_7")
        await until(lambda: world.drives[2000:] == ["run_7"])
        await engine.idle()
        assert len(asyncio.all_tasks()) <= tasks
        await engine.stop()

    play(url, scenario)


def test_what_ended_well_long_ago_is_deleted(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        tidy = replace(LIMITS, tidy_interval_ms=1, queue=replace(QUEUE, keep_finished_ms=0))
        engine = world.engine(tidy)
        await engine.start()
        engine.submit("acme", "run_a")
        await until(lambda: world.drives)
        while await statuses(queue):  # noqa: ASYNC110 - DBOS deletes them
            await asyncio.sleep(0.005)
        await engine.stop()
        assert world.drives == ["run_a"], "it is gone from the queue after it was driven, and not instead"

    play(url, scenario)


REFUSED = [
    ("not a url", InvalidSettings, "cannot be read"),
    ("mysql://me@host/x", InvalidSettings, "does not name a PostgreSQL database"),
    ("postgresql://me:hush@host", InvalidSettings, "does not name a PostgreSQL database"),
    ("postgresql://me:hush@127.0.0.1:1/x", Unavailable, "refused"),
    ("postgres://me@127.0.0.1:1/x?password=hush", Unavailable, "refused"),
    ("postgresql://me@h:port/x", InvalidSettings, "cannot be read"),
    ("postgresql://me@[::1/x", InvalidSettings, "cannot be read"),
    ("postgresql://me@127.0.0.1:1/x?password=hush&nonsense=1", InvalidSettings, "nonsense"),
    ("postgresql://me@127.0.0.1:1/x?Password=hush", InvalidSettings, "Password"),
    ("postgresql://me:very@hush@127.0.0.1:1/x", InvalidSettings, "cannot be read"),
    ("postgresql://127.0.0.1:1/x?password=very@hush/x", InvalidSettings, "cannot be read"),
    ("postgresql://me@127.0.0.1:1/x?connect_timeout=soon", InvalidSettings, "soon"),
]


@pytest.mark.requirement("E-WHOLE-START")
def test_a_database_that_cannot_serve_is_one_clear_sentence_and_nothing_is_half_started(
    url: str, queue: Database
) -> None:
    server = queue.server
    server.execute("CREATE DATABASE contextos_test_bare")
    mine = "postgresql://{}@" + url.partition("@")[2]
    refused = [
        *REFUSED,
        (server.named("contextos_no_such"), InvalidSettings, "does not exist"),
        (mine.format("nobody_here"), InvalidSettings, "does not exist"),
        (server.named("contextos_test_bare"), InvalidSettings, "contextos migrate"),
        (server.named(queue.name, LOGIN), InvalidSettings, "contextos migrate"),
    ]

    async def scenario(world: World) -> None:
        for wrong, kind, words in refused:
            engine = world.engine(url=wrong)
            with pytest.raises(kind, match=words) as said:
                await engine.start()
            assert "hush" not in str(said.value)
            assert "\n" not in str(said.value)
            await engine.stop()
            assert len(asyncio.all_tasks()) == 1
        engine = world.engine()
        await engine.start()
        with pytest.raises(InvalidSettings, match="start another process"):
            await world.engine().start()
        engine.submit("acme", "run_a")
        await until(lambda: world.drives)
        await engine.stop()

    play(url, scenario)
    server.execute("DROP DATABASE contextos_test_bare")


def test_a_role_without_rights_works_once_the_owner_migrated_for_it(queue: Database) -> None:
    migrate_queue_tables(queue.owner, LOGIN)

    async def scenario(world: World) -> None:
        engine = world.engine()
        await engine.start()
        engine.submit("acme", "run_a")
        await until(lambda: world.drives)
        await engine.stop()
        assert not world.reported

    play(queue.app, scenario)


def test_a_queue_that_a_superuser_migrated_once_stays_its_owners(postgres: Server) -> None:
    role = "contextos_test_queue_owner"
    postgres.execute(f"DROP ROLE IF EXISTS {role}")
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    made = Database(postgres, "contextos_test_owned_queue")
    postgres.execute(f"CREATE DATABASE {made.name} OWNER {role}")
    owner = postgres.named(made.name, role)
    try:
        migrate_queue_tables(owner, LOGIN)
        made.execute("DROP TABLE dbos.contextos_store")  # as one of before had none
        migrate_queue_tables(made.owner, LOGIN)
        assert migrate_queue_tables(owner, LOGIN) == LOGIN
        assert made.execute("SELECT store FROM dbos.contextos_store", made.app) == []
    finally:
        made.drop()
        postgres.execute(f"DROP ROLE {role}")


def test_a_role_that_cannot_create_the_queue_is_refused_with_the_remedy(postgres: Server) -> None:
    with pytest.raises(InvalidSettings, match="create the role"):
        migrate_queue_tables(postgres.named("postgres"), "nobody_here", schema="contextos_test_roleless")
    bare = Database(postgres, "contextos_test_bare")
    postgres.execute(f"CREATE DATABASE {bare.name}")
    with pytest.raises(InvalidSettings, match=r"permission denied.*--queue-url"):
        migrate_queue_tables(bare.app, None)
    bare.drop()


def test_a_worker_beats_before_it_drives_and_while_a_sweep_hangs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        beats: list[int] = []
        honest, hangs = world.stores.due, asyncio.Event()

        async def due(before_us: int, **page: int) -> AsyncIterator[tuple[str, str]]:
            async for run in honest(before_us, **page):
                yield run
            if world.drives:
                hangs.set()
                await asyncio.Event().wait()

        async def beat() -> None:
            beats.append(len(world.drives))
            if len(beats) == 1:
                raise Unavailable("store", "it is away", retry_after_ms=0)

        monkeypatch.setattr(world.stores, "due", due)
        await world.wake("run_1")
        engine = world.engine(heartbeat=beat)
        await engine.start()
        await hangs.wait()
        seen = len(beats)
        await until(lambda: len(beats) > seen + 2)
        assert (world.drives, beats[0]) == (["run_1"], 0)
        await engine.stop()
        seen = len(beats)
        await a_while()
        assert len(beats) == seen

    play(url, scenario)
