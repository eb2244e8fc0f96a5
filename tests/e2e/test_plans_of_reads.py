"""No read of the ports scans a table: each is served from an index, however many runs there are.

SQLite: the plan of every statement that a read executes. PostgreSQL: the server counts the rows that it reads, and
avoids scans of small tables as it would those of large ones.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.journal import CONTROL, INDEX, Batch, Draft, Write
from contextos.store.postgres.stores import PostgresStores
from contextos.store.sqlite.database import connect_sqlite
from contextos.store.sqlite.stores import SqliteStores
from tests.postgres import Database
from tests.suites.store_suite import entries_after

RUNS = 25

READS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "a stream": lambda stores: stores.tenant("acme").read("run_a"),
    "a run": lambda stores: stores.tenant("acme").read_run("run_a"),
    "a page of a stream": lambda stores: stores.tenant("acme").read(INDEX, after=1, limit=2),
    "the lines about runs": lambda stores: stores.tenant("acme").lines(INDEX, "run_a", "run_b"),
    "one document": lambda stores: stores.tenant("acme").scan("leases", key="run_a"),
    "a page of documents": lambda stores: stores.tenant("acme").scan("leases", after="run_a", limit=5),
    "documents and lines": lambda stores: stores.tenant("acme").look(
        [("leases", "run_a"), ("leases", "run_b")], prefixes=[("leases", "run_", 5)], lines=[("run_a", 0)]
    ),
    "the latest time": lambda stores: stores.tenant("acme").latest_us(),
    "a page of runs in the audit": lambda stores: stores.tenant("acme").selected_runs(after="run_a", limit=5),
    "the selections of a run": lambda stores: stores.tenant("acme").selections("run_a"),
    "waiting runs": lambda stores: stores.tenant("acme").waiting(limit=5),
    "due runs": lambda stores: _all(stores.due(10, limit=5)),
    "a page of edges": lambda stores: stores.graph("acme").rows(after="e", limit=5),
}


async def _all(found: Any) -> list[Any]:
    return [one async for one in found]


async def filled(stores: Any) -> None:
    for number in range(RUNS):
        run = f"run_{chr(97 + number)}"
        lines = ((INDEX, Draft("run.indexed", run, 1, "runtime", b"{}", bytes(16))),)
        if not number:
            lines += ((CONTROL, Draft("run.retried", run, 1, "me", b"{}", bytes(16))),)
        batch = Batch(
            run,
            entries_after("acme", run, [], 3),
            (Write("leases", run, 0, b"v"),),
            shared=lines,
            wake_at_us=5,
            signature=("kid", "aa"),
            waiting=True,
        )
        await stores.tenant("acme").commit(batch)


@pytest.mark.parametrize("name", READS)
def test_sqlite_serves_every_read_from_an_index(tmp_path: Path, name: str) -> None:
    said: list[str] = []

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect_sqlite(path)
        connection.set_trace_callback(said.append)
        return connection

    async def go() -> None:
        stores = SqliteStores(tmp_path / "store.db", connector=traced)
        await filled(stores)
        said.clear()
        await READS[name](stores)
        stores.close()

    asyncio.run(go())
    selects = [one for one in said if one.lstrip().upper().startswith(("SELECT", "WITH"))]
    assert selects, said
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for statement in selects:
            steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            scans = [step for step in steps if step.startswith("SCAN") and step.split()[1] in tables]
            assert scans == [], (statement, steps)


ROWS_READ = """
SELECT relname, seq_tup_read + coalesce((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes AS i
                                         WHERE i.relid = t.relid), 0)
FROM pg_stat_user_tables AS t WHERE schemaname = 'contextos'
"""
OTHERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


async def rows_read(database: Database) -> dict[str, int]:
    """How many rows of each table and of its indexes were read. A connection reports it when it ends."""
    for _ in range(1000):
        if not await database.fetch(OTHERS):
            break
        await asyncio.sleep(0.01)
    return {table: int(rows) for table, rows in await database.fetch(ROWS_READ)}


async def read_most(database: Database, read: Callable[[Any], Awaitable[Any]]) -> int:
    """The rows that `read` reads in the table of which it reads most."""
    stores = PostgresStores(database.app)
    await filled(stores)
    await stores.aclose()
    await database.fetch("VACUUM ANALYZE")
    await database.fetch(f'ALTER DATABASE "{database.name}" SET enable_seqscan = off')
    before = await rows_read(database)
    stores = PostgresStores(database.app)
    await read(stores)
    await stores.aclose()
    return max(rows - before[table] for table, rows in (await rows_read(database)).items())


@pytest.mark.parametrize("name", READS)
def test_postgresql_serves_every_read_from_an_index(database: Database, name: str) -> None:
    assert asyncio.run(read_most(database, READS[name])) < RUNS / 2


def test_a_read_that_no_index_serves_is_counted(database: Database) -> None:
    async def read(stores: PostgresStores) -> None:
        async with stores.for_loop().connections.transaction("acme") as connection:
            await connection.fetch("SELECT FROM contextos.documents WHERE version = 7")

    assert asyncio.run(read_most(database, read)) >= RUNS
