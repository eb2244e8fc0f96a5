"""The outcome of a call that the external system knows by its key is durable with the next commit of the run.

Source: docs/adr/0031-an-outcome-that-can-be-asked-again-is-durable-with-the-next-commit.md; docs/design/journal.md,
"Barriers".
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.journal import Batch
from contextos.errors import Unavailable
from contextos.store.shared.clock import SystemClock
from tests.world import TENANT, TestWorld, open_world, request, run

STORES = ["memory", "sqlite"]
KEYED = ["keyed", "lookup"]


class Watched:
    """Stores that note the last kind of each commit and all kinds, and fail at the commit that ends with
    `fails_at`.
    """

    def __init__(self, inner: Any, fails_at: str = "") -> None:
        self.inner, self.fails_at = inner, fails_at
        self.ends: list[str] = []
        self.kinds: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def tenant(self, tenant_id: str) -> Any:
        return WatchedStore(self.inner.tenant(tenant_id), self)


class WatchedStore:
    def __init__(self, inner: Any, watched: Watched) -> None:
        self._inner, self._watched = inner, watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, batch: Batch) -> None:
        last = batch.entries[-1].kind if batch.entries else ""
        if last and last == self._watched.fails_at:
            raise Unavailable("store", "the machine stops before this commit")
        await self._inner.commit(batch)
        self._watched.ends += [last] if last else []
        self._watched.kinds += [entry.kind for entry in batch.entries]


def watched(world: TestWorld, fails_at: str = "") -> Watched:
    stores = Watched(world.stores, fails_at)
    world.deployment.ports = replace(world.deployment.ports, stores=stores)
    return stores


@pytest.mark.requirement("J-BARRIER")
@pytest.mark.parametrize("stores", STORES)
@pytest.mark.parametrize("payments", [*KEYED, "none"])
def test_only_an_outcome_that_nobody_can_ask_for_again_has_a_commit_of_its_own(
    payments: str, stores: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores, payments=payments, clock=SystemClock())
        seen = watched(world)
        view = await world.invoke(request(900, "req_1"))
        own = [] if payments in KEYED else ["tool.returned"]
        assert (view.state, seen.ends) == ("completed", ["tool.dispatching", *own, "run.ended"])
        await world.aclose()

    run(act())


@pytest.mark.requirement("J-BARRIER", "A-NO-BLIND-RETRY")
@pytest.mark.parametrize("stores", STORES)
@pytest.mark.parametrize("payments", KEYED)
def test_a_process_that_dies_before_the_outcome_is_durable_pays_once(
    payments: str, stores: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores, payments=payments, clock=SystemClock())
        seen = watched(world, "run.ended")
        with pytest.raises(Unavailable, match="the machine stops"):
            await world.invoke(request(900, "req_1"))
        assert (len(world.refunds()), seen.ends) == (1, ["tool.dispatching"]), "the payment is out, its outcome is lost"
        seen.fails_at = ""
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, len(world.refunds())) == ("completed", 1)
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        replayed = await replay(world.deployment, TENANT, view.run_id)
        assert (replayed.record_hash, replayed.compared) == (view.record["record_hash"], len(entries))
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(act())


@pytest.mark.requirement("J-BARRIER")
@pytest.mark.parametrize("payments", KEYED)
def test_nothing_else_is_asked_before_the_outcome_is_durable(payments: str, tmp_path: Path) -> None:
    """Not even within this process: the read after the payment is of an adapter that leaves no machine."""

    async def act() -> None:
        world = await open_world(tmp_path, payments=payments, pack=reading_after_the_payment, clock=SystemClock())
        seen, durable = watched(world), list[list[str]]()
        orders = world.adapters["adp_orders"]

        class Asked:
            describe, lookup = orders.describe, orders.lookup

            async def call(self, *arguments: Any) -> Any:
                durable.append(seen.kinds.copy())
                return await orders.call(*arguments)

        world.adapters["adp_orders"] = Asked()
        view = await world.invoke(request(900, "req_1"))
        assert view.state == "completed", view
        first, after = durable
        assert first == []
        assert after.count("tool.returned") == 3, "the two reads, and the payment"
        await world.aclose()

    run(act())


def reading_after_the_payment(body: dict[str, Any]) -> None:
    template = body["decision_layer"]["task_templates"][0]
    first, payment = template["steps"][0], template["steps"][-1]
    template["steps"].append({**copy.deepcopy(first), "id": "after", "depends_on": [payment["id"]]})


@pytest.mark.requirement("J-BARRIER")
def test_the_next_run_that_asks_for_the_operation_waits_for_its_outcome(tmp_path: Path) -> None:
    """A run whose outcome is not durable yet still has the claim, so no other run pays in the meantime."""

    async def act() -> None:
        world = await open_world(tmp_path, payments="keyed")
        seen = watched(world, "run.ended")
        with pytest.raises(Unavailable):
            await world.invoke(request(900, "req_1"))
        seen.fails_at = ""
        other = await world.invoke(request(900, "req_2"))
        assert (other.state, len(world.refunds())) == ("executing", 1), "it waits for the operation"
        first = await world.invoke(request(900, "req_1"))
        world.clock.at_us = max(world.clock.at_us, other.wake_at_us or 0)
        await world.deployment.advance(TENANT, other.run_id)
        other = await world.deployment.view(TENANT, other.run_id)
        assert (first.state, other.state, len(world.refunds())) == ("completed", "completed", 1)
        await world.aclose()

    run(act())
