"""A worker that was stopped between its dispatch and its call may wake up and send, until the call's `not_after`.

So while that time lasts, nobody is asked whether a call without a key happened. Source: contracts.md, "Run",
`effect_uncertain`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.contracts.journal import CLOCK_MARGIN_US, Batch
from contextos.workspace.engine.lease_owner import LeasedOwner
from tests.postgres import Database
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run

LEASE_TTL_US = 2_000_000
TIMEOUT_US = 10_000_000
"""Of the call: longer than the lease."""


class Stops:
    """Stores whose worker pauses when its payment's dispatch is durable, until `goes_on` is set."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.stands_still, self.goes_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def tenant(self, tenant_id: str) -> Any:
        return StopsAtDispatch(self._inner.tenant(tenant_id), self)


class StopsAtDispatch:
    def __init__(self, inner: Any, stops: Stops) -> None:
        self._inner, self._stops = inner, stops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, batch: Batch) -> None:
        await self._inner.commit(batch)
        if any(entry.kind == "tool.dispatching" and "/s3/" in entry.key for entry in batch.entries):
            self._stops.stands_still.set()
            await self._stops.goes_on.wait()


async def two_workers(path: Path, stores: str) -> tuple[TestWorld, Stops, TestWorld]:
    """A worker that stops at its dispatch, and another; both go by one clock."""
    clock = ManualClock()
    first = await open_world(path, stores=stores, clock=clock, payments="none")
    stops = Stops(first.stores)
    first.deployment.ports = replace(first.deployment.ports, stores=stops)
    second = await open_world(path, stores=stores, clock=clock, payments="none")
    assert isinstance(second.owner, LeasedOwner)
    for world in (first, second):
        world.deployment.config = replace(world.deployment.config, lease_ttl_us=LEASE_TTL_US)
    return first, stops, second


@pytest.mark.requirement("J-FENCED", "A-NO-BLIND-RETRY")
@pytest.mark.parametrize("late", [False, True], ids=["in time", "too late"])
def test_nobody_is_asked_about_a_call_that_a_stopped_worker_may_still_make(
    tmp_path: Path, database: Database, late: bool
) -> None:
    async def go() -> None:
        first, stops, second = await two_workers(tmp_path, database.app)
        stopped = asyncio.ensure_future(first.invoke(request(900, "req_1")))
        await stops.stands_still.wait()
        run_id = (await second.stores.tenant(TENANT).read("index"))[0].key
        first.clock.at_us += LEASE_TTL_US
        there = await second.deployment.advance(TENANT, run_id)
        assert there.state == "executing", "it is not waiting for a person"
        assert first.clock.at_us < (there.wake_at_us or 0) <= first.clock.at_us + TIMEOUT_US + CLOCK_MARGIN_US
        assert second.refunds() == []
        if late:
            first.clock.at_us = there.wake_at_us
        stops.goes_on.set()
        await asyncio.wait([stopped])
        first.clock.at_us = max(first.clock.at_us, there.wake_at_us or 0)
        await second.deployment.advance(TENANT, run_id)
        view = await second.deployment.view(TENANT, run_id)
        assert view.waiting == {**(view.waiting or {}), "for": "settlement"}
        paid = second.refunds()
        assert len(paid) == (0 if late else 1)
        view = await second.settle(run_id, second.by_the_books())
        assert (view.state == "completed") == bool(paid)
        assert second.refunds() == paid
        kinds = await second.kinds(run_id)
        assert kinds.count("tool.dispatching") == kinds.count("tool.returned")
        await verify.verify_tenant(second.stores.tenant(TENANT), TENANT, second.keys)
        await replay(second.deployment, TENANT, run_id)
        for world in (first, second):
            await world.aclose()

    run(go())
