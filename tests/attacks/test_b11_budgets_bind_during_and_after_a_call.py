"""B11: a hostile or slow adapter, planner or requester cannot use more than the run's budget and be DECIDED."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function.adapter import FunctionAdapter
from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.deployment.operator import SettlementInput
from contextos.errors import LostReply
from contextos.runtime.environment import RunLimits
from contextos.store.shared.clock import SystemClock
from tests.e2e.test_planner import RefundPlanner, planned_by
from tests.world import OPERATOR, TENANT, TestWorld, example, open_world, request, run

PAID = {"transaction_id": "txn_1", "refund_amount_inr": 900, "currency": "INR"}
SLOW_MS = 400


@dataclass
class HostilePayments:
    """Payments that take the money, and then are slow or expensive."""

    cost_cents: float = 0.31
    hangs: bool = False
    paid: list[Mapping[str, Any]] = field(default_factory=list)
    contexts: list[CallContext] = field(default_factory=list)

    async def issue_refund(self, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.paid.append(dict(args))
        self.contexts.append(context)
        if self.hangs:
            await asyncio.sleep(3_600)
        return AdapterReply(output=PAID, mutations=("refund:txn_1",), cost_cents=self.cost_cents)

    def into(self, world: TestWorld) -> None:
        definition = world.adapters["adp_payments"].describe()
        world.adapters["adp_payments"] = FunctionAdapter(definition, {"issue_refund": self.issue_refund})


def first_failure(view: Any) -> dict[str, Any]:
    failure: dict[str, Any] = view.record["rationale"]["failures"][0]
    return failure


async def body_of(world: TestWorld, run_id: str, kind: str) -> Any:
    import orjson

    entries = await world.stores.tenant(TENANT).read(run_id)
    return orjson.loads(next(entry.body for entry in reversed(entries) if entry.kind == kind))


def test_a_call_that_costs_more_than_the_run_may_spend_ends_it_with_the_effect_on_record(
    tmp_path: Path, stores: str
) -> None:
    async def attack() -> None:
        world, payments = await open_world(tmp_path, stores=stores), HostilePayments(cost_cents=5_000)
        try:
            payments.into(world)
            view = await world.invoke(request(900, "req_costs"))
            assert view.state == "exhausted"
            assert first_failure(view)["code"] == "budget_exhausted"
            assert "max_cost_cents" in first_failure(view)["detail"]
            assert payments.paid, "the money did move"
            assert (await body_of(world, view.run_id, "tool.returned"))["answer"]["happened"]
            assert view.record["budget_usage"]["cost_usd_cents"] > 5_000
            assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        finally:
            await world.aclose()

    run(attack())


def test_the_wall_clock_cancels_a_write_in_flight_and_its_outcome_is_unknown(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        limits = RunLimits(wall_clock_ms=SLOW_MS)
        world = await open_world(tmp_path, stores=stores, payments="none", limits=limits, clock=SystemClock())
        payments = HostilePayments(hangs=True)
        try:
            payments.into(world)
            view = await world.invoke(request(900, "req_hangs"))
            assert payments.contexts[0].timeout_ms <= SLOW_MS + 1, "the adapter is told the time that is left"
            assert view.waiting, "never assumed undone"
            assert view.waiting["for"] == "settlement"
            found = SettlementInput(True, OPERATOR, "artifact:bank_statement#rev_1", PAID, ("refund:txn_1",))
            view = await world.settle(view.run_id, found)
            assert view.state == "exhausted"
            assert first_failure(view)["code"] == "budget_exhausted"
            assert "wall_clock_ms" in first_failure(view)["detail"]
            assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        finally:
            await world.aclose()

    run(attack())


@dataclass
class Deaf:
    """An adapter of somebody's own that hangs, and goes on hanging when it is cancelled."""

    definition: AdapterDefinition
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def describe(self) -> AdapterDefinition:
        return self.definition

    async def call(self, _capability: str, _args: Mapping[str, Any], _context: CallContext) -> AdapterReply:
        while not self.freed.is_set():
            with suppress(asyncio.CancelledError):
                await self.freed.wait()
        return AdapterReply(output={})

    async def lookup(self, _capability: str, _key: str, _context: CallContext) -> AdapterReply | None:
        raise LostReply("not known")


@pytest.mark.parametrize("listens", [True, False])
def test_a_read_that_hangs_ends_the_run_at_its_deadline_as_exhausted(
    tmp_path: Path, stores: str, listens: bool
) -> None:
    async def hang(_args: Mapping[str, Any], _context: CallContext) -> dict[str, Any]:
        await asyncio.sleep(3_600)
        return {}

    async def attack() -> None:
        limits = RunLimits(wall_clock_ms=SLOW_MS)
        world = await open_world(tmp_path, stores=stores, limits=limits, clock=SystemClock())
        definition = world.adapters["adp_orders"].describe()
        deaf = Deaf(definition)
        try:
            world.adapters["adp_orders"] = FunctionAdapter(definition, {"lookup": hang}) if listens else deaf
            view = await world.invoke(request(900, "req_hangs"))
            assert (view.state, first_failure(view)["code"]) == ("exhausted", "budget_exhausted")
            assert view.record["budget_usage"]["wall_clock_ms"] < 5_000, "not the 5 s of the capability"
            assert world.refunds() == []
        finally:
            deaf.freed.set()
            await world.aclose()

    run(attack())


