"""The cost of a slot: resolving 50 candidates among many, or more than a slot can hold, and recording a selection.

`python -m benchmarks.slots` runs on SQLite and on a PostgreSQL server of its own. The plain insert writes the same rows
into tables without foreign keys and triggers, by the same writer or connection, one commit each.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg

from benchmarks.bars import folder as data_folder
from benchmarks.bars import is_quick, ratio, report_bar, skip
from contextos.context.slots.resolve import resolve_context_slot
from contextos.context.slots.select import selection_id
from contextos.contracts.envelopes.artifacts import ExtensionManifest
from contextos.contracts.envelopes.slots import AgentContextSlot, SelectionAct, SelectionOrigin, SlotActor
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared import artifact_rows as rows
from contextos.store.shared.artifact_rules import selection_fingerprint
from contextos.store.sqlite.stores import SqliteStores
from tests.postgres import Database, own_server

VISIBLE = 50
PICKED = 5
SMALL, LARGE, LARGE_IF_QUICK = 10_000, 1_000_000, 100_000
TENANT, ICP, B2B = "acme", "@acme/icp", "@acme/b2b"
ANN = SlotActor(principal_id="ann", organization_id="acme", team_ids=("t1", "t2"), project_ids=("p0",))
SLOT = AgentContextSlot(
    slotId="icp", acceptedArtifactExtensions=[ICP], selectionMode="interactive", resolutionMode="accumulate"
)
INSTALLED = [ExtensionManifest(extension=ICP), ExtensionManifest(extension=B2B, satisfies=(ICP,))]

# The first :visible artifacts belong to Ann, her team, her organisation or the workspace; the rest to others.
_LEVEL = "CASE WHEN i < :visible AND i % 4 = 0 OR i >= :visible AND i % 3 = 0 THEN 'user' ELSE 'team' END"
_OWNER = "CASE WHEN i >= :visible THEN 'u' || (i % 5000) WHEN i % 4 = 0 THEN 'ann' ELSE 't1' END"
_VISIBILITY = (
    "CASE WHEN i < :visible THEN CASE i % 4 WHEN 0 THEN 'owner' WHEN 1 THEN 'team:t1' WHEN 2 THEN 'org'"
    " ELSE 'workspace' END ELSE CASE i % 3 WHEN 0 THEN 'owner' WHEN 1 THEN 'team:x' || (i % 500)"
    " ELSE 'project:p' || (i % 500) END END"
)
_SCOPE = (
    "CASE WHEN i < :visible THEN CASE i % 4 WHEN 0 THEN 'user' WHEN 1 THEN 'team' WHEN 2 THEN 'organization'"
    " ELSE 'workspace' END ELSE CASE i % 3 WHEN 0 THEN 'user' WHEN 1 THEN 'team' ELSE 'project' END END"
)
_OWN = f"CASE WHEN {_LEVEL} = 'user' THEN {_OWNER} ELSE '' END"
_EXTENSION = f"CASE WHEN i < :visible OR i % 4 = 0 THEN '{ICP}' WHEN i % 4 = 1 THEN '{B2B}' ELSE '@acme/other' END"
FILLS = (
    (
        "INSERT INTO {0}extensions SELECT 'acme', e, '[]' FROM (SELECT '@acme/icp' AS e UNION SELECT '@acme/b2b'"
        " UNION SELECT '@acme/other') AS x"
    ),
    (
        f"INSERT INTO {{0}}artifacts SELECT 'acme', 'acme', 'art_' || i, 'artifact', 'title ' || i, {_LEVEL}, {_OWNER},"
        f" {_VISIBILITY}, 'ann', 1, NULL FROM {{1}}"
    ),
    (
        "INSERT INTO {0}representations SELECT 'acme', 'acme', 'art_' || i, 1, 'rev_' || {2}, 'text/plain', 'text',"
        " 'sha256:0', 'ann', 1 FROM {1}"
    ),
    (
        f"INSERT INTO {{0}}semantic_assertions SELECT 'acme', 'acme', 'art_' || i, {_EXTENSION}, 'asr_' || {{2}},"
        " 'user',"
        f" 'ann', 1, {_VISIBILITY}, {_SCOPE}, {_OWN}, 'eligible', 1, NULL FROM {{1}}"
    ),
)

Operation = Callable[[], Awaitable[Any]]


def fills(visible: int, *of_store: str) -> list[str]:
    """Return the statements that fill a store. `of_store`: its schema, its numbers, and a number in hexadecimal."""
    return [statement.replace(":visible", str(visible)).format(*of_store) for statement in FILLS]


@dataclass
class Bench:
    """One store: how to fill it, open it, write rows into its plain tables, and close it."""

    name: str
    fill: Callable[[int, int], Any]
    open: Callable[[Any], Any]
    plain: Callable[[Any, Any, SelectionAct], Awaitable[None]]
    close: Callable[[Any], Awaitable[None]]


async def timed(operation: Operation, times: int) -> list[float]:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        await operation()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


async def measured(bench: Bench, place: Any, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Return the milliseconds of a resolution, of a recorded selection, and of the same rows written plainly."""
    stores = bench.open(place)
    artifacts = stores.artifacts(TENANT)

    async def resolve() -> Any:
        return await resolve_context_slot(ANN, SLOT, None, INSTALLED, artifacts=artifacts)

    await timed(resolve, 20)
    refs = (await resolve()).refs
    assert len(refs) == VISIBLE, len(refs)
    resolved = await timed(resolve, rounds)
    ours, theirs = [], []
    for number in range(rounds + 10):
        selection = selection_of(refs[number % 40 : number % 40 + PICKED], number)
        ours += await timed(lambda selection=selection: artifacts.insert_selection(selection), 1)
        theirs += await timed(lambda selection=selection: bench.plain(stores, place, selection), 1)
    await bench.close(stores)
    return resolved, ours[10:], theirs[10:]


