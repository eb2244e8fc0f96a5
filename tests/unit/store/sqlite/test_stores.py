"""`SqliteStores` passes the suite of the port, and keeps what SQLite alone must keep."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from contextos.contracts.journal import CONTROL, INDEX, Batch, Write
from contextos.errors import Conflict, InvalidSettings, Unavailable
from contextos.store.sqlite import stores as sqlite_stores
from contextos.store.sqlite.stores import PAIRS_AT_ONCE, SQLITE_PAGE_ENTRIES, SqliteStores
from tests.suites.store_suite import (
    SettableClock,
    StoreSuite,
    World,
    draft,
    entries_after,
    erased,
    read_while_it_is_written,
    verify,
)


class TestSqliteStores(StoreSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[World]:
        clock = SettableClock()
        stores = SqliteStores(tmp_path / "store.db", clock=clock)
        with asyncio.Runner() as runner:
            yield World(stores, clock, lambda coroutine: runner.run(_awaited(coroutine)))
        stores.close()


async def _awaited(coroutine):
    return await coroutine


def filled(path: Path) -> None:
    """A store with one run of two entries, two signed heads, two lines of the index and a document."""
    stores = SqliteStores(path)
    entries = entries_after("acme", "run_a", [], 2)
    batch = Batch("run_a", entries, (Write("keys", "k", 0, b"v"),), wake_at_us=5, signature=("kid", "aa"))
    asyncio.run(stores.tenant("acme").commit(batch))
    again = Batch("run_a", shared=((INDEX, draft()), (INDEX, draft())), signature=("other", "bb"))
    asyncio.run(stores.tenant("acme").commit(again))
    stores.close()


def test_a_run_is_read_as_of_one_moment_while_others_write_it(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    asyncio.run(read_while_it_is_written(stores.tenant("acme"), "acme"))
    stores.close()


def test_a_read_that_failed_in_the_middle_leaves_no_old_moment_to_the_next(tmp_path: Path) -> None:
    async def go() -> bytes:
        store = stores.tenant("acme")
        with pytest.raises(UnicodeEncodeError):
            await store.read_run("run_\ud800")
        assert await store.scan("keys")
        await store.commit(Batch("run_b", writes=(Write("keys", "k", 1, b"new"),)))
        (document,) = await store.scan("keys")
        return document.body

    filled(tmp_path / "store.db")
    stores = SqliteStores(tmp_path / "store.db")
    assert asyncio.run(go()) == b"new"
    stores.close()


def test_a_look_finds_what_has_exactly_a_name_and_nothing_of_a_name_that_no_store_keeps(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    store = stores.tenant("acme")
    lines = tuple((CONTROL, draft(key=key)) for key in ("x", "y", "x"))
    asyncio.run(store.commit(Batch("run_a", writes=(Write("keys", "x", 0, b"1"),), shared=lines)))

    def looked(*keys: str, after: int = 0) -> tuple[int, list[int]]:
        places, behind = [("keys", key) for key in keys], [(key, after) for key in keys]
        found = asyncio.run(store.look(places, lines=behind))
        return len(found.documents), [one.seq for one in found.lines]

    others = [f"k{number}" for number in range(4 * PAIRS_AT_ONCE)]
    assert looked("x") == looked("\ud800", "x", "x\udfff") == looked(*others, "x", *others[:5]) == (1, [1, 3])
    assert looked("x", "y", after=1) == (1, [2, 3])
    assert looked("x\0") == looked("\ud800") == looked("") == (0, [])
    with pytest.raises(UnicodeEncodeError):
        asyncio.run(stores.tenant("\ud800").look([("keys", "x")]))
    stores.close()


@pytest.mark.parametrize("asked", ["documents", "lines"])
def test_a_look_of_several_statements_finds_one_state(tmp_path: Path, asked: str) -> None:
    """Another process commits both the first and the last that is asked for, between two statements of the look."""
    last, pending = f"k{2 * PAIRS_AT_ONCE}", list[str]()
    other = SqliteStores(tmp_path / "store.db")
    both = Batch(
        "run_a",
        writes=tuple(Write("keys", key, 0, b"v") for key in ("k0", last)),
        shared=tuple((CONTROL, draft(key=key)) for key in ("k0", last)),
    )

    class Between(sqlite3.Connection):
        def execute(self, statement: str, *more: object) -> sqlite3.Cursor:
            if pending and statement.startswith("SELECT") and pending.pop() == "then":
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asyncio.run, other.tenant("acme").commit(both)).result()
            return super().execute(statement, *more)

    def connector(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, factory=Between, isolation_level=None, check_same_thread=False)

    stores = SqliteStores(tmp_path / "store.db", connector=connector)
    store, keys = stores.tenant("acme"), [f"k{number}" for number in range(2 * PAIRS_AT_ONCE + 1)]

    def found() -> list[str]:
        if asked == "lines":
            return [one.key for one in asyncio.run(store.lines(CONTROL, *keys))]
        return [key for _, key in asyncio.run(store.look([("keys", key) for key in keys])).documents]

    assert found() == []
    pending += ["then", "first"]
    assert found() == []
    assert not pending
    assert found() == ["k0", last]
    stores.close()
    other.close()


TABLES = ("journal", "segments", "heads")
SEGMENT = "tenant, run, seq, entries, v, format, dictionary, head, marks, salts, body, erased"
NEXT = SEGMENT.replace("seq", "seq + entries")
IN_INDEX = SEGMENT.replace("run", "'index'")


@pytest.mark.requirement("J-APPEND-ONLY")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM journal",
        "DELETE FROM segments",
        "DELETE FROM heads",
        "UPDATE heads SET sig = x'cc'",
        "INSERT OR REPLACE INTO heads SELECT tenant, stream, seq, kid, hash, x'cc' FROM heads",
        "INSERT INTO heads SELECT tenant, stream, seq, kid, hash, x'cc' FROM heads",
        "UPDATE journal SET kind = 'run.ended'",
        "UPDATE journal SET body = x'00'",
        "UPDATE OR REPLACE journal SET seq = 1",
        "INSERT OR REPLACE INTO journal VALUES ('acme', 'index', 1, 1, 'k', '', 5, 'b', 'd', 'p', 'h', x'00', x'00')",
        "INSERT INTO journal VALUES ('acme', 'index', 4, 1, 'k', '', 5, 'b', 'd', 'p', 'h', x'00', x'00')",
        "INSERT INTO journal VALUES ('acme', 'run_a', 1, 1, 'k', '', 5, 'b', 'd', 'p', 'h', x'00', x'00')",
        "UPDATE segments SET body = x'00'",
        "UPDATE segments SET salts = zeroblob(32)",
        "UPDATE segments SET erased = '2:'",
        "UPDATE segments SET head = zeroblob(32)",
        "UPDATE segments SET seq = 9",
        "UPDATE OR REPLACE segments SET seq = 1",
        "UPDATE segments SET rowid = 99",
        f"INSERT OR REPLACE INTO segments (rowid, {SEGMENT}) SELECT rowid, {NEXT} FROM segments",
        f"INSERT OR REPLACE INTO segments ({SEGMENT}) SELECT {SEGMENT} FROM segments",
        f"INSERT INTO segments ({SEGMENT}) SELECT {NEXT.replace('seq + entries', 'seq + entries + 1')} FROM segments",
        f"INSERT INTO segments ({SEGMENT}) SELECT {IN_INDEX} FROM segments",
    ],
)
def test_the_file_itself_refuses_to_edit_or_delete_journal_entries(tmp_path: Path, statement: str) -> None:
    filled(tmp_path / "store.db")
    connection = sqlite3.connect(tmp_path / "store.db")
    before = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    assert [connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES] == before
    connection.close()


COLUMNS = {
    "rowid": "rowid + 7",
    "tenant": "'evil'",
    "run": "'run_b'",
    "seq": "seq + 7",
    "entries": "entries + 1",
    "v": "2",
    "format": "2",
    "dictionary": "x''",
    "head": "zeroblob(32)",
    "marks": "zeroblob(4)",
    "erased": "erased || '1:'",
}


def erasing(path: Path, **more: str) -> None:
    """Record that entry 2 is erased, and erase it with other changes of the row."""
    stores = SqliteStores(path)
    asyncio.run(stores.tenant("acme").commit(Batch("run_b", shared=((CONTROL, draft(key="run_a/2")),))))
    stores.close()
    changes = {"salts": "CAST(substr(salts, 1, 16) || zeroblob(16) AS BLOB)", "erased": f"'2:{'0' * 64} '"} | more
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER IF EXISTS journal_append_only")
        connection.execute("UPDATE journal SET kind = 'entry.erased' WHERE run = 'control'")
        connection.execute("UPDATE segments SET " + ", ".join(f"{name} = {value}" for name, value in changes.items()))


@pytest.mark.requirement("J-APPEND-ONLY", "J-ERASE")
@pytest.mark.parametrize("column", COLUMNS)
def test_an_erasure_that_changes_any_other_column_is_refused(tmp_path: Path, column: str) -> None:
    filled(tmp_path / "store.db")
    with pytest.raises(sqlite3.IntegrityError):
        erasing(tmp_path / "store.db", **{column: COLUMNS[column]})
    erasing(tmp_path / "store.db")


@pytest.mark.requirement("J-APPEND-ONLY", "J-ERASE")
@pytest.mark.parametrize(
    ("salts", "erased_entries"),
    [
        ("zeroblob(32)", f"'2:{'0' * 64} '"),
        ("CAST(zeroblob(16) || substr(salts, 17) AS BLOB)", f"'2:{'0' * 64} '"),
        ("salts", f"'2:{'0' * 64} '"),
        ("CAST(zeroblob(16) || substr(salts, 17) AS BLOB)", f"'1:{'0' * 64} '"),
        ("CAST(substr(salts, 1, 16) || zeroblob(16) AS BLOB)", "'2:0 '"),
        ("CAST(substr(salts, 1, 16) || zeroblob(16) AS BLOB)", f"'2:{'0' * 64} 1:{'0' * 64} '"),
        ("CAST(substr(salts, 1, 16) || zeroblob(16) AS BLOB)", "''"),
    ],
    ids=["both", "another", "none", "unrecorded", "short_digest", "two_entries", "unlisted"],
)
def test_an_erasure_empties_the_recorded_salt_and_no_other(tmp_path: Path, salts: str, erased_entries: str) -> None:
    filled(tmp_path / "store.db")
    with pytest.raises(sqlite3.IntegrityError):
        erasing(tmp_path / "store.db", salts=salts, erased=erased_entries)


@pytest.mark.requirement("J-TENANT")
def test_the_tenant_leads_every_unique_index(tmp_path: Path) -> None:
    filled(tmp_path / "store.db")
    connection = sqlite3.connect(tmp_path / "store.db")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = [
        (index, connection.execute(f"PRAGMA index_info('{index}')").fetchone()[2])
        for table in tables
        for _, index, unique, *_ in connection.execute(f"PRAGMA index_list('{table}')").fetchall()
        if unique or index != "runs_due"
    ]
    connection.close()
    assert len(found) >= len(tables) == 15
    assert {column for _, column in found} == {"tenant"}


@pytest.mark.requirement("J-ERASE")
def test_erased_bytes_are_nowhere_in_the_files(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    # Long enough to lie on pages of their own, which are free after the erasure and not used again.
    entries = entries_after("acme", "run_a", [], 3, "secretword" * 2000)

    async def history() -> None:
        await stores.tenant("acme").commit(Batch("run_a", entries))
        for seq in (1, 2, 3):
            await stores.erase("acme", "run_a", seq, erased("run_a", seq))

    asyncio.run(history())
    assert not any(b"secretword" in path.read_bytes() for path in tmp_path.iterdir())
    stores.close()


@pytest.mark.requirement("J-ERASE")
def test_the_packed_text_of_an_erased_body_is_nowhere_in_the_files(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    secret = random.Random(7).randbytes(3000).hex()

    def packed() -> bytes:
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            return bytes(connection.execute("SELECT body FROM segments WHERE run = 'run_a'").fetchone()[0])

    def left(pieces: set[bytes]) -> int:
        files = [path.read_bytes() for path in tmp_path.iterdir()]
        return sum(any(piece in file for file in files) for piece in pieces)

    async def history() -> None:
        store = stores.tenant("acme")
        await store.commit(Batch("run_a", entries_after("acme", "run_a", [], 3, secret)))
        before = packed()
        for seq in (1, 2, 3):
            await stores.erase("acme", "run_a", seq, erased("run_a", seq))
        pieces = {before[at : at + 32] for at in range(200, len(before) - 32, 32)}
        assert len(pieces) > 80
        assert left(pieces) == 0
        await store.commit(Batch("run_b", entries_after("acme", "run_b", [], 3, secret)))
        assert left(pieces) > 40, "the search finds what is there"

    asyncio.run(history())
    stores.close()


def test_commits_are_there_after_reopening(tmp_path: Path) -> None:
    filled(tmp_path / "store.db")
    stores = SqliteStores(tmp_path / "store.db")
    assert len(asyncio.run(stores.tenant("acme").read("run_a"))) == 2
    stores.close()


def test_a_stream_longer_than_a_page_is_read_whole(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    length = 2 * SQLITE_PAGE_ENTRIES + 3
    asyncio.run(stores.tenant("acme").commit(Batch("run_a", entries_after("acme", "run_a", [], length))))
    read = asyncio.run(stores.tenant("acme").read("run_a"))
    verify("acme", "run_a", list(read))
    assert len(read) == length
    assert (
        len(asyncio.run(stores.tenant("acme").read("run_a", after=5, limit=SQLITE_PAGE_ENTRIES + 1)))
        == SQLITE_PAGE_ENTRIES + 1
    )
    stores.close()


@pytest.mark.requirement("J-DURABLE")
def test_the_write_path_syncs_every_commit_to_a_write_ahead_log(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")

    def pragmas(connection: sqlite3.Connection) -> list[int | str]:
        names = ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert asyncio.run(stores._writer.run(pragmas)) == ["wal", 2, 1, 1]
    stores.close()


def test_a_missing_directory_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"the directory `.*absent` does not exist; create it"):
        SqliteStores(tmp_path / "absent" / "store.db")


@pytest.mark.parametrize(("version", "refusal"), [(99, "schema 99 is newer than 7"), (4, "schema 4 is older than 7")])
def test_another_schema_is_refused_and_left_alone(version: int, refusal: str, tmp_path: Path) -> None:
    filled(tmp_path / "store.db")
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(InvalidSettings, match=refusal):
        SqliteStores(tmp_path / "store.db")


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, but long enough to be read as one" * 100)
    before = path.read_bytes()
    with pytest.raises(InvalidSettings, match="not a database"):
        SqliteStores(path)
    assert path.read_bytes() == before

    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(InvalidSettings, match="another application"):
        SqliteStores(tmp_path / "other.db")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(InvalidSettings, match="unable to open"):
        SqliteStores(tmp_path / "folder.db")


def test_a_path_is_always_a_file_even_if_it_looks_special(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SqliteStores(":memory:").close()
    assert (tmp_path / ":memory:").exists()


def test_a_file_system_without_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    class NoLog(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            return super().execute("SELECT 'delete'" if "journal_mode" in sql else sql, *values)

    with pytest.raises(InvalidSettings, match="choose a local disk"):
        SqliteStores(tmp_path / "store.db", connector=lambda path: sqlite3.connect(path, factory=NoLog))


def test_a_store_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    path, refused = tmp_path / "store.db", []

    class Busy(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            if "journal_mode" in sql and len(refused) < 3:
                refused.append(sql)
                fault = sqlite3.OperationalError("database is locked")
                fault.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise fault
            return super().execute(sql, *values)

    SqliteStores(path, connector=lambda path: sqlite3.connect(path, isolation_level=None, factory=Busy)).close()
    assert len(refused) == 3


def test_a_closed_store_is_unavailable_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    stores.close()
    stores.close()
    with pytest.raises(Unavailable, match="closed"):
        asyncio.run(stores.tenant("acme").commit(Batch("run_a", wake_at_us=1)))
    with pytest.raises(Unavailable, match="closed"):
        asyncio.run(stores.tenant("acme").read("run_a"))


@pytest.mark.requirement("J-COMPARE-AND-SET", "J-GROUP")
def test_of_many_concurrent_claims_of_one_key_one_wins_and_the_rest_conflict(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")

    async def claim(number: int) -> bool:
        run = f"run_{number}"
        try:
            claim = (Write("keys", "one", 0, run.encode()),)
            await stores.tenant("acme").commit(
                Batch(run, entries_after("acme", run, [], 2), claim, ((INDEX, draft()),))
            )
        except Conflict as conflict:
            assert conflict.what == "keys/one"
            return False
        return True

    async def race() -> list[bool]:
        return await asyncio.gather(*(claim(number) for number in range(64)))

    won = asyncio.run(race())
    assert won.count(True) == 1
    store = stores.tenant("acme")
    (document,) = asyncio.run(store.scan("keys"))
    winner = document.body.decode()
    lengths = {f"run_{number}": len(asyncio.run(store.read(f"run_{number}"))) for number in range(64)}
    assert {run for run, length in lengths.items() if length} == {winner}
    assert len(asyncio.run(store.read(INDEX))) == 1
    stores.close()


@pytest.mark.requirement("J-SHARED")
def test_event_loops_on_many_threads_share_one_store(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    faults: list[BaseException] = []

    async def one(number: int) -> None:
        store, run, stream = stores.tenant("acme"), f"run_{number}", []
        for _ in range(5):
            batch = Batch(run, entries_after("acme", run, stream, 1), shared=((INDEX, draft()),))
            await store.commit(batch)
            stream = list(await store.read(run))
            assert stream[-1] == batch.entries[-1], "what was committed is read at once"

    def work(number: int) -> None:
        try:
            asyncio.run(one(number))
        except BaseException as fault:
            faults.append(fault)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    index = list(asyncio.run(stores.tenant("acme").read(INDEX)))
    verify("acme", INDEX, index)
    assert len(index) == 100
    stores.close()


def test_a_caller_that_went_away_hinders_nobody(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")
    store = stores.tenant("acme")

    async def abandon() -> None:
        task = asyncio.ensure_future(store.commit(Batch("run_a", wake_at_us=1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    left = []

    async def leave_loop() -> None:
        left.append(asyncio.ensure_future(store.commit(Batch("run_b", wake_at_us=1))))
        await asyncio.sleep(0)

    asyncio.run(abandon())
    asyncio.run(leave_loop())
    asyncio.run(store.commit(Batch("run_c", wake_at_us=1)))

    async def due() -> set[str]:
        return {run async for _, run in stores.due(1)}

    assert "run_c" in asyncio.run(due())
    stores.close()


def test_the_latest_recorded_time_is_read_from_its_index(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "contextos.db")
    assert asyncio.run(stores.tenant("acme").latest_us()) == 0
    stores.close()
    with closing(sqlite3.connect(tmp_path / "contextos.db")) as connection:
        ((*_, step),) = connection.execute(f"EXPLAIN QUERY PLAN {sqlite_stores._LATEST}", ("acme",)).fetchall()
    assert step == "SEARCH journal USING COVERING INDEX journal_times (tenant=?)"