class SlowPlanner(RefundPlanner):
    async def propose(self, request: Any) -> Mapping[str, Any]:
        await asyncio.sleep(3_600)
        return await super().propose(request)


@pytest.mark.parametrize("bound", ["wall_clock", "hint"])
def test_a_planner_that_never_answers_is_cut_by_the_run_and_by_the_request(
    tmp_path: Path, stores: str, bound: str
) -> None:
    async def attack() -> None:
        limits = RunLimits(wall_clock_ms=SLOW_MS) if bound == "wall_clock" else RunLimits()
        world = await open_world(tmp_path, stores=stores, limits=limits, clock=SystemClock())
        try:
            planned_by(world, SlowPlanner())
            body = request(900, "req_plans")
            body["runtime"]["plan_timeout_ms"] = SLOW_MS if bound == "hint" else 15_000
            view = await world.invoke(body)
            assert (view.state, first_failure(view)["code"]) == ("exhausted", "budget_exhausted")
            named = "wall_clock_ms" if bound == "wall_clock" else "plan_timeout_ms"
            assert named in first_failure(view)["detail"]
            planned_by(world, None)
            assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        finally:
            await world.aclose()

    run(attack())


LIMITS: dict[str, tuple[Any, str]] = {
    "total_tokens": (1, "exhausted"),
    "max_tool_calls": (1, "exhausted"),
    "max_cost_cents": (0.1, "exhausted"),
    "wall_clock_ms": (1, "exhausted"),
    "max_replan_attempts": (0, "completed"),
    "max_payload_bytes": (300, "exhausted"),
}


@pytest.mark.parametrize("owner", ["agent", "tenant"])
@pytest.mark.parametrize("name", sorted(LIMITS))
def test_the_directory_limits_an_agent_and_a_tenant_in_each_dimension(tmp_path: Path, owner: str, name: str) -> None:
    value, state = LIMITS[name]

    async def attack() -> None:
        world = await open_world(tmp_path)
        try:

            def lower(tenant: dict[str, Any]) -> None:
                limits = tenant["agents"][0] if owner == "agent" else tenant.setdefault("limits", {})
                limits[name] = value

            world.edit_directory(lower)
            view = await world.invoke(request(900, "req_limited"))
            assert view.state == state
            if state == "exhausted":
                assert name in first_failure(view)["detail"]
                assert f"of the {owner}" in first_failure(view)["detail"], "the record says whose limit it is"
            if name != "max_payload_bytes":
                budget = await body_of(world, view.run_id, "run.context")
                assert budget["run_budget"]["limited_by"] == {name: owner}
                assert budget["run_budget"][name] == value
        finally:
            await world.aclose()

    run(attack())


def test_the_strictest_of_all_limits_wins(tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, limits=RunLimits(max_tool_calls=7))
        try:

            def limit(tenant: dict[str, Any]) -> None:
                tenant["agents"][0]["max_tool_calls"] = 5
                tenant["limits"] = {"max_tool_calls": 6}

            world.edit_directory(limit)
            for hint, expected, whose in ((8, 5, {"max_tool_calls": "agent"}), (4, 4, {})):
                body = request(900 + hint, f"req_{hint}")
                body["runtime"]["max_tool_calls"] = hint
                view = await world.invoke(body)
                budget = (await body_of(world, view.run_id, "run.context"))["run_budget"]
                assert (budget["max_tool_calls"], budget.get("limited_by", {})) == (expected, whose)
        finally:
            await world.aclose()

    run(attack())


def test_the_deployment_limits_a_request_and_a_pack_that_both_ask_for_more(tmp_path: Path) -> None:
    most = {
        "total_tokens": 9_000,
        "max_tool_calls": 1,
        "max_replan_attempts": 1,
        "wall_clock_ms": 20_000,
        "max_cost_cents": 10,
    }

    async def attack() -> None:
        world = await open_world(tmp_path, limits=RunLimits(**most))
        stated = example("pack.json")["pack_meta"]["run_budget"]
        body = request(900, "req_more")
        body["runtime"] |= {name: value * 10 for name, value in most.items()}
        assert all(stated[name] > value < body["runtime"][name] for name, value in most.items())
        view = await world.invoke(body)
        budget = (await body_of(world, view.run_id, "run.context"))["run_budget"]
        assert {name: budget[name] for name in most} == most
        assert (view.state, world.refunds()) == ("exhausted", [])
        world.close()

    run(attack())


def test_a_session_is_bounded_by_the_directory_too(tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path)
        try:
            world.edit_directory(lambda tenant: tenant.update(limits={"max_session_duration_ms": 1}))
            body = request(900, "req_session") | {"mode": "long_running"}
            view = await world.invoke(body)
            await world.deployment.advance(TENANT, view.run_id)
            view = await world.deployment.view(TENANT, view.run_id)
            assert (view.state, first_failure(view)["code"]) == ("exhausted", "budget_exhausted")
            assert world.refunds() == []
        finally:
            await world.aclose()

    run(attack())
