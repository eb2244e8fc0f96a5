"""D23: a process whose clock is wrong takes no run over and drives none, and the error says why."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import INDEX
from contextos.deployment.deployment import Deployment
from contextos.errors import Unavailable
from tests.attacks.test_d23_names_places_and_time import Ahead, Slow
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run

TTL_US = 60_000_000


def other(world: TestWorld, ahead_us: int) -> Deployment:
    """Another machine on the same store, whose clock is ahead by this. It cannot see which processes live."""
    ports = replace(world.deployment.ports, clock=Ahead(world.clock, ahead_us), owner="ahead", alive=lambda _: True)
    return Deployment(ports, world.deployment.config)


async def under_way(path: Path, stores: str) -> tuple[TestWorld, Slow, asyncio.Task[Any], str]:
    """A world in which one run is in its payment, under a lease of 60 s."""
    clock = ManualClock(time.time_ns() // 1_000)
    world = await open_world(path, stores=stores, payments="lookup", clock=clock)
    world.deployment.config = replace(world.deployment.config, lease_ttl_us=TTL_US)
    slow = Slow(world.adapters["adp_payments"])
    world.adapters["adp_payments"] = slow  # type: ignore[assignment]
    first = asyncio.ensure_future(world.invoke(request(900, "req_1")))
    await asyncio.wait_for(slow.under_way.wait(), 60)
    return world, slow, first, (await world.stores.tenant(TENANT).read(INDEX))[0].key


async def lease(world: TestWorld, run_id: str) -> Any:
    found = await LEASES.one(world.stores.tenant(TENANT), run_id)
    assert found is not None
    return found


def test_a_worker_whose_clock_is_ahead_takes_no_run_over_and_the_error_says_why(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world, slow, first, run_id = await under_way(tmp_path, stores)
        before, kinds = await lease(world, run_id), await world.kinds(run_id)
        with pytest.raises(Unavailable) as refused:
            await other(world, 90_000_000).advance(TENANT, run_id)
        assert await lease(world, run_id) == before
        assert await world.kinds(run_id) == kinds
        assert refused.value.code == "clock_off"
        assert "90 s ahead of the store's" in str(refused.value)
        slow.go.set()
        assert (await first).state == "completed"
        assert len(world.refunds()) == 1
        await world.aclose()

    run(act())


def test_a_lease_is_over_when_the_stores_clock_says_so(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world, slow, first, run_id = await under_way(tmp_path, stores)
        before = await lease(world, run_id)
        world.clock.at_us = before.body.until_us - 2_000_000
        slightly_ahead = other(world, 4_000_000)
        with pytest.raises(Unavailable) as refused:
            await slightly_ahead.advance(TENANT, run_id)
        assert refused.value.code == "unavailable", "its clock is within the margin"
        assert await lease(world, run_id) == before
        world.clock.at_us = before.body.until_us + 1
        await slightly_ahead.advance(TENANT, run_id)
        assert (await lease(world, run_id)).body.owner == "ahead"
        slow.go.set()
        await asyncio.gather(first, return_exceptions=True)
        await world.aclose()

    run(act())


@pytest.mark.parametrize("off_us", [90_000_000, -90_000_000])
def test_a_process_whose_clock_is_wrong_begins_no_run(off_us: int, stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.deployment.config = replace(world.deployment.config, lease_ttl_us=TTL_US)
        with pytest.raises(Unavailable) as refused:
            await other(world, off_us).invoke(request(900, "req_1"))
        assert refused.value.code == "clock_off"
        assert f"90 s {'ahead of' if off_us > 0 else 'behind'} the store's" in str(refused.value)
        assert await world.stores.tenant(TENANT).read(INDEX) == []
        assert world.refunds() == []
        await world.aclose()

    run(act())
