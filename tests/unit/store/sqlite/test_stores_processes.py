"""Several processes share a file, and one that is killed loses nothing that it acknowledged."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from contextos.contracts.journal import INDEX, Batch, Write
from contextos.store.sqlite.stores import SqliteStores
from tests.suites.store_suite import draft, entries_after, verify

ROOT = Path(__file__).resolve().parents[4]


def spawn(function: str, *arguments: object) -> subprocess.Popen[bytes]:
    code = (
        f"from tests.unit.store.sqlite.test_stores_processes import {function} as main; import sys; main(*sys.argv[1:])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, env=environment, cwd=ROOT
    )


def commit_for_ever(path: str, name: str) -> None:
    """Eight clients; each prints `run seq` only after its commit has returned."""
    stores = SqliteStores(path)

    async def client(number: int) -> None:
        store, run, stream = stores.tenant("acme"), f"run_{name}_{number}", []
        while True:
            made = entries_after("acme", run, stream, 3)
            stream.extend(made)
            await store.commit(Batch(run, made, shared=((INDEX, draft()),), signature=("kid", "aa")))
            os.write(1, f"{run} {made[-1].seq}\n".encode())

    async def main() -> None:
        await asyncio.gather(*(client(number) for number in range(8)))

    asyncio.run(main())


def commit_and_end(path: str, name: str, clients: str, rounds: str) -> None:
    """Every client appends to its own run and to the index that all share."""
    stores = SqliteStores(path)

    async def client(number: int) -> None:
        store, run, stream = stores.tenant("acme"), f"run_{name}_{number}", []
        for _ in range(int(rounds)):
            made = entries_after("acme", run, stream, 2)
            stream.extend(made)
            await store.commit(Batch(run, made, shared=((INDEX, draft()),)))

    async def main() -> None:
        await asyncio.gather(*(client(number) for number in range(int(clients))))

    asyncio.run(main())
    stores.close()


def open_and_close(path: str, name: str) -> None:
    """A command a time: each opens the file, commits, reads and is often the last one that closes it."""
    for number in range(60):
        stores = SqliteStores(path)
        try:
            store = stores.tenant("acme")
            asyncio.run(store.commit(Batch(f"run_{name}", writes=(Write("keys", f"{name}{number}", 0, b"v"),))))
            assert len(asyncio.run(store.scan("keys", key=f"{name}{number}"))) == 1
        finally:
            stores.close()


def ends(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    """What each ended with; all have ended, whatever the first did."""
    for process in processes:
        process.communicate()
    return [process.returncode for process in processes]


@pytest.mark.requirement("J-DURABLE")
def test_whatever_was_acknowledged_survives_a_kill_and_the_chains_verify(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    acknowledged: defaultdict[str, int] = defaultdict(int)
    for attempt in range(3):
        process = spawn("commit_for_ever", path, attempt)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(40 + 25 * attempt)]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        for line in [*lines, *rest.splitlines(keepends=True)]:
            run, seq = line.split()
            acknowledged[run.decode()] = int(seq)
    stores = SqliteStores(path)
    store = stores.tenant("acme")
    assert len(acknowledged) == 24
    for run, seq in acknowledged.items():
        stream = list(asyncio.run(store.read(run)))
        verify("acme", run, stream)
        assert len(stream) in (seq, seq + 3), "all that was acknowledged, and at most one commit whose reply was lost"
    verify("acme", INDEX, list(asyncio.run(store.read(INDEX))))
    asyncio.run(store.commit(Batch("run_after", writes=(Write("keys", "k", 0, b"v"),))))
    stores.close()


@pytest.mark.requirement("J-SHARED")
def test_processes_that_share_a_file_leave_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    processes = [spawn("commit_and_end", path, name, 20, 5) for name in "abc"]
    assert ends(processes) == [0, 0, 0]
    stores = SqliteStores(path)
    store = stores.tenant("acme")
    index = list(asyncio.run(store.read(INDEX)))
    verify("acme", INDEX, index)
    assert len(index) == 3 * 20 * 5
    for name in "abc":
        for number in range(20):
            stream = list(asyncio.run(store.read(f"run_{name}_{number}")))
            verify("acme", f"run_{name}_{number}", stream)
            assert len(stream) == 10
    stores.close()


def test_a_command_waits_for_the_one_that_closes_the_file_as_the_last(tmp_path: Path) -> None:
    assert ends([spawn("open_and_close", tmp_path / "store.db", name) for name in "abc"]) == [0, 0, 0]


def test_the_first_commit_waits_for_the_holder_of_the_file_lock(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    stores = SqliteStores(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    # Nothing of this process has the file open yet: the writer opens it for its first commit.
    release = threading.Timer(0.2, other.close)
    release.start()
    asyncio.run(stores.tenant("acme").commit(Batch("run_first", writes=(Write("keys", "k", 0, b"v"),))))
    release.join()
    stores.close()
