"""D21: an outage of the payments service ends by itself: every run is decided, paid once, and no person is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.audit.replay import replay
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterReply
from contextos.contracts.journal import Batch
from contextos.control.artifacts import POLICY_TYPE
from contextos.deployment import operator
from contextos.deployment.queries.timeline import tell_story
from contextos.deployment.restore import record_restore
from contextos.errors import Integrity, LostReply, Unavailable
from contextos.runtime.environment import RunLimits
from contextos.trust.seal import seal
from contextos_sim.memory.stores import MemoryStore
from tests.unit.control.example import policy_json
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    """`sqlite`, or the URL of a database of its own, with the application's role."""
    return "sqlite" if request.param == "sqlite" else str(request.getfixturevalue("database").app)


class Outage:
    """The payments service, which is away until a time. A call meets one of three faults, drawn by a seed."""

    def __init__(self, adapter: Any, clock: Any, until_us: int, faults: str) -> None:
        self.adapter, self.clock, self.until_us, self.faults, self.calls = adapter, clock, until_us, faults, 0
        self.rng = Random(7)

    def describe(self) -> Any:
        return self.adapter.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> AdapterReply:
        self.calls += 1
        if self.clock.at_us < self.until_us:
            fault = self.rng.choice(self.faults)
            if fault == "a":
                raise Unavailable("adp_payments", "it is away")
            if fault == "r":
                await self.adapter.call(capability, args, context)
            raise LostReply("no answer")
        reply: AdapterReply = await self.adapter.call(capability, args, context)
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: Any) -> AdapterReply | None:
        if self.clock.at_us < self.until_us:
            raise LostReply("no answer")
        found: AdapterReply | None = await self.adapter.lookup(capability, idempotency_key, context)
        return found


async def with_outage(world: TestWorld, seconds: float, faults: str = "arl", *, circuits: bool = True) -> Outage:
    until_us = world.clock.at_us + int(seconds * 1e6)
    outage = Outage(world.adapters["adp_payments"], world.clock, until_us, faults)
    world.adapters["adp_payments"] = outage
    world.deployment.breakers = CircuitBreakers(AdmissionLimits()) if circuits else None
    return outage


async def sweep_until_quiet(world: TestWorld, *, most_s: float = 100_000) -> None:
    """What an engine does, in virtual time: drive what is due, else go to the next wake. Nobody answers anything."""
    end_us = world.clock.at_us + int(most_s * 1e6)
    while world.clock.at_us < end_us:
        due = [one async for one in world.stores.due(world.clock.at_us)]
        for tenant_id, run_id in due:
            await world.deployment.advance(tenant_id, run_id)
        if due:
            continue
        step_us = 1_000
        while not [one async for one in world.stores.due(world.clock.at_us + step_us, limit=1)]:
            step_us *= 2
            if step_us > 1 << 50:
                return
        least_us = step_us // 2
        while step_us - least_us > 1_000:
            middle_us = (least_us + step_us) // 2
            found = [one async for one in world.stores.due(world.clock.at_us + middle_us, limit=1)]
            least_us, step_us = (least_us, middle_us) if found else (middle_us, step_us)
        world.clock.at_us += step_us


