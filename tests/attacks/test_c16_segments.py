"""A run's rows in the database, cut, altered, copied in or taken from elsewhere: no read returns them, and `verify`
names the place.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contextos.audit import export, verify
from contextos.audit.replay import replay
from contextos.contracts.journal import CONTROL, INDEX, Batch
from contextos.deployment import operator
from contextos.deployment.queries.checked_run import read_checked
from contextos.errors import ChainBroken, Integrity, InvalidSettings, ReplayMismatch
from contextos.store.postgres.schema import check_schema
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.segments import zstd
from contextos.store.sqlite.database import APPLICATION_ID
from contextos.store.sqlite.stores import SqliteStores
from tests.postgres import Database
from tests.suites.store_suite import entries_after
from tests.world import TENANT, TestWorld, open_world
from tests.world import request as order

pytestmark = pytest.mark.slow

Change = Callable[[str, str, str], list[str]]
"""Statements of SQL for (the table, the run, another run)."""

FIRST = "seq = (SELECT min(seq) FROM {0} WHERE run = '{1}')"
COLUMNS = "entries, v, format, dictionary, head, marks, salts, body, erased"


def of_first(changes: str) -> Change:
    return lambda table, run, _: [f"UPDATE {table} SET {changes} WHERE run = '{run}' AND {FIRST.format(table, run)}"]


def another_run(table: str, run: str, other: str) -> list[str]:
    gone = f"DELETE FROM {table} WHERE run = '{run}'"
    copy = f"INSERT INTO {table} (tenant, run, seq, {COLUMNS}) SELECT tenant, '{run}', seq, {COLUMNS} FROM {table}"
    return [gone, f"{copy} WHERE run = '{other}'"]


ATTACKS: dict[str, Change] = {
    "a_cut_body": of_first("body = substr(body, 1, length(body) - 7)"),
    "an_empty_body": of_first("body = substr(body, 1, 0)"),
    "another_entry_format": of_first("v = v + 1"),
    "another_head": of_first("head = (SELECT max(head) FROM {table} AS h WHERE h.seq <> {table}.seq)"),
    "another_run": another_run,
    "a_bomb": of_first("body = {bomb}"),
    "a_bomb_of_empty_entries": of_first("body = {empty_lists}"),
    "a_bomb_of_entries": of_first("body = {entries}"),
    "a_mark": of_first("marks = {zeros}"),
    "salts_of_another": of_first(
        "salts = (SELECT h.salts FROM {table} AS h WHERE h.entries = {table}.entries AND h.run <> {table}.run)"
    ),
    "no_first_commit": lambda table, run, _: [
        f"DELETE FROM {table} WHERE run = '{run}' AND {FIRST.format(table, run)}"
    ],
}
BOMB_BYTES = 1 << 30
"""What a row of some kilobytes unpacks to."""
MOST_BYTES = 200 << 20
UNKNOWN: dict[str, Change] = {
    "an_unknown_format": of_first("format = 7"),
    "an_unknown_dictionary": of_first("dictionary = substr(head, 1, 8)"),
}


def on_sqlite(path: Path, statements: list[str]) -> None:
    with closing(sqlite3.connect(path / "contextos.db")) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        for statement in statements:
            connection.execute(statement)


def bomb() -> bytes:
    """A frame that says nothing of its size, of zeros."""
    compressor = zstd.ZstdCompressor(level=1)
    zeros = bytes(1 << 20)
    return b"".join([*(compressor.compress(zeros) for _ in range(BOMB_BYTES >> 20)), compressor.flush()])


def frame(plain: bytes) -> bytes:
    """What a store writes, of a first line that takes some gigabytes of memory when it is parsed."""
    return zstd.compress(plain, level=1)


BOMBS = {
    "bomb": bomb,
    "empty_lists": lambda: frame(b"[" + b"[]," * (26 << 20) + b"[]]\n"),
    "entries": lambda: frame(b"[" + b'["","",0,"",0],' * (4 << 20) + b'["","",0,"",0]]\n'),
}


async def attacked(path: Path, stores: str, alter: Callable[[list[str]], None], change: Change, table: str) -> Any:
    """What a read says of the run after the attack, and what `verify` says."""
    world: TestWorld = await open_world(path, stores=stores)
    runs = [(await world.invoke(order(900 + number, f"req_{number}"))).run_id for number in range(2)]
    store = world.stores.tenant(TENANT)
    await verify.verify_tenant(store, TENANT, world.keys)
    await asyncio.to_thread(alter, [statement.replace("{table}", table) for statement in change(table, *runs)])
    said = []
    for look in (store.read(runs[0]), verify.verify_tenant(store, TENANT, world.keys)):
        try:
            await look
        except Integrity as fault:
            said.append((type(fault), str(fault).startswith(f"`{runs[0]}` entry "), "\n" in str(fault)))
        else:
            said.append((None, False, False))
    await world.aclose()
    return said


@pytest.mark.requirement("T-TAMPER-STORE")
@pytest.mark.parametrize("attack", [*ATTACKS, *UNKNOWN])
@pytest.mark.parametrize("kept_in", ["sqlite", "postgresql"])
def test_no_read_returns_a_segment_that_is_not_the_one_committed(
    attack: str, kept_in: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    change = (ATTACKS | UNKNOWN)[attack]
    bombs = {name: made().hex() for name, made in BOMBS.items() if attack.startswith("a_bomb")}
    tracemalloc.start()
    if kept_in == "sqlite":

        def in_file(statements: list[str]) -> None:
            on_sqlite(
                tmp_path,
                [
                    one.format(zeros="zeroblob(2 * entries)", **{name: f"x'{raw}'" for name, raw in bombs.items()})
                    for one in statements
                ],
            )

        said = asyncio.run(attacked(tmp_path, "sqlite", in_file, change, "segments"))
    else:
        database: Database = request.getfixturevalue("database")

        def alter(statements: list[str]) -> None:
            table = "contextos.segments"
            zeros = "decode(repeat('0000', entries), 'hex')"
            for statement in (f"ALTER TABLE {table} DISABLE TRIGGER ALL", *statements):
                raws = {name: f"'\\x{raw}'" for name, raw in bombs.items()}
                database.execute(statement.format(zeros=zeros, **raws))

        said = asyncio.run(attacked(tmp_path, database.app, alter, change, "contextos.segments"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    kind = Integrity if attack in UNKNOWN else ChainBroken
    assert said == [(kind, True, False)] * 2
    assert most < MOST_BYTES


CASTS = {
    "erasures_that_are_no_text": "UPDATE segments SET erased = CAST(x'ff0a' AS TEXT) WHERE run = '{0}'",
    "a_key_id_that_is_no_text": "UPDATE heads SET kid = CAST(x'ff0a' AS TEXT) WHERE stream = '{0}'",
    "a_line_of_the_index_that_is_no_text": """UPDATE journal SET "by" = CAST(x'ff0a' AS TEXT) WHERE key = '{0}'""",
    **{
        f"another_type_of_{column}": f"UPDATE segments SET {column} = {value} WHERE run = '{{0}}'"
        for column, value in (("entries", "'x'"), ("dictionary", "NULL"), ("head", "7"), ("salts", "'x'"))
    },
}
LOOSE = ("CREATE TABLE other AS SELECT * FROM segments", "DROP TABLE segments", "ALTER TABLE other RENAME TO segments")


@pytest.mark.requirement("T-TAMPER-STORE")
@pytest.mark.parametrize("attack", CASTS)
def test_the_owner_of_a_file_can_store_what_no_column_holds_and_it_is_one_sentence(attack: str, tmp_path: Path) -> None:
    """SQLite itself stores bytes that are no text as text, and any type in a table that was made anew."""

    async def act() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        run_id = (await world.invoke(order(900, "req_1"))).run_id
        store = world.stores.tenant(TENANT)
        anew = LOOSE if attack.startswith("another_type") else ()
        await asyncio.to_thread(on_sqlite, tmp_path, [*anew, CASTS[attack].format(run_id)])
        named = INDEX if "index" in attack else run_id
        with pytest.raises(Integrity) as fault:
            await verify.verify_tenant(store, TENANT, world.keys)
        assert str(fault.value).startswith(f"`{named}` ")
        assert "\n" not in str(fault.value)
        if named == run_id:
            found = await read_checked(store, TENANT, world.keys, run_id)
            assert (found.fault, found.view().state) == (str(fault.value), "unreadable")
        await world.aclose()

    asyncio.run(act())


@pytest.mark.requirement("J-ERASE", "T-TAMPER-STORE")
@pytest.mark.parametrize("kept_in", ["sqlite", "postgresql"])
def test_a_row_from_before_an_erasure_brings_no_erased_body_back(
    kept_in: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The older row fits the chain and the signed heads, so only the act of the erasure contradicts it."""
    database: Database | None = request.getfixturevalue("database") if kept_in == "postgresql" else None
    table = "contextos.segments" if database else "segments"

    def alter(*statements: str) -> None:
        if database is None:
            return on_sqlite(tmp_path, list(statements))
        for statement in (f"ALTER TABLE {table} DISABLE TRIGGER ALL", *statements):
            database.execute(statement)
        return None

    async def act() -> None:
        world = await open_world(tmp_path, stores=database.eraser if database else "sqlite")
        run_id = (await world.invoke(order(900, "req_1"))).run_id
        store = world.stores.tenant(TENANT)

        async def erase() -> None:
            await operator.erase_entry(world.deployment, TENANT, run_id, 5, by=world.actor(), reason="they asked")

        async def told() -> list[str]:
            said = [(await read_checked(store, TENANT, world.keys, run_id)).fault or ""]
            for asked in (
                lambda: verify.verify_tenant(store, TENANT, world.keys),
                lambda: replay(world.deployment, TENANT, run_id),
                lambda: export.export_runs(world.deployment, TENANT, [run_id], by=world.actor()),
            ):
                try:
                    await asked()
                except (ChainBroken, ReplayMismatch) as fault:
                    said.append(str(fault))
                else:
                    said.append("")
            return said

        await asyncio.to_thread(alter, f"CREATE TABLE {table}_before AS SELECT * FROM {table}")
        await erase()
        body = "(SELECT {0} FROM " + table + "_before AS b WHERE b.run = s.run AND b.seq = s.seq)"
        back = ", ".join(f"{name} = {body.format(name)}" for name in ("salts", "body", "erased"))
        before = await told()
        await asyncio.to_thread(alter, f"UPDATE {table} AS s SET {back} WHERE run = '{run_id}'")
        assert (await store.read(run_id))[4].body is not None, "the row is as whole as it was"
        (act,) = [line for line in await store.read(CONTROL) if line.kind == "entry.erased"]
        what = f"`{run_id}` entry 5: has a body again, and entry {act.seq} of `control` erased it; erase it once more"
        assert await told() == [what] * 4
        assert (await read_checked(store, TENANT, world.keys, run_id)).entries == (), "nobody is shown it"
        await erase()
        assert await told() == before
        assert (await store.read(run_id))[4].body is None
        await world.aclose()

    asyncio.run(act())


