"""The outcome of a call that the external system knows by its key is durable with the next commit of the run.

Source: docs/adr/0031-an-outcome-that-can-be-asked-again-is-durable-with-the-next-commit.md; docs/design/journal.md,
"Barriers".
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterReply, ToolError
from contextos.contracts.journal import Batch
from contextos.deployment import operator
from contextos.errors import Unavailable
from contextos.store.shared.clock import SystemClock
from tests.world import TENANT, TestWorld, open_world, request, run

STORES = ["memory", "sqlite", "postgresql"]
KEYED = ["keyed", "lookup"]


@pytest.fixture
def place(stores: str, request: pytest.FixtureRequest) -> str:
    """Where the runs are kept, as `open_world` takes it."""
    return str(request.getfixturevalue("database").app) if stores == "postgresql" else stores


class Watched:
    """Stores that note the last kind of each commit and all kinds, and fail at the commit that ends with
    `fails_at`. `before` is awaited before each commit.
    """

    def __init__(self, inner: Any, fails_at: str = "") -> None:
        self.inner, self.fails_at = inner, fails_at
        self.before: Callable[[Batch], Awaitable[None]] | None = None
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
        if self._watched.before:
            await self._watched.before(batch)
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
    payments: str, place: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=place, payments=payments, clock=SystemClock())
        seen = watched(world)
        view = await world.invoke(request(900, "req_1"))
        own = [] if payments in KEYED else ["tool.returned"]
        assert (view.state, seen.ends) == ("completed", ["tool.dispatching", *own, "run.ended"])
        await world.aclose()

    run(act())


@pytest.mark.requirement("J-BARRIER", "A-RESENT-ERROR")
@pytest.mark.parametrize("payments", KEYED)
def test_an_error_has_a_commit_of_its_own_because_asking_again_would_not_confirm_it(
    payments: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, payments=payments, clock=SystemClock())
        payment = world.adapters["adp_payments"]

        class Refusing:
            describe, lookup = payment.describe, payment.lookup

            async def call(self, *_: Any) -> AdapterReply:
                return AdapterReply(error=ToolError(code="not_refundable", message="nothing is left"))

        world.adapters["adp_payments"] = Refusing()
        seen = watched(world)
        view = await world.invoke(request(900, "req_1"))
        assert (view.ended, seen.ends) == (True, ["tool.dispatching", "tool.returned", "run.ended"])
        await world.aclose()

    run(act())


@pytest.mark.requirement("J-BARRIER", "A-NO-BLIND-RETRY")
@pytest.mark.parametrize("stores", STORES)
@pytest.mark.parametrize("payments", KEYED)
def test_a_process_that_dies_before_the_outcome_is_durable_pays_once(payments: str, place: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=place, payments=payments, clock=SystemClock())
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


@pytest.mark.requirement("J-BARRIER", "A-NO-BLIND-RETRY")
@pytest.mark.parametrize("payments", KEYED)
def test_a_cancel_request_before_the_outcome_is_durable_hides_no_payment(payments: str, tmp_path: Path) -> None:
    """The request fails the commit with the outcome, so the service is asked again before the run stops."""

    async def act() -> None:
        world = await open_world(tmp_path, stores="sqlite", payments=payments, clock=SystemClock())
        seen, asked = watched(world), list[str]()

        async def cancel(batch: Batch) -> None:
            if not asked and [entry.kind for entry in batch.entries].count("tool.returned") and world.refunds():
                asked.append(batch.run)
                await operator.request_cancel(
                    world.deployment, TENANT, batch.run, by=world.actor(), reason="the customer kept it"
                )

        seen.before = cancel
        view = await world.invoke(request(900, "req_1"))
        assert len(asked) == len(world.refunds()) == 1
        kinds = [entry.kind for entry in await world.stores.tenant(TENANT).read(view.run_id)]
        assert kinds[-1] == "run.ended", view
        assert kinds.count("tool.returned") == 3, "the outcome of the payment is on record"
        assert [effect["capability_id"] for effect in view.record["effects"]] == ["adp_payments.issue_refund"], (
            view.record["effects"]
        )
        replayed = await replay(world.deployment, TENANT, view.run_id)
        assert replayed.record_hash == view.record["record_hash"]
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(act())


@pytest.mark.requirement("J-BARRIER", "A-NO-BLIND-RETRY")
@pytest.mark.parametrize("payments", KEYED)
def test_the_next_step_reads_the_durable_outcome_of_the_step_before(payments: str, tmp_path: Path) -> None:
    """Both steps are one operation, so the second is answered with what is stored, also after a crash between them."""

    async def act() -> None:
        world = await open_world(tmp_path, stores="sqlite", payments=payments, pack=paying_twice, clock=SystemClock())
        seen = watched(world)

        async def stop(batch: Batch) -> None:
            if world.refunds() and any(entry.kind == "tool.returned" for entry in batch.entries):
                raise Unavailable("store", "the machine stops before this commit")

        seen.before = stop
        with pytest.raises(Unavailable, match="the machine stops"):
            await world.invoke(request(900, "req_1"))
        seen.before = None
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, len(world.refunds())) == ("completed", 1), view
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        assert [entry.kind for entry in entries].count("tool.dispatching") == 3, "two reads and one payment"
        lookups = [read_body(entry)["state"] for entry in entries if entry.kind == "act.looked_up"]
        assert (lookups[0], lookups[-1]) == ("free", "completed")
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(act())


def paying_twice(body: dict[str, Any]) -> None:
    template = body["decision_layer"]["task_templates"][0]
    payment = template["steps"][-1]
    template["steps"].append({**copy.deepcopy(payment), "id": "again", "depends_on": [payment["id"]]})
