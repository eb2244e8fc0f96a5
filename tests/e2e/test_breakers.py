"""A capability that keeps failing is not called for a while; an uncertain effect stays so until it is reconciled."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.envelopes.tool import AdapterReply, ToolError
from contextos.contracts.ports.outside import Adapter
from contextos.errors import LostReply, Unavailable
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run

COOL_US = 60_000_000
LIMITS = AdmissionLimits(breaker_failures_in_a_row=2, breaker_cool_down_ms=COOL_US // 1_000)


class Failing:
    """An adapter that works, or fails as the test says: `away` before it acts, `lost` after, `no` by an answer."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter, self.fails, self.calls = adapter, "", 0

    def describe(self) -> Any:
        return self.adapter.describe()

    async def call(self, capability: str, args: Any, context: Any) -> AdapterReply:
        self.calls += 1
        if self.fails == "away":
            raise Unavailable("adp", "it is away")
        if self.fails == "no":
            return AdapterReply(error=ToolError(code="no_such_order", message="there is no such order"))
        reply = await self.adapter.call(capability, args, context)
        if self.fails == "lost":
            raise LostReply("the answer is lost")
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: Any) -> AdapterReply | None:
        self.calls += 1
        if self.fails:
            raise LostReply("the answer is lost")
        return await self.adapter.lookup(capability, idempotency_key, context)


