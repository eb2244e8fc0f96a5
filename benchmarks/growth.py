"""The cost of a refund on PostgreSQL with a small and with a large journal.

The entries are written with SQL, as ended runs with their documents, signed heads and index lines. Their bodies are
never read.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.bars import note, ratio, report_bar
from benchmarks.deployed import closed, new_folder, opened, timed
from benchmarks.refund_pack import TENANT
from contextos.contracts.journal import INDEX
from contextos.store.postgres.connections import connect_postgres
from tests.postgres import Database

EACH = 25
"""Entries of a run."""
COMMITS = 5
FILL = f"""
INSERT INTO contextos.segments (tenant, run, seq, entries, v, format, dictionary, head, marks, salts, body, erased)
SELECT '{TENANT}', 'run_' || left(md5((n / {COMMITS})::text), 16), (n % {COMMITS} + 1) * {EACH // COMMITS},
       {EACH // COMMITS}, 1, 1, '\\x30', sha256(convert_to(n::text, 'UTF8')),
       decode(repeat('30', 2 * {EACH // COMMITS}), 'hex'), decode(repeat('30', 16 * {EACH // COMMITS}), 'hex'),
       convert_to(repeat(md5(n::text), 30), 'UTF8'), ''
FROM generate_series($1::bigint / {EACH // COMMITS}, $2::bigint / {EACH // COMMITS} - 1) AS n
"""
FILL_INDEX = f"""
INSERT INTO contextos.journal (tenant, run, seq, v, kind, key, at_us, by, body_digest, prev_hash, hash, salt, body)
SELECT '{TENANT}', '{INDEX}', n, 1, 'run.indexed', '', n, 'runtime', 'sha256:' || md5(n::text) || md5('a' || n),
       'sha256:' || md5('b' || n) || md5('c' || n), 'sha256:' || md5('d' || n) || md5('e' || n), '\\x30', '\\x30'
FROM generate_series(1, $1::bigint / {EACH} * 2) AS n
"""
FILL_DOCUMENTS = f"""
INSERT INTO contextos.documents (tenant, collection, key, version, body)
SELECT '{TENANT}', collection, left(md5(n::text), 16), 3, convert_to(repeat('x', 60), 'UTF8')
FROM generate_series(1, $1::bigint / {EACH}) AS n, unnest(ARRAY['leases', 'requests', 'acts']) AS collection
"""
FILL_HEADS = f"""
INSERT INTO contextos.heads (tenant, stream, seq, kid, hash, sig)
SELECT '{TENANT}', 'run_' || left(md5(n::text), 16), seq, 'kid', sha256(convert_to(n::text, 'UTF8')),
       decode(repeat('ab', 64), 'hex')
FROM generate_series(1, $1::bigint / {EACH}) AS n, unnest(ARRAY[5, 15, 25]) AS seq
"""
FILL_RUNS = f"""
INSERT INTO contextos.runs (tenant, run, wake_at_us)
SELECT '{TENANT}', 'run_' || left(md5(n::text), 16), 0 FROM generate_series(1, $1::bigint / {EACH}) AS n
"""


async def fill(database: Database, entries: int) -> None:
    """Insert ended runs with this many entries. Their bodies are never read."""
    connection = await connect_postgres(database.owner)
    await connection.execute("SET statement_timeout = 0; SET synchronous_commit = off")
    for start in range(0, entries, 100_000):
        await connection.execute(FILL, start, min(start + 100_000, entries), timeout=600)
    for statement in (FILL_INDEX, FILL_DOCUMENTS, FILL_HEADS, FILL_RUNS):
        await connection.execute(statement, entries, timeout=600)
    await connection.execute("VACUUM ANALYZE", timeout=600)
    await connection.execute("CHECKPOINT", timeout=600)
    await connection.close()


async def measure(databases: list[Database], path: Path, *, small: int, large: int, count: int) -> None:
    """Measure refunds in a small and in a large database, in turns."""
    for database, entries in zip(databases, (small, large), strict=True):
        await fill(database, entries)
    folders = [new_folder(path, f"growth{number}") for number in range(len(databases))]
    sides = [await opened(database.app, one) for database, one in zip(databases, folders, strict=True)]
    taken: list[list[float]] = [[], []]
    for number in range(count):
        # The first of the two alternates, too.
        for side in (0, 1) if number % 2 else (1, 0):
            taken[side].append(await timed(sides[side], number))
    warm = count // 10
    few, many = taken[0][warm:], taken[1][warm:]
    label = f"refund run, journal of {large:,} entries / of {small:,}, p50"
    report_bar(label, median(many) / median(few), 1.2, best=min(many) / min(few), against=few)
    note("median of the ratios of each round", f"{ratio(many, few)[0]:9.2f}")
    note(f"refund run, p50, {small:,} and {large:,} entries", f"{median(few):9.2f} ms, {median(many):.2f} ms")
    for deployment in sides:
        await closed(deployment)
