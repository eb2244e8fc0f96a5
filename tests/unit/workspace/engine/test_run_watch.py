"""`RunWatch`: whatever happens between a reader and its run, it gets each event once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX, Batch, Draft
from contextos.deployment.stream.folding import BEFORE_ALL
from contextos.errors import Integrity, Unavailable
from contextos.workspace.engine import run_watch
from contextos.workspace.engine.run_watch import RunWatch
from tests.world import TENANT, TestWorld, open_world, request, run

STORES = ["memory", "sqlite", "postgresql"]


@pytest.fixture(params=STORES)
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


class CountedReads:
    """Stores that count how often a run is read, and can be away."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.reads, self.is_away = inner, 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def tenant(self, tenant_id: str) -> Any:
        return CountedStore(self._inner.tenant(tenant_id), self)


class CountedStore:
    def __init__(self, inner: Any, counted: CountedReads) -> None:
        self._inner, self._counted = inner, counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read_run(self, run_id: str) -> Any:
        self._counted.reads += 1
        if self._counted.is_away:
            raise Unavailable("store", "it is away")
        return await self._inner.read_run(run_id)

    async def lengths(self, runs: Sequence[str]) -> Any:
        if self._counted.is_away:
            raise Unavailable("store", "it is away")
        return await self._inner.lengths(runs)


async def so_far(world: TestWorld, run_id: str) -> list[str]:
    return [one.id async for one in world.runs().stream(TENANT, run_id)]


async def read_all(watch: RunWatch, run_id: str) -> list[str]:
    return [one.id async for one in watch.follow(TENANT, run_id, 0, BEFORE_ALL)]


async def until_watched(watch: RunWatch, readers: int) -> None:
    async with asyncio.timeout(30):
        while sum(len(one.readers) for here in watch._loops.values() for one in here.feeds.values()) != readers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_every_reader_gets_every_event_of_another_process_once_and_the_run_is_read_for_all_of_them(
    stores: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        counted = CountedReads(world.stores)
        watch = RunWatch(counted, world.keys)  # type: ignore[arg-type]  # it hears nothing of what the world commits
        readers = [asyncio.ensure_future(read_all(watch, run_id)) for _ in range(50)]
        await until_watched(watch, 50)
        await world.approve(run_id)
        seen = await asyncio.wait_for(asyncio.gather(*readers), 60)
        everything = await so_far(world, run_id)
        assert all(one == everything for one in seen)
        assert counted.reads < 50
        await world.aclose()

    run(act())


def test_what_this_process_commits_wakes_its_readers_without_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        watch = RunWatch(world.stores, world.keys)
        world.deployment.ports = replace(world.deployment.ports, stores=watch.watched())
        monkeypatch.setattr(run_watch, "POLL_S", 3_600)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        reader = asyncio.ensure_future(read_all(watch, run_id))
        await until_watched(watch, 1)
        await asyncio.sleep(0.05)
        await world.approve(run_id)
        assert await asyncio.wait_for(reader, 60) == await so_far(world, run_id)

    run(act())


def test_for_a_slow_reader_nothing_is_kept_and_it_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        watch = RunWatch(world.stores, world.keys)
        monkeypatch.setattr(run_watch, "MAX_PENDING", 1)
        seen: list[str] = []
        async with aclosing(watch.follow(TENANT, run_id, 0, BEFORE_ALL)) as events:
            seen.append((await anext(events)).id)
            [reader] = next(iter(watch._loops.values())).feeds[TENANT, run_id].readers
            for number in range(3):
                await world.approve(run_id, "denied") if number == 1 else None
                reader.put(await run_watch.read_stream(world.stores.tenant(TENANT), TENANT, world.keys, run_id))
            assert reader.is_behind
            assert not reader._pending
            seen += [one.id async for one in events]
        assert seen == await so_far(world, run_id)

    run(act())


def test_a_run_that_ends_while_a_slow_reader_reads_it_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        watch = RunWatch(world.stores, world.keys)
        monkeypatch.setattr(run_watch, "MAX_PENDING", 1)
        read = run_watch.read_stream
        reader: Any = None

        async def ends_meanwhile(*what: Any) -> Any:
            found = await read(*what)
            if reader is not None and not found.ended:
                await world.approve(run_id, "denied")
                reader.put(await read(*what))
            return found

        monkeypatch.setattr(run_watch, "read_stream", ends_meanwhile)
        async with aclosing(watch.follow(TENANT, run_id, 0, BEFORE_ALL)) as events:
            seen = [(await anext(events)).id]
            [reader] = next(iter(watch._loops.values())).feeds[TENANT, run_id].readers
            reader.is_behind = True
            reader.wakes.set()
            seen += [one.id async for one in events]
        assert seen == await so_far(world, run_id)
        await world.aclose()

    run(act())


def test_a_reader_of_a_closed_watch_ends_also_if_its_run_goes_on(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        reader = run_watch._Reader(BEFORE_ALL)
        reader.end(None)
        reader.put(await run_watch.read_stream(world.stores.tenant(TENANT), TENANT, world.keys, run_id))
        assert reader.take()[1]
        await world.aclose()

    run(act())


def test_a_store_that_is_away_for_a_while_ends_no_stream(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        counted = CountedReads(world.stores)
        watch = RunWatch(counted, world.keys)  # type: ignore[arg-type]  # as above
        reader = asyncio.ensure_future(read_all(watch, run_id))
        await until_watched(watch, 1)
        counted.is_away = True
        watch.appended(TENANT, run_id)
        await world.approve(run_id)
        await asyncio.sleep(0.2)
        assert not reader.done()
        counted.is_away = False
        assert await asyncio.wait_for(reader, 60) == await so_far(world, run_id)

    run(act())


def test_a_run_that_is_altered_while_it_is_watched_is_refused_to_every_reader(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        watch = RunWatch(world.stores, world.keys)
        readers = [asyncio.ensure_future(read_all(watch, run_id)) for _ in range(2)]
        await until_watched(watch, 2)
        store = world.stores.tenant(TENANT)
        begun = (await store.read(run_id, limit=1))[0]
        body = canonical({"run": run_id, "entries": begun.seq, "head": begun.hash})
        await store.commit(
            Batch(run=run_id, shared=((INDEX, Draft("run.closed", run_id, begun.at_us, "runtime", body, bytes(16))),))
        )
        watch.appended(TENANT, run_id)
        for reader in readers:
            with pytest.raises(Integrity, match="contextos verify"):
                await asyncio.wait_for(reader, 60)
        await until_watched(watch, 0)

    run(act())


def test_a_reader_that_leaves_leaves_nothing_behind_and_one_of_a_closed_watch_ends(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        watch = RunWatch(world.stores, world.keys)
        left, stays = (asyncio.ensure_future(read_all(watch, run_id)) for _ in range(2))
        await until_watched(watch, 2)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        await until_watched(watch, 1)
        watch.close()
        assert len(await asyncio.wait_for(stays, 60)) in (0, len(await so_far(world, run_id)))
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) == 1

    run(act())
