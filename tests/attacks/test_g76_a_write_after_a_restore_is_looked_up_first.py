"""G76: a new run after a restore looks up an operation whose key does not depend on the run, before it sends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.envelopes.tool import AdapterReply, ToolError
from contextos.deployment.restore import record_restore
from contextos.errors import LostReply, Unavailable
from contextos.store.shared.clock import SystemClock
from tests.attacks.backups import Backup
from tests.e2e.test_verdicts import Wrapped
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run


async def opened(path: Path, stores: str, payments: str = "lookup") -> TestWorld:
    # The shop refuses what comes after its `not_after`, by the clock of the machine.
    return await open_world(path, stores=stores, payments=payments, clock=ManualClock(SystemClock().now_us()))


class Looked(Wrapped):
    """Counts what is looked up, and can answer otherwise."""

    def __init__(self, inner: Any, instead: Callable[[], AdapterReply | None] | None = None) -> None:
        super().__init__(inner)
        self.instead = instead
        self.looked: list[str] = []

    async def lookup(self, capability: str, idempotency_key: str, context: Any) -> AdapterReply | None:
        self.looked.append(idempotency_key)
        return self.instead() if self.instead else await self.inner.lookup(capability, idempotency_key, context)


def watched(world: TestWorld, instead: Callable[[], AdapterReply | None] | None = None) -> Looked:
    payments = Looked(world.adapters["adp_payments"], instead)
    world.adapters["adp_payments"] = payments  # type: ignore[assignment]
    return payments


async def restored(path: Path, stores: str, backup: Backup, *, paid: int) -> TestWorld:
    """A world after a recorded restore: `paid` runs paid after the backup, and the store knows none of them."""
    await (await opened(path, stores)).aclose()
    put_back = await asyncio.to_thread(backup, path)
    world = await opened(path, stores)
    for number in range(paid):
        assert (await world.invoke(request(900 + number, f"req_{number}"))).state == "completed"
    await world.aclose()
    await asyncio.to_thread(put_back)
    world = await opened(path, stores)
    await record_restore(world.deployment, None, TENANT, by=world.actor())
    return world


async def audited(world: TestWorld, run_id: str) -> None:
    view = await world.deployment.view(TENANT, run_id)
    assert view.record is not None
    assert (await replay(world.deployment, TENANT, run_id)).record_hash == view.record["record_hash"]
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)


def test_what_a_lost_run_paid_is_found_and_not_paid_again(tmp_path: Path, stores: str, backup: Backup) -> None:
    async def go() -> None:
        world = await restored(tmp_path, stores, backup, paid=3)
        payments = watched(world)
        before = world.refunds()
        for number in range(3):
            view = await world.invoke(request(900 + number, f"again_{number}"))
            assert view.state == "completed", view.record
            await audited(world, view.run_id)
        assert world.refunds() == before
        assert (len(payments.looked), payments.calls) == (3, [])
        story = await world.runs().timeline(await world.runs().get(TENANT, view.run_id))
        assert any("was done before the restore" in one.text for part in story.parts for one in part.moments)
        await world.aclose()

    run(go())


def test_what_is_not_found_is_sent_once(tmp_path: Path, stores: str, backup: Backup) -> None:
    async def go() -> None:
        world = await restored(tmp_path, stores, backup, paid=1)
        payments = watched(world)
        view = await world.invoke(request(950, "other"))
        assert (view.state, len(payments.looked), len(payments.calls)) == ("completed", 1, 1)
        assert [one["amount_inr"] for one in world.refunds()] == [900, 950]
        await audited(world, view.run_id)
        await world.aclose()

    run(go())


def raises(error: Exception) -> Callable[[], AdapterReply | None]:
    def raising() -> AdapterReply | None:
        raise error

    return raising


@pytest.mark.parametrize("error", [LostReply("no answer"), Unavailable("adp_payments", "it is down")])
def test_a_look_up_that_is_not_answered_sends_nothing(tmp_path: Path, error: Exception) -> None:
    async def go() -> None:
        world = await opened(tmp_path, "memory")
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        payments = watched(world, raises(error))
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, payments.calls, world.refunds()) == ("escalated", [], [])
        await audited(world, view.run_id)
        world.close()

    run(go())


def test_what_a_lost_run_started_and_still_runs_on_is_not_sent_beside_it(tmp_path: Path) -> None:
    paid = {"transaction_id": "txn_1", "refund_amount_inr": 900, "currency": "INR"}
    finds = [AdapterReply(operation="op-1"), AdapterReply(operation="op-1"), AdapterReply(output=paid)]

    async def go() -> None:
        world = await opened(tmp_path, "memory")
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        payments = watched(world, lambda: finds.pop(0))
        view = await world.invoke(request(900, "req_1"))
        for _ in range(2):
            assert (view.state, payments.calls) == ("executing", [])
            world.clock.at_us += 60_000_000
            await world.deployment.advance(TENANT, view.run_id)
            view = await world.deployment.view(TENANT, view.run_id)
        assert (view.state, payments.calls, finds) == ("completed", [], [])
        await audited(world, view.run_id)
        world.close()

    run(go())


def test_a_call_that_had_no_effect_before_is_sent(tmp_path: Path) -> None:
    async def go() -> None:
        world = await opened(tmp_path, "memory")
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        declined = AdapterReply(error=ToolError(code="declined", message="no funds"))
        payments = watched(world, lambda: declined)
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, len(payments.calls), len(world.refunds())) == ("completed", 1, 1)
        world.close()

    run(go())


def test_a_write_whose_key_is_of_its_run_is_sent_although_nobody_can_be_asked(tmp_path: Path) -> None:
    """No lost run can have done it: its key is new."""

    async def go() -> None:
        world = await opened(tmp_path, "memory")
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        payments = watched(world, raises(Unavailable("adp_payments", "it is down")))
        definition = payments.describe()
        [refund] = definition.capabilities
        of_run = refund.idempotency.model_copy(update={"scope": "run", "identity_args": None})
        capabilities = (refund.model_copy(update={"idempotency": of_run}),)
        payments.definition = definition.model_copy(update={"capabilities": capabilities})
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, payments.looked, len(payments.calls)) == ("completed", [], 1)
        world.close()

    run(go())


@pytest.mark.parametrize("payments", ["lookup", "keyed", "none"])
def test_without_a_restore_nothing_is_looked_up(tmp_path: Path, payments: str) -> None:
    async def go() -> None:
        world = await opened(tmp_path, "memory", payments)
        tool = watched(world)
        assert (await world.invoke(request(900, "req_1"))).state == "completed"
        assert (tool.looked, len(tool.calls)) == ([], 1)
        world.close()

    run(go())