def asked(number: int) -> dict[str, Any]:
    return request(100 + number, f"req_{number}")


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("seconds", [0.1, pytest.param(5, marks=pytest.mark.soak), 600])
def test_keyed_runs_survive_an_outage_without_a_person(seconds: float, count: int, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        orders = [f"ord_d21{number}" for number in range(count)]
        await world.stock(*orders)
        await with_outage(world, seconds)
        run_ids = []
        for number, order in enumerate(orders):
            body = request(900, f"req_{number}")
            body["input"]["context"] |= {"order_id": order}
            run_ids.append((await world.invoke({**body, "mode": "batch"})).run_id)
        await sweep_until_quiet(world)
        views = [await world.deployment.view(TENANT, run_id) for run_id in run_ids]
        assert [view.run_id for view in views if view.state != "completed"] == []
        assert sorted(one["order_id"] for one in world.refunds()) == sorted(orders), "all are paid, each once"
        assert [view.run_id for view in views if view.waiting] == []
        world.close()

    run(act())


@pytest.mark.parametrize("faults", ["a", "r", "l"])
@pytest.mark.parametrize("circuits", [True, False])
def test_each_kind_of_fault_is_waited_out_on_both_stores(
    faults: str, circuits: bool, stores: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        outage = await with_outage(world, 600, faults, circuits=circuits)
        run_ids = [(await world.invoke(asked(number))).run_id for number in range(4)]
        await sweep_until_quiet(world)
        for run_id in run_ids:
            view = await world.deployment.view(TENANT, run_id)
            assert (view.state, view.record["budget_usage"]["tool_calls"]) == ("completed", 3)  # type: ignore[index]
            assert (await replay(world.deployment, TENANT, run_id)).record_hash == view.record["record_hash"]  # type: ignore[index]
        assert len(world.refunds()) == 4
        assert outage.calls < 4 * 20, "it is left alone while it is away"
        await world.aclose()

    run(act())


@pytest.mark.parametrize("payments", ["lookup", "none"])
def test_a_circuit_that_opened_before_anything_was_sent_parks_a_write_of_any_strategy(
    payments: str, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, payments=payments, clock=ManualClock(time.time_ns() // 1_000))
        await with_outage(world, 0)
        breakers = world.deployment.breakers
        assert breakers is not None
        for _ in range(5):
            circuit, _, _ = breakers.admit((TENANT, "adp_payments", "issue_refund"), world.clock.at_us)
            breakers.report((TENANT, "adp_payments", "issue_refund"), circuit.changes, world.clock.at_us, answer=False)
        view = await world.invoke(asked(1))
        assert (view.ended, view.waiting, world.refunds()) == (False, None, [])
        await sweep_until_quiet(world)
        assert (await world.deployment.view(TENANT, view.run_id)).state == "completed"
        assert len(world.refunds()) == 1
        world.close()

    run(act())


def test_a_lookup_is_waited_for_as_well(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, payments="lookup", clock=ManualClock(time.time_ns() // 1_000))
        await with_outage(world, 600, "r")
        view = await world.invoke(asked(1))
        await sweep_until_quiet(world)
        assert (await world.deployment.view(TENANT, view.run_id)).state == "completed"
        assert len(world.refunds()) == 1
        world.close()

    run(act())


@pytest.mark.parametrize("limit", ["pack", "key", "session"])
def test_only_when_the_limit_is_reached_is_a_person_asked(limit: str, tmp_path: Path) -> None:
    def change(pack: dict[str, Any]) -> None:
        if limit == "pack":
            pack["tooling_layer"]["max_retry_s"] = 60
        if limit == "session":
            pack["pack_meta"]["max_session_duration_ms"] = 60_000

    async def act() -> None:
        world = await open_world(tmp_path, pack=change)
        outage = await with_outage(world, 10 * 86_400, "l", circuits=False)
        if limit == "key":
            definition = outage.adapter.describe()
            (capability,) = definition.capabilities
            rule = capability.idempotency.model_copy(update={"key_ttl_s": 60})
            brief = definition.model_copy(
                update={"capabilities": (capability.model_copy(update={"idempotency": rule}),)}
            )
            outage.describe = lambda: brief  # type: ignore[method-assign]
        body = asked(1)
        began_us = world.clock.at_us
        view = await world.invoke({**body, "mode": "long_running"} if limit == "session" else body)
        await sweep_until_quiet(world)
        after = await world.deployment.view(TENANT, view.run_id)
        assert after.waiting is not None
        assert after.waiting["for"] == "settlement"
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        last = [one for one in entries if one.kind == "tool.dispatching"][-1]
        assert 50_000_000 < last.at_us - began_us <= 62_000_000, "up to the limit, and not beyond"
        world.close()

    run(act())


def test_what_was_cancelled_or_changed_during_the_outage_is_not_sent_after_it(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await with_outage(world, 600, "a")
        cancelled = (await world.invoke(asked(1))).run_id
        await operator.request_cancel(world.deployment, TENANT, cancelled, by=world.actor(), reason="no longer")
        await sweep_until_quiet(world)
        assert (await world.deployment.view(TENANT, cancelled)).state == "cancelled"

        await with_outage(world, 600, "a")
        revoked = (await world.invoke(asked(2))).run_id

        def leave(tenant: dict[str, Any]) -> None:
            for agent in tenant["agents"]:
                agent["lifecycle"] = "retired"

        world.edit_directory(leave)
        await sweep_until_quiet(world)
        view = await world.deployment.view(TENANT, revoked)
        assert (view.ended, view.state == "completed", world.refunds()) == (True, False, [])
        world.close()

    run(act())


async def cancels(world: TestWorld, run_id: str, _twin: str) -> None:
    await operator.request_cancel(world.deployment, TENANT, run_id, by=world.actor(), reason="no longer")


async def denies(world: TestWorld, _run_id: str, twin: str) -> None:
    assert (await world.approve(twin, "denied")).ended


async def restores(world: TestWorld, _run_id: str, _twin: str) -> None:
    await record_restore(world.deployment, None, TENANT, by=world.actor())


async def tightens(world: TestWorld, _run_id: str, _twin: str) -> None:
    await world.activate(
        ("tenant", await world.publish(seal(POLICY_TYPE, canonical(policy_json(tenant=TENANT)), world.keys, "pack")))
    )


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("meanwhile", [cancels, denies, restores, tightens])
def test_what_a_person_does_between_the_last_look_and_the_commit_of_an_attempt_stops_it(
    meanwhile: Callable[[TestWorld, str, str], Awaitable[None]], attempt: int, tmp_path: Path
) -> None:
    """The run has looked again, and found nothing that forbids the attempt; then a person acts, and then it commits."""

    async def act() -> None:
        world = await open_world(tmp_path)
        outage = await with_outage(world, 600, "a", circuits=False)
        # The twin asks a person about the same operation.
        run_id, twin = [(await world.invoke(request(4200, f"req_{number}"))).run_id for number in (1, 2)]
        commit, attempts, acted = MemoryStore.commit, 0, False

        async def late(store: MemoryStore, batch: Batch) -> None:
            nonlocal attempts, acted
            sent = [one.body or b"" for one in batch.entries if one.kind == "tool.dispatching"]
            attempts += batch.run == run_id and any(b"issue_refund" in body for body in sent)
            if attempts == attempt and not acted:
                acted, outage.until_us = True, 0
                await meanwhile(world, run_id, twin)
            await commit(store, batch)

        with patch.object(MemoryStore, "commit", late):
            await world.approve(run_id)
            with suppress(Integrity):  # what an engine reports: the store was restored between two attempts
                await sweep_until_quiet(world)
        view = await world.deployment.view(TENANT, run_id)
        assert acted
        assert (view.state == "completed", outage.calls, world.refunds()) == (False, attempt - 1, [])
        world.close()

    run(act())


def test_a_process_that_dies_while_a_run_is_parked_changes_nothing(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        outage = await with_outage(world, 600, "r")
        run_id = (await world.invoke(asked(1))).run_id
        clock = world.clock
        world.deployment.close()
        again = await open_world(tmp_path, stores=stores, clock=clock)
        outage.adapter = again.adapters["adp_payments"]
        again.adapters["adp_payments"] = outage
        await sweep_until_quiet(again)
        assert (await again.deployment.view(TENANT, run_id)).state == "completed"
        assert len(again.refunds()) == 1
        await again.aclose()
        await world.aclose()

    run(act())


def test_the_story_says_that_it_was_sent_again_under_the_same_key(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await with_outage(world, 5, "r")
        run_id = (await world.invoke(asked(1))).run_id
        await sweep_until_quiet(world)
        entries = await world.stores.tenant(TENANT).read(run_id)
        told = str(tell_story(entries))
        assert "(sent again under the same key)" in told
        assert "sent again under the same key after a wait of 0." in told
        keys = {
            json.loads(one.body or b"")["envelope"].get("idempotency_key")
            for one in entries
            if one.kind == "tool.dispatching" and "adp_payments" in str(one.body)
        }
        assert len(keys) == 1
        world.close()

    run(act())


def test_a_grouped_read_that_an_open_circuit_refuses_is_dispatched_once(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        world.deployment.breakers = CircuitBreakers(AdmissionLimits())
        for name in ("adp_orders", "adp_policy"):
            for _ in range(5):
                capability = world.adapters[name].describe().capabilities[0].name
                circuit, _, _ = world.deployment.breakers.admit((TENANT, name, capability), world.clock.at_us)
                world.deployment.breakers.report(
                    (TENANT, name, capability), circuit.changes, world.clock.at_us, answer=False
                )
        view = await world.invoke(asked(1))
        assert view.state == "escalated"
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        bodies = [json.loads(one.body or b"") for one in entries if one.kind == "tool.dispatching"]
        sent = [body["envelope"]["capability_id"] for body in bodies]
        assert len(sent) == len(set(sent)), sent
        world.close()

    run(act())


class SlowOutage(Outage):
    """Each call takes a second. `granted` has the time that each attempt was given, in milliseconds."""

    granted: tuple[float, ...] = ()

    async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> AdapterReply:
        self.granted += ((context.not_after_us - self.clock.at_us) / 1_000,)
        self.clock.at_us += 1_000_000
        return await super().call(capability, args, context)


@pytest.mark.parametrize(("faults", "paid"), [("a", 0), ("l", 1)])
def test_the_wall_clock_of_a_run_limits_attempts_and_not_the_waits_between_them(
    faults: str, paid: int, stores: str, tmp_path: Path
) -> None:
    """An attempt that was certainly not sent has what calls left of 4 s; one under an uncertain key is not limited."""

    async def act() -> None:
        world = await open_world(tmp_path, stores=stores, limits=RunLimits(wall_clock_ms=4_000))
        until_us = world.clock.at_us + 60_000_000
        outage = SlowOutage(world.adapters["adp_payments"], world.clock, until_us, faults)
        world.adapters["adp_payments"] = outage  # type: ignore[assignment]
        world.deployment.breakers = None
        view = await world.invoke(asked(1))
        await sweep_until_quiet(world)
        view = await world.deployment.view(TENANT, view.run_id)
        first, *later = outage.granted
        assert 3_000 < first <= 4_000, "the rest of the run's wall clock, and not the 10 s of the capability"
        if faults == "a":
            rest = [4_000 - 1_000 * attempt for attempt in range(1, 4)]
            assert [round(one, -3) for one in later] == rest, "each call counts, and no wait does"
        else:
            assert {round(one, -2) for one in later} == {10_000}, "what became of a call has to be known"
        assert view.record is not None
        assert (view.state, len(world.refunds())) == ("exhausted", paid)
        assert "wall_clock_ms" in view.record["rationale"]["failures"][0]["detail"]
        assert len(view.record["effects"]) == paid, "what was paid is on record"
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        await world.aclose()

    run(act())
