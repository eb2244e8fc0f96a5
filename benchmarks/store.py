"""The SQLite store beside raw `sqlite3` in the same run, on the same disk.

`python -m benchmarks.store` prints one table. The ratios can be compared between machines, the milliseconds cannot.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import quantiles

from benchmarks.bars import folder as data_folder
from benchmarks.bars import is_quick
from contextos.contracts.journal import Batch, Draft, Entry, Write, genesis, link
from contextos.store.sqlite.stores import SqliteStores

ALONE = 400
CLIENTS = 32
COMMITS_PER_CLIENT = 200
BODY = b'{"text":"' + b"x" * 300 + b'"}'
SALT = b"0123456789abcdef"


def entries_after(run: str, last: Entry | None, count: int) -> tuple[Entry, ...]:
    seq, head = (last.seq, last.hash) if last is not None else (0, genesis("acme", run))
    entries = []
    for number in range(1, count + 1):
        draft = Draft(kind="run.context", key="", at_us=5, by="runtime", body=BODY, salt=SALT)
        entries.append(link("acme", run, seq + number, head, draft))
        head = entries[-1].hash
    return tuple(entries)


def timed(operation: Callable[[], object], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        operation()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


async def timed_async(operation: Callable[[], Awaitable[object]], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        await operation()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def p50_p99(taken: list[float]) -> tuple[float, float]:
    cuts = quantiles(taken, n=100)
    return cuts[49], cuts[98]


def raw_commits(folder: Path) -> tuple[list[float], list[float]]:
    """Time one INSERT per commit, and the rows of a batch of ten entries and two writes, unchecked."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE journal (run TEXT, seq INTEGER, hash TEXT, body BLOB, PRIMARY KEY (run, seq))")
    connection.execute("CREATE TABLE documents (key TEXT PRIMARY KEY, version INTEGER, body BLOB)")
    connection.execute("INSERT INTO documents VALUES ('a', 0, x''), ('b', 0, x'')")
    seq = iter(range(10**9))

    def one() -> None:
        connection.execute("INSERT INTO journal VALUES ('run', ?, 'sha256', ?)", (next(seq), BODY))

    def ten() -> None:
        connection.execute("BEGIN IMMEDIATE")
        rows = [("run", next(seq), "sha256", BODY) for _ in range(10)]
        connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?)", rows)
        for key in "ab":
            connection.execute("UPDATE documents SET version = version + 1, body = ? WHERE key = ?", (BODY, key))
        connection.execute("COMMIT")

    timed(one, 50)
    single, batch = timed(one, ALONE), timed(ten, ALONE)
    connection.close()
    return single, batch


async def one_client(stores: SqliteStores) -> tuple[list[float], list[float]]:
    """Time one client: batches of ten entries and two writes, and point reads."""
    store, last, version = stores.tenant("acme"), None, 0
    prepared = []
    for number in range(ALONE + 20):
        entries = entries_after("run_alone", last, 10)
        last = entries[-1]
        writes = tuple(Write("leases", key, version + number, BODY) for key in "ab")
        prepared.append(Batch("run_alone", entries, writes))
    batches = iter(prepared)
    await timed_async(lambda: store.commit(next(batches)), 20)
    commits = await timed_async(lambda: store.commit(next(batches)), ALONE)
    reads = await timed_async(lambda: store.scan("leases", key="a"), ALONE)
    return commits, reads


async def many_clients(stores: SqliteStores) -> float:
    """Return the batches of one entry per second of many concurrent clients."""
    store = stores.tenant("acme")
    work = []
    for number in range(CLIENTS):
        entries = entries_after(f"run_{number}", None, COMMITS_PER_CLIENT)
        work.append([Batch(f"run_{number}", (entry,)) for entry in entries])

    async def client(batches: list[Batch]) -> None:
        for batch in batches:
            await store.commit(batch)

    start = time.perf_counter()
    await asyncio.gather(*map(client, work))
    return CLIENTS * COMMITS_PER_CLIENT / (time.perf_counter() - start)


def main() -> None:
    is_quick()  # it is short already
    with data_folder() as name:
        folder = Path(name)
        single, batch = raw_commits(folder)
        stores = SqliteStores(folder / "store.db")
        commits, reads = asyncio.run(one_client(stores))
        throughput = asyncio.run(many_clients(stores))
        stores.close()
    base, raw_batch, ours = p50_p99(single), p50_p99(batch), p50_p99(commits)
    print(f"{'':44}{'p50 ms':>9}{'p99 ms':>9}{'ratio':>8}")
    for title, (p50, p99) in (
        ("raw: one INSERT, committed", base),
        ("raw: 10 INSERTs and 2 UPDATEs, committed", raw_batch),
        ("store: 10 entries and 2 writes, committed", ours),
        ("store: read one document", p50_p99(reads)),
    ):
        print(f"{title:44}{p50:9.3f}{p99:9.3f}{p50 / base[0]:8.2f}")
    print(f"over one raw INSERT: {ours[0] - base[0]:.3f} ms; over the raw batch: {ours[0] - raw_batch[0]:.3f} ms")
    raw_rate = 1000 * len(single) / sum(single)
    print(f"{CLIENTS} clients: {throughput:,.0f} batches/s; raw one by one: {raw_rate:,.0f}/s", end="; ")
    print(f"ratio {throughput / raw_rate:.1f}")


if __name__ == "__main__":
    main()
