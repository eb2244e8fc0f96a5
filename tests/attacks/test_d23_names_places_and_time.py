"""D23: invented tenants store nothing, busy tenants leave places to quiet ones, and a blocked run is not lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.journal import CONTROL, INDEX
from contextos.deployment import operator
from contextos.deployment.deployment import Deployment
from contextos.errors import Conflict, InvalidInput, Overloaded, Unavailable
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.admission_controller import AdmissionController
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    """`sqlite`, or the URL of a database of its own, with the application's role."""
    return "sqlite" if request.param == "sqlite" else str(request.getfixturevalue("database").app)


async def stored(world: TestWorld, tenant: str) -> int:
    """How much the store has of a tenant."""
    store = world.stores.tenant(tenant)
    entries = [*await store.read(INDEX), *await store.read(CONTROL)]
    return len(entries) + len(await store.scan("requests")) + len(await store.scan("leases"))


@pytest.mark.parametrize("mode", ["stream", "batch", "long_running"])
def test_invented_tenants_are_refused_before_anything_is_stored_and_take_no_place(
    mode: str, stores: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        limits = AdmissionLimits(max_callers=4, max_callers_per_tenant=1)
        gate = AdmissionController(limits, world.clock)
        world.deployment.ports = replace(world.deployment.ports, admission=gate)
        with ExitStack() as full:
            for number in range(4):
                full.enter_context(gate.caller(f"other_{number}"))
            for number in range(300):
                body = {**request(900, f"req_{number}"), "tenant_id": f"invented_{number}", "mode": mode}
                with pytest.raises(InvalidInput) as refused:
                    await world.invoke(body)
                problem = refused.value.problems[0]
                assert (problem.pointer, problem.code) == ("/tenant_id", "unknown_tenant")
        assert [await stored(world, f"invented_{number}") for number in range(0, 300, 50)] == [0] * 6
        assert set(world.deployment.tenants()) == {TENANT}
        assert gate._retry_at_us == {}, "and the process keeps nothing of them"
        assert (await world.invoke(request(900, "req_real"))).state == "completed"
        await world.aclose()

    run(act())


def test_however_many_tenants_are_busy_a_quiet_one_finds_places_at_once() -> None:
    gate = AdmissionController(AdmissionLimits(), SystemClock())
    with ExitStack() as inside:
        for _ in range(128):
            for tenant in range(5):
                try:
                    inside.enter_context(gate.caller(f"busy_{tenant}"))
                except Overloaded as refused:
                    assert refused.retry_after_ms > 0
        for _ in range(4):
            inside.enter_context(gate.caller("quiet"))
        # Those who come back at once, without waiting, take nothing that is kept for others.
        for _ in range(2_000):
            with pytest.raises(Overloaded), gate.caller("busy_0"):
                pass
        for _ in range(4):
            inside.enter_context(gate.caller("another"))


def test_a_run_that_another_operation_blocks_goes_on_when_that_is_settled(tmp_path: Path) -> None:
    """One run's payment is uncertain; another run wants the same operation, and nobody wakes it by hand."""

    class Lost:
        def __init__(self, adapter: Any) -> None:
            self.adapter, self.lost = adapter, True

        def __getattr__(self, name: str) -> Any:
            return getattr(self.adapter, name)

        async def call(self, capability: str, args: object, context: object) -> object:
            if self.lost:
                raise SystemExit(0)
            return await self.adapter.call(capability, args, context)

    async def act() -> None:
        world = await open_world(tmp_path, payments="none")
        adapter = world.adapters["adp_payments"]
        lost = Lost(adapter)
        world.adapters["adp_payments"] = lost  # type: ignore[assignment]
        first = await world.invoke(request(900, "req_1"))
        assert first.waiting is not None
        second = await world.invoke(request(900, "req_2"))
        assert (second.ended, second.waiting) == (False, None)
        assert second.wake_at_us, "it looks again by itself"
        lost.lost = False

        told = operator.SettlementInput(
            happened=False, by="user_operator_5", evidence_ref="kg:order:ord_881#snapshot_kg_1"
        )
        await world.settle(first.run_id, told)
        world.clock.at_us += 400_000_000
        due = [one async for one in world.stores.due(world.clock.at_us)]
        assert (TENANT, second.run_id) in due
        await world.deployment.advance(TENANT, second.run_id)
        await asyncio.sleep(0)
        assert (await world.deployment.view(TENANT, second.run_id)).state == "completed"
        assert len(world.refunds()) == 1
        world.close()

    run(act())


class Ahead:
    """The clock of a machine that is 90 s ahead."""

    def __init__(self, clock: ManualClock, by_us: int = 90_000_000) -> None:
        self.clock, self.by_us = clock, by_us

    def now_us(self) -> int:
        return self.clock.now_us() + self.by_us


class Slow:
    """Payments on their way: the call pays when the test lets it, and a lookup finds only what was paid."""

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.go, self.under_way = adapter, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        self.under_way.set()
        await self.go.wait()
        return await self.adapter.call(capability, args, context)


def test_a_worker_whose_clock_is_ahead_does_not_take_a_call_for_never_sent(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        # The shop refuses by the time of this machine what comes after its `not_after`.
        clock = ManualClock(time.time_ns() // 1_000)
        world = await open_world(tmp_path, stores=stores, payments="lookup", clock=clock)
        slow = Slow(world.adapters["adp_payments"])
        world.adapters["adp_payments"] = slow
        first = asyncio.ensure_future(world.invoke(request(900, "req_1")))
        await asyncio.wait_for(slow.under_way.wait(), 60)
        run_id = (await world.stores.tenant(TENANT).read(INDEX))[0].key

        ports = replace(world.deployment.ports, clock=Ahead(clock), owner="ahead", alive=lambda owner: owner == "ahead")
        ahead = Deployment(ports, world.deployment.config)
        with suppress(Unavailable):
            await ahead.advance(TENANT, run_id)
        again = request(900, "req_2")
        blocked = None
        with suppress(Unavailable):
            blocked = await ahead.invoke(again)
        slow.go.set()
        with suppress(Unavailable):
            await first
        assert blocked is None or not blocked.ended
        clock.at_us += 400_000_000
        await world.deployment.advance(TENANT, run_id)
        assert (await world.deployment.view(TENANT, run_id)).state == "completed"
        assert len(world.refunds()) == 1, "paid once, under one key"
        await world.aclose()

    run(act())


def test_a_sender_whose_clock_is_behind_sends_nothing(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        clock = ManualClock()
        world = await open_world(tmp_path, stores=stores, clock=clock)
        world.deployment.ports = replace(world.deployment.ports, clock=Ahead(clock, -90_000_000))
        with pytest.raises((Unavailable, Conflict)):
            await world.invoke(request(900, "req_1"))
        assert world.refunds() == []
        await world.aclose()

    run(act())


def test_a_customer_with_more_edges_than_the_fan_out_is_not_a_customer_without_evidence(
    stores: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        known = {"observed_at": "2026-05-03T09:30:00Z", "integrity": "trusted", "classification": "CONFIDENTIAL"}
        orders = [
            {
                "src": f"order:more_{number:03}",
                "predicate": "placed_by",
                "dst": "customer:cus_77",
                "edge_id": f"0_{number:03}",
                "evidence_ref": f"artifact:order_more_{number:03}#rev_1",
                **known,
            }
            for number in range(51)
        ]
        await world.put_facts(orders)
        view = await world.invoke(request(900, "req_1"))
        assert view.state == "completed", view.record
        assert len(world.refunds()) == 1
        await world.aclose()

    asyncio.run(act())
