"""A driver lets the store block the event loop only while it drives one run, and keeps nothing of a run that ended."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.journal import Batch
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.ports.storage import Store
from contextos.trust.journal.ledger import RunJournal
from tests.world import TestWorld, open_world, request, run


class NotedStores:
    """Stores that note for each batch of a run whether its commit may block."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.noted: list[tuple[str, bool]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def tenant(self, tenant_id: str) -> Any:
        return NotedStore(self._inner.tenant(tenant_id), self.noted)


class NotedStore:
    def __init__(self, inner: Store, noted: list[tuple[str, bool]]) -> None:
        self._inner, self._noted = inner, noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, batch: Batch) -> None:
        self._noted.append((batch.run, batch.may_block))
        await self._inner.commit(batch)


class HeldAdapter:
    """An adapter whose first call waits until it is released."""

    def __init__(self, inner: Adapter) -> None:
        self._inner, self.called, self.released = inner, asyncio.Event(), asyncio.Event()

    def describe(self) -> AdapterDefinition:
        return self._inner.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if not self.called.is_set():
            self.called.set()
            await self.released.wait()
        return await self._inner.call(capability, args, context)


async def noted_world(path: Path) -> tuple[TestWorld, NotedStores]:
    world = await open_world(path)
    stores: Any = NotedStores(world.deployment.ports.stores)
    world.deployment.ports = replace(world.deployment.ports, stores=stores)
    return world, stores


def test_a_run_that_is_driven_alone_may_block_and_one_beside_another_may_not(tmp_path: Path) -> None:
    async def act() -> None:
        world, stores = await noted_world(tmp_path)
        held = HeldAdapter(world.adapters["adp_payments"])
        payments: Any = held
        world.adapters["adp_payments"] = payments
        slow = asyncio.ensure_future(world.invoke(request(900, "req_slow")))
        await held.called.wait()
        alone = len(stores.noted)
        other = await world.invoke(request(800, "req_other"))
        beside = len(stores.noted)
        held.released.set()
        first = await slow
        assert alone
        assert set(stores.noted[:alone]) == {(first.run_id, True)}
        assert set(stores.noted[alone:beside]) == {(other.run_id, False)}
        assert set(stores.noted[beside:]) == {(first.run_id, True)}
        world.close()

    run(act())


def test_a_run_that_waits_for_a_person_is_not_driven(tmp_path: Path) -> None:
    async def act() -> None:
        world, stores = await noted_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_waits"))
        assert waiting.waiting
        stores.noted.clear()
        done = await world.invoke(request(900, "req_done"))
        assert set(stores.noted) == {(done.run_id, True)}
        world.close()

    run(act())


def test_nothing_of_a_run_that_ended_waits_for_the_garbage_collector(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        gc.disable()
        try:
            small = await world.invoke(request(900, "req_small"))
            asked = await world.invoke(request(4200, "req_large"))
            assert small.ended
            assert (await world.approve(asked.run_id)).ended
            # A thread that made a call lets go of it a moment later.
            for _ in range(1_000):
                kept = {one.run_id for one in gc.get_objects() if isinstance(one, RunJournal)}
                kept &= {small.run_id, asked.run_id}
                if not kept:
                    break
                await asyncio.sleep(0.01)
            assert not kept
        finally:
            gc.enable()
        world.close()

    run(act())