async def measured_full(bench: Bench, place: Any, rounds: int) -> list[float]:
    """Return the milliseconds of a resolution for a person who can see every artifact."""
    stores = bench.open(place)
    artifacts = stores.artifacts(TENANT)

    async def resolve() -> Any:
        return await resolve_context_slot(ANN, SLOT, None, INSTALLED, artifacts=artifacts)

    await timed(resolve, 3)
    assert (await resolve()).more, "more candidates are visible than a slot can hold"
    taken = await timed(resolve, rounds)
    await bench.close(stores)
    return taken


def selection_of(refs: Any, number: int) -> SelectionAct:
    origin = SelectionOrigin(
        org_id="acme", parent_run_id="run_1", parent_package_name="@acme/a", principal_id="ann", act_key=str(number)
    )
    return SelectionAct(
        selection_id=selection_id("icp", origin),
        origin=origin,
        slot_id="icp",
        resolution_mode="accumulate",
        selection_mode="interactive",
        selected_by="user",
        refs=tuple(refs),
        selected_at_us=5,
    )


def plain_rows(selection: SelectionAct) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]]:
    head = (TENANT, *rows.of_act(selection, selection_fingerprint(selection)))
    run_columns = (selection.origin.parent_run_id, selection.origin.parent_package_name, selection.slot_id)
    last = (selection.selected_by, selection.selection_mode, selection.selected_at_us)
    picks = [
        (
            TENANT,
            selection.origin.org_id,
            selection.selection_id,
            at,
            *run_columns,
            *rows.fields(ref, rows.REF_COLUMNS),
            *last,
        )
        for at, ref in enumerate(selection.refs)
    ]
    return head, picks


def sqlite_bench(folder: Path) -> Bench:
    def fill(count: int, visible: int) -> Path:
        path = folder / f"slots_{count}_{visible}.db"
        SqliteStores(path).close()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            counted = f"SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}"
            numbers = f"(WITH RECURSIVE n (i) AS ({counted}) SELECT i FROM n)"
            for statement in fills(visible, "", numbers, "printf('%016x', i)"):
                connection.execute(statement)
            for table in ("context_selection_acts", "run_context_selections"):
                key = "selection_id" if table.startswith("context") else "selection_id, position"
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                kept = ", ".join(name for name in columns if name != "ordinal")
                primary = f"PRIMARY KEY (tenant, org_id, {key})"
                connection.execute(f"CREATE TABLE plain_{table} ({kept}, {primary}) WITHOUT ROWID")
            connection.execute("COMMIT")
        return path

    async def plain(stores: SqliteStores, _place: Any, selection: SelectionAct) -> None:
        head, picks = plain_rows(selection)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(f"INSERT INTO plain_context_selection_acts VALUES ({', '.join('?' * len(head))})", head)
            marks = ", ".join("?" * len(picks[0]))
            connection.executemany(f"INSERT INTO plain_run_context_selections VALUES ({marks})", picks)

        await stores._writer.run(write)

    async def close(stores: SqliteStores) -> None:
        stores.close()

    return Bench("SQLite", fill, SqliteStores, plain, close)


