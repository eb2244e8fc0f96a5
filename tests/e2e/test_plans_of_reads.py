"""No read of the ports scans a table or a tenant: each is served from an index, however many runs and facts there are.

SQLite: the instructions of its virtual machine that a read takes, in a store and in one with ten times as much.
PostgreSQL: the server counts the rows that it reads, and avoids scans of small tables as it would those of large ones.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.journal import CONTROL, INDEX, Batch, Draft, Sought, TermChange, Write
from contextos.store.postgres.stores import PostgresStores
from contextos.store.sqlite.database import connect_sqlite
from contextos.store.sqlite.stores import SqliteStores
from tests.postgres import Database
from tests.suites.graph_suite import edge
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
    "runs by a term": lambda stores: stores.tenant("acme").found(Sought([[1]]), limit=5),
    "runs by a rare term and others": lambda stores: stores.tenant("acme").found(
        Sought([[1003], [1, 9], [1]]), limit=5
    ),
    "runs by a term and a time": lambda stores: stores.tenant("acme").found(Sought([[1]], 9, 1, 9), limit=5),
    "the terms of runs": lambda stores: stores.tenant("acme").terms(3, 5),
    "due runs": lambda stores: _all(stores.due(10, limit=5)),
    "a page of edges": lambda stores: stores.graph("acme").rows(after="e", limit=5),
    "what is known of a subject": lambda stores: stores.graph("acme").step(["a3"], None, at=2, limit=50),
    "a fact of subjects": lambda stores: stores.graph("acme").step(["a3", "a4"], "knows", at=2, limit=50),
    "what ended around a subject": lambda stores: stores.graph("acme").step(["a3"], None, at=2, limit=50, ended=True),
    "a fact that ended": lambda stores: stores.graph("acme").step(["a3"], "knows", at=2, limit=50, ended=True),
    "two hops around a subject": lambda stores: stores.graph("acme").neighbourhood(
        ["a3"], at=2, hops=2, fan_out=5, limit=20
    ),
    "nodes": lambda stores: stores.graph("acme").nodes(["a3"], at=2),
    "the newest commit of the graph": lambda stores: stores.graph("acme").head(),
}


async def _all(found: Any) -> list[Any]:
    return [one async for one in found]


async def filled(stores: Any, runs: int = RUNS) -> None:
    subjects = [f"a{number}" for number in range(runs)]
    edges = [edge(subject, f"{subject}_{end}", f"e_{subject}_{end}") for subject in subjects for end in ("one", "two")]
    nodes = [{"ceid": subject, "type": "t", "properties": {}} for subject in subjects]
    await stores.graph("acme").put(nodes, edges)
    ends = [{"retracts": f"e_{subject}_two", "evidence_ref": "artifact:a#2"} for subject in subjects]
    await stores.graph("acme").put([], ends)
    for number in range(runs):
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
            terms=TermChange((1, 1000 + number), (), 5),
        )
        await stores.tenant("acme").commit(batch)


async def instructions(file: Path, runs: int, read: Callable[[Any], Awaitable[Any]]) -> int:
    """How many instructions of SQLite's virtual machine `read` takes among so many runs."""
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    def counting(path: Path) -> sqlite3.Connection:
        connection = connect_sqlite(path)
        connection.set_progress_handler(count, 1)
        return connection

    stores = SqliteStores(file, connector=counting)
    await filled(stores, runs)
    counted = 0
    assert await read(stores) is not None
    stores.close()
    return counted


@pytest.mark.parametrize("name", READS)
def test_sqlite_serves_every_read_from_an_index(tmp_path: Path, name: str) -> None:
    few = asyncio.run(instructions(tmp_path / "few.db", RUNS, READS[name]))
    many = asyncio.run(instructions(tmp_path / "many.db", 10 * RUNS, READS[name]))
    assert 0 < many < 1.2 * few + 20


def test_instructions_of_a_read_that_no_index_serves_are_counted(tmp_path: Path) -> None:
    async def read(stores: SqliteStores) -> list[Any]:
        graph: Any = stores.graph("acme")
        with graph._readers.connection() as connection:
            return list(connection.execute("SELECT edge_id FROM edges WHERE evidence_ref = 'x' AND tenant = 'acme'"))

    few = asyncio.run(instructions(tmp_path / "few.db", RUNS, read))
    assert asyncio.run(instructions(tmp_path / "many.db", 10 * RUNS, read)) > few + 9 * RUNS


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
