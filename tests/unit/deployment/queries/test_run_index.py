"""The index is read from its end, and a page costs as much as it shows."""

from __future__ import annotations

import asyncio
from typing import Any

from contextos.contracts.journal import INDEX, Batch, Draft
from contextos.deployment.queries.run_index import PAGE, newest_first, newest_runs, waiting_runs
from contextos_sim.memory.stores import MemoryStores


def line(kind: str, run_id: str) -> Draft:
    return Draft(kind, run_id, 1, "runtime", b"{}", bytes(16))


async def store_with(*lines: tuple[str, str], waiting: tuple[str, ...] = ()) -> Any:
    store = MemoryStores().tenant("t")
    for kind, run_id in lines:
        await store.commit(Batch(run_id, shared=((INDEX, line(kind, run_id)),), waiting=run_id in waiting))
    return store


def test_runs_come_newest_first() -> None:
    async def go() -> None:
        store = await store_with(("run.indexed", "a"), ("run.indexed", "b"), ("run.closed", "a"))
        assert [one.key async for one in newest_runs(store, "t", 0)] == ["b", "a"]
        assert [one.key async for one in newest_runs(store, "t", 2)] == ["a"]

    asyncio.run(go())


def test_every_line_is_read_once_over_several_pages() -> None:
    async def go() -> None:
        length = 2 * PAGE + 3
        store = await store_with(*(("run.indexed", f"run_{number}") for number in range(length)))
        assert [one.seq async for one in newest_first(store, "t", 0)] == list(range(length, 0, -1))
        assert len([one async for one in newest_first(store, "t", length + 99)]) == length
        assert [one async for one in newest_first(await store_with(), "t", 0)] == []

    asyncio.run(go())


def test_only_runs_that_wait_are_read() -> None:
    async def go() -> None:
        store = await store_with(*(("run.indexed", f"run_{n}") for n in range(50)), waiting=("run_7", "run_30"))
        assert [one.key async for one in waiting_runs(store, "t", 0)] == ["run_30", "run_7"]
        assert [one.key async for one in waiting_runs(store, "t", 31)] == ["run_7"]

    asyncio.run(go())