async def opened(path: Path, name: str, payments: str = "keyed") -> tuple[TestWorld, Failing]:
    # The shop refuses by the time of this machine what comes after its `not_after`.
    world = await open_world(path, payments=payments, clock=ManualClock(time.time_ns() // 1_000))
    world.deployment.breakers = CircuitBreakers(LIMITS)
    failing = Failing(world.adapters[name])
    world.adapters[name] = failing
    return world, failing


async def stated(world: TestWorld) -> dict[str, Any]:
    found = await world.stores.tenant(TENANT).scan("breakers")
    return {one.key: json.loads(one.body) for one in found}


async def last_outcome(world: TestWorld, run_id: str) -> dict[str, Any]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    answers = [json.loads(one.body)["answer"] for one in entries if one.kind == "tool.returned"]
    found: dict[str, Any] = answers[-1]
    return found


@pytest.mark.requirement("A-BREAKER")
def test_while_a_circuit_is_open_nothing_is_sent_and_the_record_says_when_it_may_be(tmp_path: Path) -> None:
    async def act() -> None:
        world, orders = await opened(tmp_path, "adp_orders")
        orders.fails = "away"
        first = await world.invoke(request(900, "req_1"))
        assert (first.state, orders.calls) == ("escalated", 2)
        second = await world.invoke(request(900, "req_2"))
        assert (second.state, orders.calls) == ("escalated", 2)
        outcome = await last_outcome(world, second.run_id)
        error = outcome["envelope"]["error"]
        assert (outcome["outcome"], error["code"], error["retryable"]) == ("not_sent", "circuit_open", True)
        assert "try again in" in error["message"]
        circuit = (await stated(world))["adp_orders.lookup"]
        assert (circuit["state"], circuit["failures"]) == ("open", 2)

        orders.fails = ""
        world.clock.at_us += COOL_US
        third = await world.invoke(request(900, "req_3"))
        assert (third.state, len(world.refunds())) == ("completed", 1)
        assert (await stated(world))["adp_orders.lookup"]["state"] == "closed"

    run(act())


@pytest.mark.requirement("A-BREAKER-UNCERTAIN")
@pytest.mark.parametrize("payments", ["keyed", "lookup"])
def test_an_uncertain_payment_waits_for_the_circuit_and_is_then_found_to_have_happened(
    tmp_path: Path, payments: str
) -> None:
    async def act() -> None:
        world, shop = await opened(tmp_path, "adp_payments", payments)
        shop.fails = "lost"
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, view.ended, view.waiting, shop.calls) == ("executing", False, None, 2)
        assert view.wake_at_us is not None
        assert view.wake_at_us > world.clock.at_us
        keys = await world.stores.tenant(TENANT).scan("keys")
        assert json.loads(keys[0].body)["state"] == "claimed"

        still = await world.deployment.advance(TENANT, view.run_id)
        assert (still.state, shop.calls, len(world.refunds())) == ("executing", 2, 1)

        shop.fails = ""
        world.clock.at_us += COOL_US
        await world.deployment.advance(TENANT, view.run_id)
        after = await world.deployment.view(TENANT, view.run_id)
        assert (after.state, shop.calls, len(world.refunds())) == ("completed", 3, 1)

    run(act())


@pytest.mark.requirement("A-BREAKER-UNCERTAIN")
@pytest.mark.parametrize("payments", ["keyed", "lookup"])
def test_a_long_outage_adds_nothing_to_the_journal_of_a_run_that_waits_for_it(tmp_path: Path, payments: str) -> None:
    async def act() -> None:
        world, shop = await opened(tmp_path, "adp_payments", payments)
        shop.fails = "lost"
        view = await world.invoke(request(900, "req_1"))
        before = await world.kinds(view.run_id)
        # Another call of the tenant takes each probe first, and fails.
        place, breakers = (TENANT, "adp_payments", "issue_refund"), world.deployment.breakers
        assert breakers is not None
        for _ in range(4):
            world.clock.at_us += COOL_US
            probed, goes, _ = breakers.admit(place, world.clock.at_us)
            opened_again, _ = breakers.report(place, probed.changes, world.clock.at_us, answer=False)
            woken = await world.deployment.advance(TENANT, view.run_id)
            assert woken is not None
            assert (goes, woken.wake_at_us) == (True, opened_again.retry_at_us), "it is woken when it may be asked"
        assert await world.kinds(view.run_id) == before

        shop.fails = ""
        world.clock.at_us += COOL_US
        await world.deployment.advance(TENANT, view.run_id)
        after = await world.deployment.view(TENANT, view.run_id)
        assert (after.state, len(world.refunds())) == ("completed", 1)

    run(act())


@pytest.mark.requirement("A-BREAKER-UNCERTAIN")
@pytest.mark.parametrize("payments", ["keyed", "lookup"])
def test_once_one_probe_is_answered_all_that_waited_for_the_circuit_go_on_at_their_next_wake(
    tmp_path: Path, payments: str
) -> None:
    """Several payments are on their way when the answers stop; one of them probes, and none is left behind."""
    amounts = (900, 901, 902, 903)

    class Together(Failing):
        """All of the first calls are on their way before one of them fails."""

        async def call(self, capability: str, args: Any, context: Any) -> AdapterReply:
            if self.calls < len(amounts):
                self.calls += 1
                await barrier.wait()
                self.calls -= 1
            return await super().call(capability, args, context)

    async def act() -> None:
        world, shop = await opened(tmp_path, "adp_payments", payments)
        together = Together(shop.adapter)
        world.adapters["adp_payments"] = together
        together.fails = "lost"
        views = await asyncio.gather(*(world.invoke(request(amount, f"req_{amount}")) for amount in amounts))
        assert {view.state for view in views} == {"executing"}
        asked = together.calls

        together.fails = ""
        world.clock.at_us += COOL_US
        woken = await asyncio.gather(*(world.deployment.advance(TENANT, view.run_id) for view in views))
        assert sorted(one.state for one in woken) == ["completed", "executing", "executing", "executing"]
        assert (together.calls, (await stated(world))["adp_payments.issue_refund"]["state"]) == (asked + 1, "closed")
        wakes = [one.wake_at_us for one in woken if one.wake_at_us]
        assert max(wakes) <= world.clock.at_us + COOL_US

        world.clock.at_us = max(wakes)
        await asyncio.gather(*(world.deployment.advance(TENANT, view.run_id) for view in views))
        ended = [await world.deployment.view(TENANT, view.run_id) for view in views]
        assert ([one.state for one in ended], together.calls) == (["completed"] * 4, asked + 4)
        assert sorted(one["amount_inr"] for one in world.refunds()) == list(amounts)

    barrier = asyncio.Barrier(len(amounts))
    run(act())


@pytest.mark.requirement("A-BREAKER-UNCERTAIN")
def test_a_probe_whose_time_went_by_while_it_was_announced_is_not_sent(tmp_path: Path) -> None:
    class Slow:
        """A store in which it takes a minute to write the state of a circuit."""

        def __init__(self, store: Any, clock: ManualClock) -> None:
            self.store, self.clock = store, clock

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

        async def commit(self, batch: Any) -> None:
            await self.store.commit(batch)
            self.clock.at_us += 60_000_000 * any(write.collection == "breakers" for write in batch.writes)

    class SlowStores:
        def __init__(self, world: TestWorld) -> None:
            self.stores, self.clock = world.stores, world.clock

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stores, name)

        def tenant(self, tenant_id: str) -> Any:
            return Slow(self.stores.tenant(tenant_id), self.clock)

    async def act() -> None:
        world, shop = await opened(tmp_path, "adp_payments", "lookup")
        shop.fails = "away"
        for number in range(2):
            await world.invoke(request(900, f"req_{number}"))
        sent = shop.calls
        shop.fails = ""
        world.clock.at_us += COOL_US
        world.deployment.ports = replace(world.deployment.ports, stores=SlowStores(world))
        view = await world.invoke(request(900, "req_late"))
        # The minute that it took counts as wall clock of the run.
        assert (view.state, shop.calls, world.refunds()) == ("exhausted", sent, [])

    run(act())


def test_a_business_error_opens_no_circuit(tmp_path: Path) -> None:
    async def act() -> None:
        world, orders = await opened(tmp_path, "adp_orders")
        orders.fails = "no"
        for number in range(4):
            assert (await world.invoke(request(900, f"req_{number}"))).state == "escalated"
        assert orders.calls == 4
        assert await stated(world) == {}

    run(act())
