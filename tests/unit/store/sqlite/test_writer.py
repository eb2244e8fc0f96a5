"""Every operation of SQLite can fail, and each failure is reported to the callers that it affects and to no other."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.journal import INDEX, Batch, Write
from contextos.errors import Conflict, Integrity, InvalidSettings, Unavailable
from contextos.store.sqlite import writer
from contextos.store.sqlite.database import connect_sqlite
from contextos.store.sqlite.stores import SqliteStores
from tests.suites.store_suite import draft, entries_after, verify


class Plan:
    """Which operation fails next, and whether it fails before or after it took effect. 0: none."""

    def __init__(self) -> None:
        self.countdown = self.commits_to_skip = 0
        self.after = False
        self.failed = ""
        self.done: list[str] = []

    def around(self, name: str, operation: Callable[[], Any]) -> Any:
        if self.commits_to_skip:
            self.commits_to_skip -= name == "COMMIT"
        elif self.countdown:
            self.countdown -= 1
            if self.countdown == 0:
                self.failed = name
                if self.after:
                    operation()
                raise sqlite3.OperationalError("disk I/O error")
        self.done.append(name)
        return operation()

    def connector(self, path: Path) -> sqlite3.Connection:
        plan = self

        class Faulty(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                return plan.around(sql, lambda: super(Faulty, self).execute(sql, *values))

            def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
                return plan.around(sql, lambda: super(Faulty, self).executemany(sql, *values))

        return self.around(
            "connect",
            lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0, factory=Faulty),
        )


def batch(run: str, key: str) -> Batch:
    return Batch(
        run,
        entries_after("acme", run, [], 20),
        (Write("keys", key, 0, run.encode()),),
        ((INDEX, draft(run)),),
        wake_at_us=9,
        signature=("kid", "aa"),
    )


BATCHES = (batch("run_1", "one"), batch("run_2", "two"), batch("run_3", "one"))
"""The third claims a key that the first has claimed in the same group."""


@asynccontextmanager
async def held_up(stores: SqliteStores, fault: BaseException | None = None) -> AsyncIterator[asyncio.Future[Any]]:
    """What is committed inside gathers behind one act, which ends (with `fault`) on the way out."""
    started, released = threading.Event(), threading.Event()

    def act(connection: sqlite3.Connection) -> None:
        started.set()
        released.wait()
        if fault is not None:
            raise fault

    held = asyncio.ensure_future(stores._writer.run(act))
    await asyncio.to_thread(started.wait)
    yield held
    await asyncio.sleep(0)
    released.set()


async def as_one_group(stores: SqliteStores, batches: tuple[Batch, ...]) -> list[str]:
    """Commit `batches` in one transaction."""
    store = stores.tenant("acme")
    async with held_up(stores) as held:
        waiting = [asyncio.ensure_future(store.commit(one)) for one in batches]
    done = await asyncio.gather(held, *waiting, return_exceptions=True)
    return [type(result).__name__ if isinstance(result, BaseException) else "ok" for result in done[1:]]


def lengths(stores: SqliteStores) -> list[int]:
    store = stores.tenant("acme")
    return [len(asyncio.run(store.read(one.run))) for one in BATCHES]


@pytest.mark.requirement("J-ATOMIC", "J-GROUP")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_any_failing_operation_takes_down_its_whole_group_and_only_that(tmp_path: Path, after: bool) -> None:
    """The Nth operation fails, for every N until none is left to fail. A failed COMMIT is one of them."""
    plan, nth, failed = Plan(), 0, []
    while True:
        nth += 1
        stores = SqliteStores(tmp_path / f"{nth}.db", connector=plan.connector)
        # The first transaction is the one that holds the writer up.
        plan.countdown, plan.after, plan.failed, plan.commits_to_skip = nth, after, "", 1
        outcomes = asyncio.run(as_one_group(stores, BATCHES))
        plan.countdown = 0
        if not plan.failed:
            assert outcomes == ["ok", "ok", "Conflict"]
            stores.close()
            break
        failed.append(plan.failed)
        if plan.failed == "BEGIN IMMEDIATE":
            # The group gathers once the lock is held; so the others were not in it, and nobody claimed the key before.
            assert (outcomes, lengths(stores)) == (["Unavailable", "ok", "ok"], [0, 20, 20])
            stores.close()
            continue
        assert outcomes == ["Unavailable"] * 3
        assert lengths(stores) == ([20, 20, 0] if after and plan.failed == "COMMIT" else [0, 0, 0])
        asyncio.run(_finish(stores))
        assert lengths(stores) == [20, 20, 0], "the writer works again as soon as the fault is over"
        index = list(asyncio.run(stores.tenant("acme").read(INDEX)))
        verify("acme", INDEX, index)
        assert len(index) == 2
        stores.close()
    assert {"BEGIN IMMEDIATE", "COMMIT", "SAVEPOINT caller", "ROLLBACK TO caller"} <= set(failed)
    assert any(sql.startswith("INSERT INTO segments") for sql in failed)


async def _finish(stores: SqliteStores) -> None:
    """What a caller does after `Unavailable`: read again, and commit what is not there."""
    store = stores.tenant("acme")
    for one in BATCHES[:2]:
        if not await store.read(one.run):
            await store.commit(one)
    with pytest.raises(Conflict):
        await store.commit(BATCHES[2])


def test_a_caller_alone_hears_of_any_failing_operation_even_of_the_connection(tmp_path: Path) -> None:
    plan, nth, failed = Plan(), 0, []
    while True:
        nth += 1
        stores = SqliteStores(tmp_path / f"{nth}.db", connector=plan.connector)
        plan.countdown, plan.failed = nth, ""
        try:
            asyncio.run(stores.tenant("acme").commit(BATCHES[0]))
        except Unavailable:
            plan.countdown = 0
            failed.append(plan.failed)
            assert lengths(stores) == [0, 0, 0]
            stores.close()
            continue
        plan.countdown = 0
        assert lengths(stores) == [20, 0, 0]
        stores.close()
        break
    assert failed[0] == "connect"
    assert failed[-1] == "COMMIT"


def test_a_failing_read_is_unavailable_and_the_next_one_works(tmp_path: Path) -> None:
    plan = Plan()
    stores = SqliteStores(tmp_path / "store.db", connector=plan.connector)
    store = stores.tenant("acme")
    asyncio.run(store.commit(BATCHES[0]))
    nth = 0
    while True:
        nth += 1
        plan.countdown, plan.failed = nth, ""
        try:
            found = asyncio.run(store.scan("keys"))
        except Unavailable:
            assert plan.failed
            continue
        assert len(found) == 1
        break
    assert nth >= 2
    stores.close()


def test_a_read_that_is_refused_by_python_leaves_no_connection_behind(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    with pytest.raises(UnicodeEncodeError):
        asyncio.run(stores.tenant("acme").read("\ud800"))
    assert len(stores._readers.idle) == 0, "it is closed, since it can be within a transaction"
    with stores._readers.connection() as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM documents")
    stores.close()


def test_a_fault_while_opening_is_a_setting_that_cannot_start(tmp_path: Path) -> None:
    plan, nth = Plan(), 0
    while True:
        nth += 1
        plan.countdown, plan.failed = nth, ""
        try:
            stores = SqliteStores(tmp_path / "store.db", connector=plan.connector)
        except InvalidSettings as refused:
            assert "cannot be used" in str(refused)
            continue
        plan.countdown = 0
        break
    assert nth > 5
    assert asyncio.run(as_one_group(stores, BATCHES)) == ["ok", "ok", "Conflict"]
    stores.close()


def test_a_full_disk_is_unavailable_until_there_is_room(tmp_path: Path) -> None:
    limit = {"pages": 240}

    def connector(path: Path) -> sqlite3.Connection:
        connection = connect_sqlite(path)
        connection.execute(f"PRAGMA max_page_count = {limit['pages']}")
        return connection

    stores = SqliteStores(tmp_path / "store.db", connector=connector)
    store = stores.tenant("acme")
    large = Batch("run_a", writes=(Write("keys", "large", 0, b"x" * 500_000),))
    with pytest.raises(Unavailable, match="full"):
        asyncio.run(store.commit(large))
    asyncio.run(store.commit(BATCHES[0]))
    limit["pages"] = 10_000
    with pytest.raises(Unavailable, match="full"):
        asyncio.run(store.commit(large))
    asyncio.run(store.commit(large))
    assert {document.key for document in asyncio.run(store.scan("keys"))} == {"one", "large"}
    stores.close()


def test_a_lock_that_is_held_too_long_is_unavailable_and_then_over(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db", busy_timeout_ms=20)
    with closing(connect_sqlite(tmp_path / "store.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            asyncio.run(stores.tenant("acme").commit(BATCHES[0]))
        other.execute("ROLLBACK")
    asyncio.run(stores.tenant("acme").commit(BATCHES[0]))
    stores.close()


def test_a_damaged_file_is_an_integrity_fault_for_readers_and_writers(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    stores = SqliteStores(path)
    asyncio.run(stores.tenant("acme").commit(BATCHES[0]))
    stores.close()
    with closing(connect_sqlite(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'segments'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    stores = SqliteStores(path)
    with pytest.raises(Integrity, match="restore a backup"):
        asyncio.run(stores.tenant("acme").read("run_1"))
    with pytest.raises(Integrity, match="restore a backup"):
        asyncio.run(stores.tenant("acme").commit(BATCHES[1]))
    stores.close()


def test_more_waiting_commits_than_the_limit_are_refused_at_once(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db", queue_limit=2)

    async def crowd() -> list[str]:
        return await as_one_group(stores, (*BATCHES, *BATCHES))

    assert asyncio.run(crowd()) == ["ok", "ok", *["Unavailable"] * 4]
    asyncio.run(stores.tenant("acme").commit(Batch("run_9", wake_at_us=1)))
    stores.close()


@pytest.mark.requirement("J-GROUP")
def test_a_bug_in_one_act_reaches_its_caller_and_undoes_only_that_act(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")

    def act(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO runs (tenant, run, wake_at_us) VALUES ('acme', 'half', 1)")
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        asyncio.run(stores._writer.run(act))
    asyncio.run(stores.tenant("acme").commit(BATCHES[0]))

    async def due() -> list[tuple[str, str]]:
        return [run async for run in stores.due(100)]

    assert asyncio.run(due()) == [("acme", "run_1")]
    stores.close()


def test_closing_finishes_queued_batches(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")

    async def close_in_between() -> None:
        async with held_up(stores) as held:
            waiting = [asyncio.ensure_future(stores.tenant("acme").commit(one)) for one in BATCHES[:2]]
            await asyncio.sleep(0)
            closed = asyncio.ensure_future(asyncio.to_thread(stores.close))
            while not stores._writer._closed:  # noqa: ASYNC110 - another thread closes it
                await asyncio.sleep(0.001)
        await asyncio.gather(held, *waiting, closed)

    asyncio.run(close_in_between())
    stores = SqliteStores(tmp_path / "store.db")
    assert lengths(stores) == [20, 20, 0]
    stores.close()


def test_a_group_has_a_bound_and_the_rest_is_the_next_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SQLITE_GROUP_LIMIT", 2)
    plan = Plan()
    stores = SqliteStores(tmp_path / "store.db", connector=plan.connector)
    plan.done.clear()
    batches = tuple(batch(f"run_{number}", f"key_{number}") for number in range(7))
    assert asyncio.run(as_one_group(stores, batches)) == ["ok"] * 7
    assert plan.done.count("COMMIT") == 1 + 4
    stores.close()


def test_a_caller_that_goes_away_while_its_group_gathers_hinders_nobody(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")

    async def leave() -> None:
        async with held_up(stores) as held:
            first, second = (asyncio.ensure_future(stores.tenant("acme").commit(one)) for one in BATCHES[:2])
            await asyncio.sleep(0)
            first.cancel()
        await asyncio.gather(held, second)
        assert first.cancelled()

    asyncio.run(leave())
    assert lengths(stores)[1] == 20
    stores.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_dies_leaves_nobody_waiting(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")

    async def crowd() -> list[Any]:
        async with held_up(stores, SystemExit()) as fatal:
            waiting = [asyncio.ensure_future(stores.tenant("acme").commit(one)) for one in BATCHES]
        return await asyncio.gather(fatal, *waiting, return_exceptions=True)

    for fault in asyncio.run(crowd()):
        assert isinstance(fault, Unavailable)
        assert "writer has stopped" in str(fault)
    assert lengths(stores) == [0, 0, 0]
    with pytest.raises(Unavailable, match="closed"):
        asyncio.run(stores.tenant("acme").commit(BATCHES[0]))
    stores.close()