def postgres_bench(server: Any) -> Bench:
    def fill(count: int, visible: int) -> Database:
        database: Database = server.database()
        asyncio.run(filled(database.owner, count, visible))
        return database

    async def filled(url: str, count: int, visible: int) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("SET session_replication_role = replica")
        numbers = f"generate_series(0, {count - 1}) AS n (i)"
        for statement in fills(visible, "contextos.", numbers, "lpad(to_hex(i), 16, '0')"):
            await connection.execute(statement)
        for table, key in (("context_selection_acts", ""), ("run_context_selections", ", position")):
            await connection.execute(f"CREATE TABLE contextos.plain_{table} AS SELECT * FROM contextos.{table}")
            await connection.execute(
                f"ALTER TABLE contextos.plain_{table} ADD PRIMARY KEY (tenant, org_id, selection_id{key})"
            )
        await connection.execute("ALTER TABLE contextos.plain_context_selection_acts DROP COLUMN ordinal")
        await connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA contextos TO contextos_app")
        await connection.execute("VACUUM ANALYZE")
        await connection.close()

    async def plain(stores: PostgresStores, _place: Any, selection: SelectionAct) -> None:
        head, picks = plain_rows(selection)
        async with stores.for_loop().connections.transaction(TENANT) as connection:
            marks = ", ".join(f"${at}" for at in range(1, len(head) + 1))
            await connection.execute(f"INSERT INTO contextos.plain_context_selection_acts VALUES ({marks})", *head)
            of = "text, text, text, bigint, text, text, text, text, text, text, text, text, text, text, text, bigint"
            arrays = ", ".join(f"${at}::{one.strip()}[]" for at, one in enumerate(of.split(","), 1))
            columns = [list(column) for column in zip(*picks, strict=True)]
            await connection.execute(
                f"INSERT INTO contextos.plain_run_context_selections SELECT * FROM unnest({arrays})", *columns
            )

    async def close(stores: PostgresStores) -> None:
        await stores.aclose()

    return Bench("PostgreSQL", fill, lambda place: PostgresStores(place.app), plain, close)


def compare(bench: Bench, large: int, rounds: int) -> None:
    found = {count: asyncio.run(measured(bench, bench.fill(count, VISIBLE), rounds)) for count in (SMALL, large)}
    small, big = found[SMALL], found[large]
    label = f"{bench.name}: resolve {VISIBLE} of {large:,}"
    report_bar(f"{label}, p50", median(big[0]), 5.0, " ms", best=min(big[0]))
    report_bar(f"{label}, over {SMALL:,}", median(big[0]) / median(small[0]), 2.0, best=min(big[0]) / min(small[0]))
    visible_many = large * 3 // 10
    few, many = (
        asyncio.run(measured_full(bench, bench.fill(count, count), rounds // 5)) for count in (SMALL, visible_many)
    )
    label = f"{bench.name}: resolve {visible_many:,} visible, over {SMALL:,} visible"
    report_bar(label, median(many) / median(few), 2.0, best=min(many) / min(few))
    value, best = ratio(big[1], big[2])
    report_bar(f"{bench.name}: record {PICKED} refs over plain rows", value, 2.0, best=best, against=big[2])


def main() -> None:
    quick = is_quick()
    large, rounds = (LARGE_IF_QUICK, 60) if quick else (LARGE, 200)
    with data_folder() as name:
        compare(sqlite_bench(Path(name)), large, rounds)
    try:
        with own_server() as server:
            compare(postgres_bench(server), large, rounds)
    except (ImportError, AssertionError) as missing:
        skip("PostgreSQL", f"there is no server of our own ({missing})")


if __name__ == "__main__":
    main()
