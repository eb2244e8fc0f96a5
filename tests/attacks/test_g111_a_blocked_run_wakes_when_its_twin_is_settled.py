"""Attack: a run that another run's operation blocks finds by a timer that it is settled, up to 306 s later.

Source: issue K1b, class I; docs/design/journal.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import Batch
from contextos.deployment import operator
from contextos.deployment.deployment import Deployment
from tests.attacks.test_d23_blocked_runs import Lost
from tests.world import TENANT, TestWorld, open_world, request, run

SETTLED = operator.SettlementInput(happened=False, by="user_operator_5", evidence_ref="kg:order:ord_881#snapshot_kg_1")


async def uncertain(path: Path, stores: str) -> tuple[TestWorld, Deployment, str]:
    """A world whose first run waits for a person to say what became of its refund, and another process of it."""
    world = await open_world(path, payments="none", stores=stores)
    lost = Lost(world.adapters["adp_payments"])
    world.adapters["adp_payments"] = lost  # type: ignore[assignment]
    first = await world.invoke(request(900, "req_1"))
    lost.lost = False
    other = Deployment(ports=replace(world.deployment.ports, owner="worker_b"), config=world.deployment.config)
    return world, other, first.run_id


async def due(world: TestWorld) -> list[str]:
    return [run_id async for _, run_id in world.stores.due(world.clock.now_us(), limit=9)]


def test_a_blocked_run_is_due_as_soon_as_its_twin_is_settled(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world, other, first = await uncertain(tmp_path, stores)
        second = await other.invoke(request(900, "req_2"))
        # It has waited for so long that it looks again only after minutes.
        world.clock.at_us += 400_000_000
        await other.advance(TENANT, second.run_id)
        assert await due(world) == []
        await world.settle(first, SETTLED)
        assert await due(world) == [second.run_id]
        await other.advance(TENANT, second.run_id)
        assert (await other.view(TENANT, second.run_id)).state == "completed"
        assert len(world.refunds()) == 1
        assert await due(world) == []
        await world.aclose()

    run(act())


def test_a_twin_that_is_settled_while_another_run_lies_down_is_not_overlooked(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world, other, first = await uncertain(tmp_path, stores)
        second = await other.invoke(request(900, "req_2"))
        world.clock.at_us += 400_000_000
        store = type(world.stores.tenant(TENANT))
        commit, settled = store.commit, []

        async def between(self: Any, batch: Batch) -> None:
            if not settled and batch.run == second.run_id and batch.wake_at_us and not batch.entries:
                settled.append(await world.settle(first, SETTLED))
            await commit(self, batch)

        monkeypatch.setattr(store, "commit", between)
        assert (await other.advance(TENANT, second.run_id)).state == "completed"
        assert (len(settled), len(world.refunds())) == (1, 1)
        await world.aclose()

    run(act())


def test_a_run_that_was_blocked_once_is_not_woken_again(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world, other, first = await uncertain(tmp_path, stores)
        second = await other.invoke(request(900, "req_2"))
        await operator.request_cancel(other, TENANT, second.run_id, by=world.actor(), reason="not wanted")
        await other.advance(TENANT, second.run_id)
        before = await due(world)
        await world.settle(first, SETTLED)
        assert await due(world) == before == []
        await world.aclose()

    run(act())


def test_a_run_that_a_process_drives_is_not_made_due_beside_it(tmp_path: Path, stores: str) -> None:
    """Its lease is held, so that its holder looks by itself; a commit of the waker would end that drive."""

    async def act() -> None:
        world, other, first = await uncertain(tmp_path, stores)
        second = await other.invoke(request(900, "req_2"))
        world.clock.at_us += 400_000_000
        await other.advance(TENANT, second.run_id)
        store = world.stores.tenant(TENANT)
        lease = await LEASES.one(store, second.run_id)
        assert lease is not None
        driven = replace(lease.body, owner="worker_c", until_us=world.clock.at_us + 60_000_000)
        await store.commit(Batch(run=second.run_id, writes=(LEASES.write(second.run_id, lease.version, driven),)))
        await world.settle(first, SETTLED)
        assert await due(world) == []
        await world.aclose()

    run(act())
