"""A server that crashes, hangs or refuses is a typed error; what was acknowledged stays; work goes on afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterator
from typing import Any

import asyncpg
import pytest

from contextos.contracts.journal import INDEX, Batch, Write
from contextos.errors import Conflict, ContextOSError, Integrity, InvalidInput, Unavailable
from contextos.store.postgres import connections, writer
from contextos.store.postgres import stores as postgres_stores
from contextos.store.postgres.commit_calls import Job, lock_keys
from contextos.store.postgres.connections import FAULTS, Connections, connect_postgres, postgres_error
from contextos.store.postgres.refusals import MAX_BATCH_WRITES
from contextos.store.postgres.stores import PostgresStores
from contextos.store.postgres.writer import GroupWriter
from tests.postgres import Database, Server, awaited, own_server
from tests.suites.store_suite import draft, entries_after, erased, verify


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """A server that tests may crash."""
    with own_server() as server:
        yield server


async def until_more(seen: Collection[str]) -> None:
    before = len(seen)
    while len(seen) == before:  # noqa: ASYNC110 - the writers see it
        await asyncio.sleep(0.01)


def batch(run: str, key: str | None = None, **more: Any) -> Batch:
    writes = (Write("keys", key or run, 0, run.encode()),)
    return Batch(run, entries_after("acme", run, [], 3), writes, ((INDEX, draft(run)),), wake_at_us=9, **more)


def test_acknowledged_commits_survive_a_crash_and_the_store_works_again(mortal: Server) -> None:
    """The server crashes three times under load; every commit that returned is whole, every other typed."""
    database = mortal.database()
    acknowledged: set[str] = set()
    refused: list[str] = []

    async def writer(stores: PostgresStores, number: int, stop: asyncio.Event) -> None:
        count = 0
        while not stop.is_set():
            run = f"run_{number}_{count}"
            count += 1
            try:
                await stores.tenant("acme").commit(batch(run))
                acknowledged.add(run)
            except Unavailable as lost:
                refused.append(run)
                assert lost.retry_after_ms > 0
                await asyncio.sleep(0.01)

    async def reader(stores: PostgresStores, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await stores.tenant("acme").scan("keys", limit=5)
            except Unavailable:
                await asyncio.sleep(0.01)

    async def history() -> None:
        stores, stop = await PostgresStores.open(database.app), asyncio.Event()
        work = [asyncio.ensure_future(writer(stores, number, stop)) for number in range(8)]
        work += [asyncio.ensure_future(reader(stores, stop)) for _ in range(3)]
        async with asyncio.timeout(120):
            for _ in range(3):
                await until_more(acknowledged)
                await asyncio.to_thread(mortal.crash)
                await until_more(refused)
                await asyncio.to_thread(mortal.start)
            await until_more(acknowledged)
        stop.set()
        await asyncio.gather(*work)
        await whole(stores)
        await stores.aclose()

    async def whole(stores: PostgresStores) -> None:
        """Every run is there whole or not at all, and everything acknowledged is there."""
        store = stores.tenant("acme")
        index = list(await store.read(INDEX))
        verify("acme", INDEX, index)
        listed = {entry.body.decode().strip('"') for entry in index}
        keys = {document.key for document in await store.scan("keys", limit=100_000)}
        assert acknowledged <= listed == keys <= acknowledged | set(refused)
        for run in sorted(listed)[::7]:
            assert len(await store.read(run)) == 3
        for run in refused:
            assert len(await store.read(run)) == (3 if run in listed else 0)

    awaited(history())
    database.drop()


def test_while_the_server_is_away_every_method_is_unavailable_and_afterwards_none_is(mortal: Server) -> None:
    database = mortal.database()

    async def calls(stores: PostgresStores, number: int) -> list[str]:
        store, graph = stores.tenant("acme"), stores.graph("acme")

        async def due() -> list[Any]:
            return [one async for one in stores.due(9)]

        outcomes = []
        for call in (
            store.commit(batch(f"run_{number}")),
            store.read("run_a"),
            store.scan("keys"),
            store.read_run("run_a"),
            due(),
            stores.erase("acme", f"run_{number}", 1, erased(f"run_{number}", 1)),
            graph.head(),
            graph.put([], []),
            graph.neighbourhood(["a"], at=1, hops=1, fan_out=1, limit=1),
            graph.nodes(["a"], at=1),
        ):
            try:
                await call
                outcomes.append("ok")
            except ContextOSError as error:
                outcomes.append(type(error).__name__)
        return outcomes

    async def history() -> None:
        stores = await PostgresStores.open(database.eraser)
        assert await calls(stores, 1) == ["ok"] * 10
        await asyncio.to_thread(mortal.crash)
        assert await calls(stores, 2) == ["Unavailable"] * 10
        await asyncio.to_thread(mortal.start)
        assert await calls(stores, 3) == ["ok"] * 10
        await stores.aclose()

    awaited(history())
    database.drop()


async def gathered(stores: PostgresStores, batches: list[Batch]) -> list[str]:
    """Commit `batches` at once, so that all but the first are in one group."""
    store = stores.tenant("acme")
    first = asyncio.ensure_future(store.commit(Batch("run_first", wake_at_us=1)))
    await asyncio.sleep(0)
    done = await asyncio.gather(first, *(store.commit(one) for one in batches), return_exceptions=True)
    return [type(one).__name__ if isinstance(one, BaseException) else "ok" for one in done[1:]]


class Counting:
    """A connection that counts, or fails, what is executed on it."""

    def __init__(self, real: Any, fail_at: int, fault: BaseException) -> None:
        self.real, self.left, self.fault = real, fail_at, fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name not in ("execute", "fetch", "fetchval", "fetchmany"):
            return found

        async def counted(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.real.terminate()
                raise self.fault
            return await found(*arguments)

        return counted


@pytest.mark.parametrize(
    "fault",
    [
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.DiskFullError("could not extend file"),
        asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT in a read-only transaction"),
        asyncpg.AdminShutdownError("terminating connection due to administrator command"),
        asyncpg.InternalClientError("got result for unknown protocol state 3"),
        ConnectionResetError("reset"),
        TimeoutError(),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_any_failing_operation_takes_down_its_whole_group_and_only_that(
    database: Database, fault: BaseException
) -> None:
    """The Nth operation of a group fails, for every N until none is left to fail."""

    async def history() -> None:
        batches, nth, failures = [], 0, 0
        while True:
            nth += 1
            stores = PostgresStores(database.app)
            # Where it is was looked up before anything is counted.
            assert await stores._check_identity("acme")
            # The first commit of the store is alone in its group, and one call.
            plan = [Counting(await connect_postgres(database.app), nth + 1, fault)]

            async def opened(plan: list[Any] = plan) -> Any:
                return plan.pop() if plan else await connect_postgres(database.app)

            stores.for_loop().writer._connect = opened
            names = [f"run_{nth}_{number}" for number in range(3)]
            batches = [batch(names[0], f"key_{nth}"), batch(names[1]), batch(names[2], f"key_{nth}")]
            outcomes = await gathered(stores, batches)
            lengths = [len(await stores.tenant("acme").read(name)) for name in names]
            if outcomes[0] == "ok":
                assert (outcomes, lengths) == (["ok", "ok", "Conflict"], [3, 3, 0])
                break
            failures += 1
            assert (outcomes, lengths) == (["Unavailable"] * 3, [0, 0, 0])
            assert await gathered(stores, batches) == ["ok", "ok", "Conflict"], (
                "the next group is on a fresh connection"
            )
            await stores.aclose()
        await stores.aclose()
        assert failures == 2, "the batches together, and then each alone because two of them cannot stand together"

    awaited(history())


def test_a_batch_that_the_server_refuses_undoes_nobody_elses(database: Database) -> None:
    """It was not foreseen, so the group fails; then each is committed alone and only the guilty one hears of it."""
    wrong = Batch("run_wrong", tuple(entry._replace(v=2**40) for entry in entries_after("acme", "run_wrong", [], 1)))
    broken = Batch("run_broken", (entries_after("acme", "run_broken", [], 1)[0]._replace(at_us="soon"),))

    async def history() -> None:
        stores = PostgresStores(database.app)
        outcomes = await gathered(stores, [batch("run_1"), wrong, batch("run_2"), broken, batch("run_3")])
        assert outcomes == ["ok", "InvalidInput", "ok", "InvalidInput", "ok"]
        assert [len(await stores.tenant("acme").read(run)) for run in ("run_1", "run_2", "run_3")] == [3, 3, 3]
        await stores.aclose()

    awaited(history())


def test_a_key_that_no_index_holds_is_refused_alone_also_if_only_the_server_notices(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = random.Random(7).randbytes(9_000).hex()

    async def history() -> None:
        stores = PostgresStores(database.app)
        outcomes = await gathered(stores, [batch("run_1"), batch("run_2", endless), batch("run_3")])
        assert outcomes == ["ok", "InvalidInput", "ok"]
        monkeypatch.setattr(postgres_stores, "refuse_misfit", lambda *_: None)
        outcomes = await gathered(stores, [batch("run_4"), batch("run_5", endless), batch("run_6")])
        assert outcomes == ["ok", "InvalidInput", "ok"]
        await stores.aclose()

    awaited(history())


def test_a_group_that_the_server_rolled_back_for_anothers_sake_is_done_again(database: Database) -> None:
    async def history(times: int) -> list[str]:
        stores = PostgresStores(database.app)
        left = [times]

        async def opened() -> Any:
            left[0] -= 1
            real = await connect_postgres(database.app)
            return Counting(real, 1, asyncpg.DeadlockDetectedError("deadlock detected")) if left[0] >= 0 else real

        stores.for_loop().writer._connect = opened
        outcomes = await gathered(stores, [])
        try:
            await stores.tenant("acme").commit(Batch(f"run_{times}", wake_at_us=1))
            outcomes.append("ok")
        except Unavailable as late:
            assert late.retry_after_ms == 100
            outcomes.append("Unavailable")
        await stores.aclose()
        return outcomes

    assert awaited(history(3)) == ["ok"]
    attempts = writer.ATTEMPTS
    assert awaited(history(2 * attempts)) == ["Unavailable"]


@pytest.mark.parametrize(
    ("fault", "others"),
    [(asyncpg.DeadlockDetectedError("deadlock detected"), "ok"), (ConnectionResetError("reset"), "Unavailable")],
)
def test_a_tenants_commit_is_kept_when_the_next_transaction_of_the_group_fails(
    database: Database, fault: BaseException, others: str
) -> None:
    """One tenant's callers cannot be in one group, so they go alone, after the other tenant's are done."""

    async def history() -> None:
        stores = PostgresStores(database.app)
        connections = [Counting(await connect_postgres(database.app), 3, fault)]

        async def opened() -> Any:
            return connections.pop() if connections else await connect_postgres(database.app)

        stores.for_loop().writer._connect = opened
        acme, other = stores.tenant("acme"), stores.tenant("other")
        for tenant in ("acme", "other"):
            assert await stores._check_identity(tenant)
        there = Batch("run_a", entries_after("other", "run_a", [], 3))
        first = asyncio.ensure_future(acme.commit(Batch("run_first", wake_at_us=1)))
        await asyncio.sleep(0)
        done = await asyncio.gather(
            first,
            acme.commit(batch("run_1", "one")),
            other.commit(there),
            acme.commit(batch("run_2", "one")),
            return_exceptions=True,
        )
        results = [type(one).__name__ if isinstance(one, BaseException) else "ok" for one in done[1:]]
        assert results == [others, "ok", "Conflict" if others == "ok" else others]
        assert len(await other.read("run_a")) == 3
        await stores.aclose()

    awaited(history())


def test_a_full_queue_refuses_with_a_retry_time_and_queued_batches_are_committed(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app, queue_limit=4)
        done = await asyncio.gather(
            *(stores.tenant("acme").commit(batch(f"run_{number}")) for number in range(10)), return_exceptions=True
        )
        refused = [one for one in done if isinstance(one, Unavailable)]
        assert done.count(None) == 4
        assert len(refused) == 6
        assert {one.retry_after_ms for one in refused} == {100}
        await stores.aclose()

    awaited(history())


def test_more_readers_than_may_wait_are_refused_at_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_WAITING", 2)

    async def history() -> None:
        connections = Connections(database.app, limit=1)

        async def read() -> int:
            async with connections.connection() as connection:
                await asyncio.sleep(0.01)
                return int(await connection.fetchval("SELECT 1"))

        async with connections.connection():
            reads = [asyncio.ensure_future(read()) for _ in range(5)]
            await asyncio.wait(reads, return_when=asyncio.FIRST_EXCEPTION)
        done = await asyncio.gather(*reads, return_exceptions=True)
        assert done[:2] == [1, 1]
        assert {type(one) for one in done[2:]} == {Unavailable}
        await connections.close()

    awaited(history())


def test_connections_are_bounded_and_a_caller_that_waits_too_long_gets_an_error(database: Database) -> None:
    async def history() -> None:
        connections = Connections(database.app, limit=2, wait_timeout_s=0.05)
        async with connections.connection(), connections.connection():
            with pytest.raises(Unavailable, match="its 2 connections are all in use"):
                async with connections.connection():
                    pass
        async with connections.connection() as again:
            assert await again.fetchval("SELECT 1") == 1
        await connections.close()

    awaited(history())


def test_a_process_that_hangs_inside_a_transaction_holds_up_nobody_for_long(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        await stores.tenant("acme").commit(batch("run_a"))
        held = await connect_postgres(database.app)
        await held.execute("SET idle_in_transaction_session_timeout = '200ms'")
        await held.execute("BEGIN")
        await held.execute("SELECT set_config('contextos.tenant', 'acme', true)")
        await held.execute("UPDATE contextos.documents SET version = version + 1, body = 'held' WHERE key = 'run_a'")
        write = Write("keys", "run_a", 1, b"next")
        await asyncio.wait_for(stores.tenant("acme").commit(Batch("run_a", writes=(write,))), 60)
        with pytest.raises(FAULTS):
            await held.execute("COMMIT")
        held.terminate()
        await stores.aclose()

    awaited(history())


def test_what_another_session_keeps_locked_holds_up_its_own_callers_and_nobody_else(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        await asyncio.gather(store.commit(batch("run_a")), store.commit(batch("run_b")))
        held = await connect_postgres(database.app)
        await held.execute("BEGIN")
        await held.execute("SELECT set_config('contextos.tenant', 'acme', true)")
        await held.execute("UPDATE contextos.documents SET version = version + 1, body = 'held' WHERE key = 'run_a'")
        # It has the tenant's index locked whenever it tries, and the others need that too.
        held_up = Batch("run_a", writes=(Write("keys", "run_a", 1, b"next"),), shared=((INDEX, draft()),))
        waits = asyncio.ensure_future(store.commit(held_up))
        await asyncio.gather(
            store.commit(Batch("run_b", writes=(Write("keys", "run_b", 1, b"next"),))), store.commit(batch("run_c"))
        )
        await store.commit(batch("run_d"))
        assert not waits.done(), "it waits while those that came with it and after it are done"
        await held.execute("ROLLBACK")
        await waits
        assert [document.version for document in await store.scan("keys", prefix="run_a")] == [2]
        await held.close()
        await stores.aclose()

    awaited(history())


def test_batches_with_many_locks_are_grouped_within_the_servers_limit(database: Database) -> None:
    """Together they would lock 40,000 names, and the table of locks of the server has room for less than half."""

    def wide(run: int) -> Batch:
        absent = tuple(Write("keys", f"{run}/{number}", 0, None) for number in range(MAX_BATCH_WRITES))
        return Batch(f"run_{run}", writes=absent)

    async def history() -> None:
        stores = PostgresStores(database.app)
        assert await gathered(stores, [wide(run) for run in range(40)]) == ["ok"] * 40
        await stores.aclose()

    awaited(history())


def test_who_writes_a_document_waits_for_who_looks_at_it_and_who_looks_does_not(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        looks = Batch("run_a", writes=(Write("keys", "k", 0, None),))
        (looked,) = (place for place in lock_keys([Job("acme", looks, 0, asyncio.Future())]) if place % 2 == 0)
        held = await connect_postgres(database.app)
        await held.execute("BEGIN")
        await held.execute("SELECT pg_advisory_xact_lock_shared($1)", looked >> 1)
        writes = asyncio.ensure_future(store.commit(Batch("run_b", writes=(Write("keys", "k", 0, b"v"),))))
        await store.commit(looks)
        assert not writes.done(), "what the other session looked for stays absent until that session has ended"
        await held.execute("ROLLBACK")
        await writes
        await held.close()
        await stores.aclose()

    awaited(history())


def test_a_batch_larger_than_one_message_is_refused_alone(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BATCH_BYTES", 1000)

    async def history() -> None:
        stores = PostgresStores(database.app)
        parts = tuple(Write("keys", f"k{number}", 0, b"v" * 600) for number in range(2))
        done = await gathered(stores, [batch("run_a"), Batch("run_b", writes=parts), Batch("run_c", writes=parts[:1])])
        assert done == ["ok", "InvalidInput", "ok"]
        await stores.aclose()

    awaited(history())


def test_a_caller_that_waits_for_a_lock_when_the_store_is_released_gets_an_error(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        await store.commit(batch("run_a"))
        held = await connect_postgres(database.app)
        await held.execute("BEGIN")
        (place,) = lock_keys([Job("acme", Batch("run_a"), 0, asyncio.Future())])
        await held.execute("SELECT pg_advisory_xact_lock($1)", place >> 1)
        waits = asyncio.ensure_future(store.commit(Batch("run_a", wake_at_us=1)))
        await store.commit(batch("run_b"))
        stores.close()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waits, 60)
        await held.close()

    awaited(history())


def test_an_event_loop_that_ends_in_the_middle_leaves_nobody_waiting_and_the_store_usable(database: Database) -> None:
    stores = PostgresStores(database.app)

    left = []

    async def leave() -> None:
        left.append(asyncio.ensure_future(stores.tenant("acme").commit(batch("run_left"))))
        await asyncio.sleep(0)

    async def look() -> int:
        await stores.tenant("acme").commit(batch("run_next"))
        found = len(await stores.tenant("acme").read("run_next"))
        await stores.aclose()
        return found

    asyncio.run(leave())
    assert asyncio.run(look()) == 3


def test_an_immediate_release_answers_callers_in_progress(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        await store.commit(batch("run_a"))
        waiting = [asyncio.ensure_future(store.commit(batch(f"run_{number}"))) for number in range(5)]
        await asyncio.sleep(0.001)
        stores.close()
        done = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
        assert {type(one) for one in done} <= {Unavailable, type(None)}

    awaited(history())


class Door:
    """Connects to a database, and lets nobody have the connection before it is opened."""

    def __init__(self, database: Database) -> None:
        self.database, self.made = database, []
        self.knocked, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> Any:
        self.made.append(await connect_postgres(self.database.app))
        self.knocked.set()
        await self.opened.wait()
        return self.made[-1]


@pytest.mark.parametrize("aside", [False, True], ids=["in a group", "aside"])
def test_letting_go_while_the_writer_connects_commits_nothing_and_leaves_no_connection(
    database: Database, aside: bool
) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        writer, door = stores.for_loop().writer, Door(database)
        await stores.tenant("acme").scan("keys")
        writer._connect = door
        if aside:
            writer._connection = Counting(
                await connect_postgres(database.app), 1, asyncpg.LockNotAvailableError("locked")
            )
            writer._drop_connection = lambda: None
        waits = asyncio.ensure_future(writer.commit("acme", batch("run_a")))
        await door.knocked.wait()
        stores.close()
        door.opened.set()
        with pytest.raises(Unavailable):
            await waits
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert all(one.is_closed() for one in door.made)
        if aside:
            await writer._connection.real.close()
        assert await database.fetch("SELECT FROM contextos.segments") == []

    awaited(history())


def test_who_gives_up_closing_while_the_writer_connects_leaves_no_connection(database: Database) -> None:
    async def history() -> None:
        stores, door = PostgresStores(database.app), Door(database)
        stores.for_loop().writer._connect = door
        waits = asyncio.ensure_future(stores.for_loop().writer.commit("acme", batch("run_a")))
        await door.knocked.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stores.aclose(), 0.01)
        door.opened.set()
        with pytest.raises(Unavailable):
            await waits
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert all(one.is_closed() for one in door.made)

    awaited(history())


def test_a_connection_that_does_not_say_where_it_is_is_not_left_open(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    async def kept(url: str) -> Any:
        made.append(await connect_postgres(url))
        return made[-1]

    async def history() -> None:
        stores = PostgresStores(database.app)
        monkeypatch.setattr(postgres_stores, "connect_postgres", kept)
        monkeypatch.setattr(postgres_stores, "DATABASE_IDENTITY", "SELECT nowhere")
        with pytest.raises(Unavailable):
            await stores.for_loop().writer.commit("acme", batch("run_a"))
        assert [one.is_closed() for one in made] == [True]
        await stores.aclose()

    awaited(history())


def test_closing_while_the_writer_connects_finishes_queued_batches(database: Database) -> None:
    async def history() -> None:
        stores, door = PostgresStores(database.app), Door(database)
        stores.for_loop().writer._connect = door
        waits = asyncio.ensure_future(stores.for_loop().writer.commit("acme", batch("run_a")))
        await door.knocked.wait()
        closing = asyncio.ensure_future(stores.aclose())
        await asyncio.sleep(0)
        door.opened.set()
        await closing
        await waits
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert all(one.is_closed() for one in door.made)

    awaited(history())


@pytest.mark.parametrize(
    ("fault", "means"),
    [
        (asyncpg.DataCorruptedError("page 7"), Integrity),
        (asyncpg.IndexCorruptedError("index"), Integrity),
        (asyncpg.CharacterNotInRepertoireError("0x00"), InvalidInput),
        (asyncpg.ProgramLimitExceededError("index row size"), InvalidInput),
        (asyncpg.DiskFullError("full"), Unavailable),
        (asyncpg.CannotConnectNowError("starting up"), Unavailable),
        (asyncpg.TooManyConnectionsError("too many"), Unavailable),
        (asyncpg.QueryCanceledError("statement timeout"), Unavailable),
        (asyncpg.UndefinedTableError("relation is gone"), Unavailable),
        (asyncpg.InvalidCatalogNameError("database is gone"), Unavailable),
        (TimeoutError(), Unavailable),
        (OSError("no route"), Unavailable),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_every_fault_has_its_typed_error(fault: BaseException, means: type[ContextOSError]) -> None:
    assert type(postgres_error(fault)) is means


def test_a_bug_on_the_way_to_the_server_is_its_callers_and_nobody_elses(database: Database) -> None:
    async def history() -> None:
        writer = GroupWriter(lambda: connect_postgres(database.app), None)
        bug = Batch("run_bug", writes=(Write("keys", "k", 0, b"v"),), shared=((INDEX, draft()._replace(salt=None)),))
        done = await asyncio.gather(
            writer.commit("acme", batch("run_1")),
            writer.commit("acme", bug),
            writer.commit("acme", batch("run_2")),
            return_exceptions=True,
        )
        assert [type(one).__name__ for one in done] == ["NoneType", "TypeError", "NoneType"]
        with pytest.raises(Conflict):
            await writer.commit("acme", batch("run_1"))
        await writer.close()

    awaited(history())
