"""A store that finds itself elsewhere commits nothing until it was said, goes on by itself after that, and says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
import pytest

from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS
from contextos.contracts.journal import CONTROL, Advance, Batch, Draft, Write
from contextos.errors import Conflict, StoreRestored, Unavailable
from contextos.store.postgres import stores
from contextos.store.postgres.database_identity import DATABASE_IDENTITY
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.local import EngineLimits, LocalEngine
from tests.postgres import Database
from tests.suites.graph_suite import edge
from tests.suites.store_suite import entries_after, erased

Move = Callable[[str], None]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Move:
    """From now on the database says that it is at another place, as after a restore."""
    return lambda place: monkeypatch.setattr(stores, "DATABASE_IDENTITY", f"SELECT '{place}'")


def line(text: str) -> Batch:
    return Batch(CONTROL, shared=((CONTROL, Draft("runs.exported", text, 1, "me", b"{}", bytes(16))),))


def epoch(version: int, name: str) -> Batch:
    return Batch(
        CONTROL, writes=(Write(*EPOCHS.place(EPOCH_KEY), version, orjson.dumps({"id": name, "at_us": 1, "by": "me"})),)
    )


def test_a_place_is_server_database_and_timeline(database: Database) -> None:
    server, number, timeline = database.execute(DATABASE_IDENTITY)[0][0].split("/")
    assert int(server) > 0
    assert int(number) == database.execute("SELECT oid FROM pg_database WHERE datname = current_database()")[0][0]
    assert int(timeline, 16) >= 1
    other = database.server.database()
    assert other.execute(DATABASE_IDENTITY, other.app)[0][0] != database.execute(DATABASE_IDENTITY, database.app)[0][0]
    other.drop()


@pytest.mark.requirement("J-ELSEWHERE")
def test_each_tenant_waits_for_its_own_epoch_and_no_other(database: Database, moves: Move) -> None:
    async def go() -> None:
        first = PostgresStores(database.app)
        for tenant in ("a", "b"):
            await first.tenant(tenant).commit(line("before"))
        await first.aclose()
        moves("elsewhere")
        stores = PostgresStores(database.app)
        for _ in range(2):
            with pytest.raises(StoreRestored, match="run `contextos store restored --by WHO`"):
                await stores.tenant("a").commit(line("refused"))
        with pytest.raises(StoreRestored):
            await stores.tenant("a").commit(Batch(CONTROL, writes=(Write(*EPOCHS.place(EPOCH_KEY), 0, None),)))
        await stores.tenant("new").commit(line("no tenant of before"))
        with pytest.raises(Conflict):
            await stores.tenant("a").commit(epoch(7, "wrong"))
        with pytest.raises(StoreRestored):
            await stores.tenant("a").commit(line("a lost write began no epoch"))
        await stores.tenant("a").commit(epoch(0, "e1"))
        await stores.tenant("a").commit(line("after"))
        with pytest.raises(StoreRestored):
            await stores.tenant("b").commit(line("refused"))
        assert [one.key for one in await stores.tenant("a").read(CONTROL)] == ["before", "after"]
        assert [one.key for one in await stores.tenant("b").read(CONTROL)] == ["before"]
        await stores.aclose()

    asyncio.run(go())


def test_writes_of_many_tenants_take_no_memory_and_an_evicted_tenant_is_checked_again(
    database: Database, moves: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_CONFIRMED_TENANTS", 4)

    async def go() -> None:
        stores = PostgresStores(database.app)
        for number in range(9):
            await stores.tenant(f"t{number}").commit(line("before"))
            assert len(stores.confirmed_tenants) <= 4
        await stores.tenant("t0").commit(line("again"))
        await stores.aclose()
        moves("elsewhere")
        stores = PostgresStores(database.app)
        for number in range(9):
            with pytest.raises(StoreRestored):
                await stores.tenant(f"t{number}").commit(line("refused"))
        await stores.aclose()

    asyncio.run(go())


@pytest.mark.requirement("J-ELSEWHERE")
def test_the_graph_and_the_journal_cannot_change_until_the_restore_is_recorded(database: Database, moves: Move) -> None:
    async def go() -> None:
        first = PostgresStores(database.eraser)
        await first.graph("a").put([], [edge("x", "y", "e1")])
        await first.tenant("a").commit(line("before"))
        await first.tenant("a").commit(Batch("run_before", entries_after("a", "run_before", [], 1)))
        moves("elsewhere")
        # One that ran over the restore, on a connection for reading that it has already, and one that starts on it.
        for each in (first, PostgresStores(database.eraser)):
            with pytest.raises(StoreRestored, match="run `contextos store restored --by WHO`"):
                await each.graph("a").put([], [{"retracts": "e1", "evidence_ref": "artifact:a#2"}])
            with pytest.raises(StoreRestored):
                await each.erase("a", "run_before", 1, erased("run_before", 1))
            assert await each.graph("a").head() == 1
            (entry,) = await each.tenant("a").read(CONTROL)
            assert entry.body == b"{}"
        await each.tenant("a").commit(epoch(0, "e1"))
        await first.graph("a").put([], [{"retracts": "e1", "evidence_ref": "artifact:a#2"}])
        await each.erase("a", "run_before", 1, erased("run_before", 1))
        for later in (first, each):
            await later.aclose()

    asyncio.run(go())


def test_a_tenant_with_a_graph_alone_has_a_database_identity(database: Database, moves: Move) -> None:
    async def go() -> None:
        stores = PostgresStores(database.app)
        await stores.graph("a").put([], [edge("x", "y", "e1")])
        moves("elsewhere")
        with pytest.raises(StoreRestored):
            await stores.graph("a").put([], [edge("x", "z", "e2")])
        await stores.aclose()

    asyncio.run(go())


def test_an_epoch_from_the_backup_does_not_count_as_the_restores(database: Database, moves: Move) -> None:
    async def go() -> None:
        for place, version in (("one", 0), ("two", 1), ("three", 2)):
            moves(place)
            stores = PostgresStores(database.app)
            if version:
                with pytest.raises(StoreRestored):
                    await stores.tenant("a").commit(line("refused"))
            await stores.tenant("a").commit(epoch(version, place))
            await stores.tenant("a").commit(line(place))
            await stores.aclose()

    asyncio.run(go())


def test_a_server_that_was_replaced_under_a_running_process_is_noticed_at_the_next_connection(
    database: Database, moves: Move
) -> None:
    async def go() -> None:
        stores = PostgresStores(database.app)
        await stores.tenant("a").commit(line("before"))
        moves("elsewhere")
        await stores.tenant("a").commit(line("the same connection"))
        await asyncio.to_thread(
            database.execute,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()",
        )
        for _ in range(3):
            try:
                await stores.tenant("a").commit(line("refused"))
            except StoreRestored:
                break
            except Unavailable:
                continue
            raise AssertionError("it went on elsewhere")
        await stores.tenant("a").commit(epoch(0, "e1"))
        await stores.tenant("a").commit(line("after"))
        keys = [one.key for one in await stores.tenant("a").read(CONTROL)]
        assert keys == ["before", "the same connection", "after"]
        await stores.aclose()

    asyncio.run(go())


def test_an_engine_makes_no_dead_letters_meanwhile_and_continues_by_itself(database: Database, moves: Move) -> None:
    async def go() -> None:
        first = PostgresStores(database.app)
        await first.tenant("a").commit(Batch("run_a", wake_at_us=5))
        await first.aclose()
        moves("elsewhere")
        stores = PostgresStores(database.app)
        refused, done = asyncio.Event(), asyncio.Event()

        async def advance(tenant: str, run: str) -> Advance:
            try:
                await stores.tenant(tenant).commit(Batch(run, wake_at_us=0))
            except StoreRestored as error:
                error.retry_after_ms = 1
                refused.set()
                raise
            done.set()
            return Advance("completed", None)

        engine = LocalEngine(advance, stores, SystemClock(), limits=EngineLimits(sweep_interval_ms=20))
        await engine.start()
        await refused.wait()
        assert await stores.tenant("a").scan("dead_letters") == []
        await stores.tenant("a").commit(epoch(0, "e1"))
        await done.wait()
        assert engine.failures == {}
        await engine.stop()
        await stores.aclose()

    asyncio.run(asyncio.wait_for(go(), 30))
