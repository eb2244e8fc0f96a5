"""A worker process for the tests: a durable engine over runs in an SQLite file that several processes share.

`python durable_worker.py URL FILE`. Each drive takes a moment and one of the run's drives; what the file's table
`violations` holds is a run that two living processes drove at once. A run named `run_endless...` does not end while
its file row says so, and one named `run_deadly...` kills its worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from typing import Any

from contextos.contracts.journal import Advance, Batch, Document, Draft, Entry, link
from contextos.engine.durable.engine import DurableEngine, DurableLimits
from contextos.engine.durable.workflows import QueueLimits
from contextos.store.shared.clock import SystemClock

SCHEMA = """
CREATE TABLE runs (tenant TEXT, run TEXT PRIMARY KEY, wake_us INT, left INT, endless INT DEFAULT 0);
CREATE TABLE driving (run TEXT, pid INT);
CREATE TABLE drives (run TEXT, pid INT);
CREATE TABLE violations (run TEXT);
CREATE TABLE workers (pid INT);
CREATE TABLE failures (run TEXT, said TEXT);
CREATE TABLE dead_letters (run TEXT, version INT, body BLOB);
"""

ENTRY = link("acme", "run", 1, "", Draft("run.received", "", 1, "test", b"{}", b""))


def opened(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class FileStores:
    """As much of `Stores` as an engine asks."""

    def __init__(self, path: str) -> None:
        self.file = opened(path)

    async def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        for tenant, run in self.file.execute(
            "SELECT tenant, run FROM runs WHERE wake_us BETWEEN 1 AND ? ORDER BY wake_us LIMIT ? OFFSET ?",
            (before_us, limit, skip),
        ).fetchall():
            yield tenant, run

    def tenant(self, _: str) -> FileStores:
        return self

    async def scan(self, collection: str, *, key: str | None = None, after: str = "", **_: Any) -> list[Document]:
        """The dead_letters of runs; there is nothing else."""
        which = "WHERE run = coalesce(?, run) AND run > ?"
        rows = self.file.execute(f"SELECT run, version, body FROM dead_letters {which}", (key, after))
        return [Document(collection, *row) for row in rows.fetchall()] if collection == "dead_letters" else []

    async def read(self, run: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """The journal of every run is one entry, and nobody adds to it."""
        return [] if after else [ENTRY]

    async def commit(self, batch: Batch) -> None:
        self.file.execute("INSERT INTO dead_letters VALUES (?, 1, ?)", (batch.run, batch.writes[0].body))

    async def advance(self, tenant: str, run: str) -> Advance:
        pid = os.getpid()
        self.file.execute("BEGIN IMMEDIATE")
        others = [other for (other,) in self.file.execute("SELECT pid FROM driving WHERE run = ?", (run,))]
        if any(alive(other) for other in others):
            self.file.execute("INSERT INTO violations VALUES (?)", (run,))
        self.file.execute("INSERT INTO driving VALUES (?, ?)", (run, pid))
        self.file.execute("INSERT INTO drives VALUES (?, ?)", (run, pid))
        self.file.execute("COMMIT")
        if run.startswith("run_deadly"):
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.02)
        while self.file.execute("SELECT endless FROM runs WHERE run = ?", (run,)).fetchone() == (1,):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        self.file.execute("BEGIN IMMEDIATE")
        self.file.execute("DELETE FROM driving WHERE run = ? AND pid = ?", (run, pid))
        self.file.execute(
            "UPDATE runs SET left = max(left - 1, 0), wake_us = iif(left > 1, 1, 0) WHERE run = ?", (run,)
        )
        [left] = self.file.execute("SELECT left FROM runs WHERE run = ?", (run,)).fetchone()
        self.file.execute("COMMIT")
        return Advance("waiting", 1) if left else Advance("completed", None)


async def work(url: str, path: str) -> None:
    stores: Any = FileStores(path)
    engine = DurableEngine(
        stores.advance,
        stores,
        SystemClock(),
        url=url,
        limits=DurableLimits(
            queue=QueueLimits(max_drives=4, polling_interval_ms=10, dead_after_ms=2000, max_recoveries=1),
            sweep_interval_ms=50,
            confirm_dead_ms=1500,
            stop_grace_ms=1000,
        ),
        on_failure=lambda _, run, fault: stores.file.execute("INSERT INTO failures VALUES (?, ?)", (run, repr(fault))),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await engine.start()
    stores.file.execute("INSERT INTO workers VALUES (?)", (os.getpid(),))
    await stop.wait()
    await engine.stop()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
