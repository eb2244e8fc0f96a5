"""A caller that allows it commits on its own thread, and blocks its event loop for no longer than one commit."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.journal import Batch
from contextos.errors import Unavailable
from contextos.store.sqlite import writer
from contextos.store.sqlite.database import connect_sqlite
from contextos.store.sqlite.stores import SqliteStores
from tests.unit.store.sqlite.test_writer import BATCHES, Plan, held_up, lengths

ALONE = tuple(Batch(**{name: getattr(one, name) for name in one.__slots__} | {"may_block": True}) for one in BATCHES)


@pytest.fixture(autouse=True)
def any_disk_is_fast_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IN_PLACE_LIMIT_S", 60.0)


def opened(path: Path, **how: Any) -> SqliteStores:
    """Stores whose writer has its connection: the first commit opens it."""
    stores = SqliteStores(path / "store.db", **how)
    asyncio.run(stores.tenant("acme").commit(Batch("run_0", wake_at_us=1)))
    return stores


def thread_of(stores: SqliteStores, *, may_block: bool = True) -> str:
    """The name of the thread that runs a task."""

    def task(_connection: sqlite3.Connection) -> str:
        return threading.current_thread().name

    return str(asyncio.run(stores._writer.run(task, may_block=may_block)))


def test_only_a_caller_that_allows_it_is_blocked_and_never_by_the_first_commit(tmp_path: Path) -> None:
    stores, mine = SqliteStores(tmp_path / "store.db"), threading.current_thread().name
    threads = [thread_of(stores), thread_of(stores), thread_of(stores, may_block=False), thread_of(stores)]
    assert threads == ["contextos-store-writer", mine, "contextos-store-writer", mine]
    stores.close()


def test_after_a_slow_commit_the_thread_makes_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = opened(tmp_path)
    monkeypatch.setattr(writer, "IN_PLACE_LIMIT_S", 0.001)
    asyncio.run(stores._writer.run(lambda _connection: time.sleep(0.002)))
    assert thread_of(stores) == "contextos-store-writer"
    stores.close()


def test_a_commit_behind_others_is_queued_and_joins_their_group(tmp_path: Path) -> None:
    plan = Plan()
    stores = opened(tmp_path, connector=plan.connector)
    plan.done.clear()

    async def crowd() -> list[Any]:
        async with held_up(stores) as held:
            waiting = [asyncio.ensure_future(stores.tenant("acme").commit(one)) for one in ALONE[:2]]
        return await asyncio.gather(held, *waiting)

    asyncio.run(crowd())
    assert lengths(stores) == [20, 20, 0]
    assert plan.done.count("COMMIT") == 2, "one for what held the writer up, one for the others together"
    stores.close()


def test_another_process_that_writes_blocks_no_event_loop(tmp_path: Path) -> None:
    """The loop goes on while the commit waits for the other process, whose end it sees by itself."""
    stores = opened(tmp_path)

    async def act(other: sqlite3.Connection) -> int:
        committing = asyncio.ensure_future(stores.tenant("acme").commit(ALONE[0]))
        ticks = 0
        while ticks < 20:
            await asyncio.sleep(0.001)
            assert not committing.done()
            ticks += 1
        other.execute("ROLLBACK")
        await committing
        return ticks

    with closing(connect_sqlite(tmp_path / "store.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        assert asyncio.run(act(other)) == 20
    assert lengths(stores) == [20, 0, 0]
    stores.close()


def test_a_lock_held_too_long_is_unavailable_here_too(tmp_path: Path) -> None:
    stores = opened(tmp_path, busy_timeout_ms=20)
    with closing(connect_sqlite(tmp_path / "store.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            asyncio.run(stores.tenant("acme").commit(ALONE[0]))
        other.execute("ROLLBACK")
    asyncio.run(stores.tenant("acme").commit(ALONE[0]))
    assert lengths(stores) == [20, 0, 0]
    stores.close()


@pytest.mark.requirement("J-ATOMIC")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_any_failing_operation_in_place_is_reported_and_leaves_nothing_half_done(tmp_path: Path, after: bool) -> None:
    plan, nth, failed = Plan(), 0, []
    while True:
        nth += 1
        (tmp_path / str(nth)).mkdir()
        stores = opened(tmp_path / str(nth), connector=plan.connector)
        plan.countdown, plan.after, plan.failed = nth, after, ""
        try:
            asyncio.run(stores.tenant("acme").commit(ALONE[0]))
        except Unavailable:
            plan.countdown = 0
            failed.append(plan.failed)
            assert lengths(stores)[0] == (20 if after and plan.failed == "COMMIT" else 0)
            asyncio.run(stores.tenant("acme").commit(ALONE[1]))
            assert lengths(stores)[1] == 20, "the writer works again as soon as the fault is over"
            stores.close()
            continue
        plan.countdown = 0
        assert lengths(stores) == [20, 0, 0]
        stores.close()
        if not plan.failed:
            break
        assert plan.failed == "BEGIN IMMEDIATE", "the thread tries again what could not begin at once"
    assert {"COMMIT", "SAVEPOINT caller", "RELEASE caller"} <= set(failed)


def test_a_commit_that_is_interrupted_is_rolled_back_and_the_next_one_works(tmp_path: Path) -> None:
    stores = opened(tmp_path)

    def interrupted(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO runs (tenant, run, wake_at_us) VALUES ('acme', 'half', 1)")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(stores._writer.run(interrupted, may_block=True))
    asyncio.run(stores.tenant("acme").commit(ALONE[0]))
    assert lengths(stores) == [20, 0, 0]

    async def due() -> list[tuple[str, str]]:
        return [run async for run in stores.due(100)]

    assert ("acme", "half") not in asyncio.run(due())
    stores.close()


def test_a_chain_of_commits_lets_other_tasks_and_time_limits_in(tmp_path: Path) -> None:
    stores = opened(tmp_path)
    commits = 0

    async def chain() -> None:
        nonlocal commits
        while True:
            await stores.tenant("acme").commit(Batch("run_0", wake_at_us=1, may_block=True))
            commits += 1

    async def act() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await chain()

    asyncio.run(act())
    assert commits
    stores.close()


def test_closing_waits_for_a_commit_in_another_thread(tmp_path: Path) -> None:
    stores = opened(tmp_path)
    started, released = threading.Event(), threading.Event()
    results: list[Any] = []

    def task(_connection: sqlite3.Connection) -> str:
        started.set()
        released.wait()
        return "done"

    def run(function: Callable[[], Any]) -> threading.Thread:
        thread = threading.Thread(target=lambda: results.append(function()))
        thread.start()
        return thread

    committing = run(lambda: asyncio.run(stores._writer.run(task, may_block=True)))
    started.wait()
    closing_ = run(stores.close)
    while not stores._writer._closed:
        time.sleep(0.001)
    assert results == []
    released.set()
    committing.join()
    closing_.join()
    assert sorted(results, key=str) == [None, "done"]
    with pytest.raises(Unavailable, match="closed"):
        asyncio.run(stores.tenant("acme").commit(ALONE[0]))