OLD = "keep it for the contextos that wrote it"


@pytest.mark.requirement("T-TAMPER-STORE")
def test_a_file_of_the_older_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "contextos.db")) as connection, connection:
        connection.execute("CREATE TABLE journal (tenant TEXT, run TEXT, seq INTEGER, body BLOB)")
        connection.execute("INSERT INTO journal VALUES ('acme', 'run_a', 1, x'7b7d')")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 4")
    before = (tmp_path / "contextos.db").read_bytes()
    with pytest.raises(InvalidSettings) as refused:
        SqliteStores(tmp_path / "contextos.db")
    assert OLD in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (tmp_path / "contextos.db").read_bytes() == before


@pytest.mark.requirement("T-TAMPER-STORE")
def test_a_database_that_lacks_the_table_of_segments_is_refused(database: Database) -> None:
    database.execute("DROP TABLE contextos.segments CASCADE")
    with pytest.raises(InvalidSettings, match=r"contextos\.segments") as refused:
        asyncio.run(check_schema(database.app))
    assert "\n" not in str(refused.value)


@pytest.mark.requirement("J-APPEND-ONLY")
def test_of_two_segments_that_begin_at_one_entry_the_second_is_refused(database: Database) -> None:
    """Neither of two open transactions sees the other's row, so a trigger alone lets both in."""
    columns = f"tenant, run, seq, {COLUMNS}"

    async def go() -> None:
        stores = PostgresStores(database.app)
        await stores.tenant("acme").commit(Batch("run_a", entries_after("acme", "run_a", [], 1)))
        await stores.aclose()
        one, two = [await asyncpg.connect(database.owner) for _ in range(2)]
        last = {one: 1, two: 2}
        begun = {each: each.transaction() for each in last}

        async def insert(each: asyncpg.Connection) -> None:
            more = (
                f"tenant, run, seq + {last[each]}, {last[each]}, v, format, dictionary, head,"
                f" decode(repeat('0000', {last[each]}), 'hex'),"
                f" decode(repeat('00', {16 * last[each]}), 'hex'), body, ''"
            )
            await each.execute(f"INSERT INTO contextos.segments ({columns}) SELECT {more} FROM contextos.segments")

        for transaction in begun.values():
            await transaction.start()
        await insert(one)
        waiting = asyncio.ensure_future(insert(two))
        await asyncio.sleep(0.1)
        await begun[one].commit()
        with pytest.raises(asyncpg.UniqueViolationError, match="segments_begin"):
            await waiting
        for each in last:
            await each.close()

    asyncio.run(go())
