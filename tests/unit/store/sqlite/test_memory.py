"""`SqliteMemoryStores` does what a file does, for as long as it is open, and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from contextos.contracts.journal import Batch, Write
from contextos.errors import Unavailable
from contextos.store.sqlite import memory
from contextos.store.sqlite.database import connect_memory
from contextos.store.sqlite.memory import SqliteMemoryStores
from tests.suites.graph_suite import GraphSuite, GraphWorld
from tests.suites.store_suite import SettableClock, StoreSuite, World, entries_after


async def _awaited(coroutine):
    return await coroutine


class TestSqliteMemoryStores(StoreSuite):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        clock = SettableClock()
        stores = SqliteMemoryStores(clock=clock)
        with asyncio.Runner() as runner:
            yield World(stores, clock, lambda coroutine: runner.run(_awaited(coroutine)))
        stores.close()


class TestGraphInMemory(GraphSuite):
    @pytest.fixture
    def world(self) -> Iterator[GraphWorld]:
        stores = SqliteMemoryStores()
        with asyncio.Runner() as runner:
            yield GraphWorld(stores.graph, lambda coroutine: runner.run(_awaited(coroutine)))
        stores.close()


@pytest.mark.parametrize("may_block", [False, True])
def test_readers_and_the_writer_of_other_threads_wait_for_each_other(may_block: bool) -> None:
    """A reader sees whole commits only, and no commit fails because somebody reads."""
    stores = SqliteMemoryStores()

    async def write(run: str) -> None:
        stream = []
        for _ in range(40):
            (entry,) = entries_after("acme", run, stream, 1)
            twice = tuple(Write("keys", f"{run}/{half}", len(stream), b"v") for half in "ab")
            await stores.tenant("acme").commit(Batch(run, (entry,), twice, may_block=may_block))
            stream.append(entry)

    async def read() -> list[tuple[int, int]]:
        seen = []
        while not written.is_set():
            documents = await stores.tenant("acme").scan("keys")
            seen += [(one.version, other.version) for one, other in zip(documents[::2], documents[1::2], strict=True)]
            await stores.tenant("acme").read_run("run_0")
        return seen

    written = threading.Event()
    with ThreadPoolExecutor(6) as threads:
        readers = [threads.submit(asyncio.run, read()) for _ in range(2)]
        writers = [threads.submit(asyncio.run, write(f"run_{number}")) for number in range(3)]
        try:
            for one in writers:
                one.result()
        finally:
            written.set()
        seen = [pair for one in readers for pair in one.result()]
    assert all(one == other for one, other in seen)
    assert asyncio.run(stores.tenant("acme").length("run_0")) == 40
    stores.close()


def test_two_stores_share_nothing_and_a_closed_one_is_unavailable() -> None:
    one, other = SqliteMemoryStores(), SqliteMemoryStores()
    asyncio.run(one.tenant("acme").commit(Batch("run_a", entries_after("acme", "run_a", [], 2))))
    assert asyncio.run(one.tenant("acme").length("run_a")) == 2
    assert asyncio.run(other.tenant("acme").length("run_a")) == 0
    one.close()
    one.close()
    with pytest.raises(Unavailable):
        asyncio.run(one.tenant("acme").length("run_a"))
    other.close()


@pytest.mark.parametrize("used", [False, True])
def test_nothing_of_a_closed_store_is_left_in_memory(used: bool) -> None:
    """The database is there while a connection to it is open; one that is opened later by its name finds no table."""
    stores = SqliteMemoryStores()
    if used:
        asyncio.run(stores.tenant("acme").commit(Batch("run_a", entries_after("acme", "run_a", [], 2))))
        assert asyncio.run(stores.tenant("acme").length("run_a")) == 2
    with closing(connect_memory(stores.path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() > (0,)
    stores.close()
    with closing(connect_memory(stores.path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


def test_nothing_is_written_to_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    stores = SqliteMemoryStores()
    for number in range(20):
        run = f"run_{number}"
        asyncio.run(stores.tenant("acme").commit(Batch(run, entries_after("acme", run, [], 20, text="x" * 10_000))))
    opened = {str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists()}
    assert not [one for one in opened if "contextos-" in one or one.startswith(str(tmp_path))]
    assert not list(tmp_path.iterdir())
    stores.close()
    gc.collect()


def test_a_store_that_is_nearly_full_says_so_before_sqlite_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = SqliteMemoryStores()
    asyncio.run(stores.require_room())
    monkeypatch.setattr(memory, "MAX_MEMORY_BYTES", 1 << 10)
    with pytest.raises(Unavailable, match="a store in memory holds 1 GiB at most; open one in a file"):
        asyncio.run(stores.require_room())
    stores.close()
