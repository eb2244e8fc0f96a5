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

from contextos.audit import verify
from contextos.contracts.journal import Batch
from contextos.errors import ChainBroken, Integrity, InvalidSettings
from contextos.store.postgres.schema import check_schema
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.segments import zstd
from contextos.store.sqlite.database import APPLICATION_ID
from contextos.store.sqlite.stores import SqliteStores
from tests.postgres import Database
from tests.suites.store_suite import entries_after
from tests.world import TENANT, TestWorld, open_world, request

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


async def attacked(path: Path, stores: str, alter: Callable[[list[str]], None], change: Change, table: str) -> Any:
    """What a read says of the run after the attack, and what `verify` says."""
    world: TestWorld = await open_world(path, stores=stores)
    runs = [(await world.invoke(request(900 + number, f"req_{number}"))).run_id for number in range(2)]
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
    tracemalloc.start()
    if kept_in == "sqlite":

        def in_file(statements: list[str]) -> None:
            on_sqlite(
                tmp_path, [one.format(bomb=f"x'{bomb().hex()}'", zeros="zeroblob(2 * entries)") for one in statements]
            )

        said = asyncio.run(attacked(tmp_path, "sqlite", in_file, change, "segments"))
    else:
        database: Database = request.getfixturevalue("database")

        def alter(statements: list[str]) -> None:
            table = "contextos.segments"
            zeros = "decode(repeat('0000', entries), 'hex')"
            for statement in (f"ALTER TABLE {table} DISABLE TRIGGER ALL", *statements):
                database.execute(statement.format(bomb=f"'\\x{bomb().hex()}'", zeros=zeros))

        said = asyncio.run(attacked(tmp_path, database.app, alter, change, "contextos.segments"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    kind = Integrity if attack in UNKNOWN else ChainBroken
    assert said == [(kind, True, False)] * 2
    assert most < MOST_BYTES


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
def test_a_database_of_the_older_format_is_refused(database: Database) -> None:
    database.execute("DROP TABLE contextos.segments CASCADE")
    with pytest.raises(InvalidSettings) as refused:
        asyncio.run(check_schema(database.app))
    assert OLD in str(refused.value)
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
