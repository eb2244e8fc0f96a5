"""Independent reads of a plan run at the same time, and whichever answers first the run comes to the same record."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.action.gateway import tool_gateway
from contextos.action.gateway.guarded_call import GuardContext
from contextos.audit.replay import replay
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.envelopes.tool import AdapterReply
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.concurrency import Sequential
from contextos.decision import parallel_reads
from contextos.errors import Unavailable
from contextos.runtime.environment import RunLimits
from contextos.workspace.engine.admission_controller import AdmissionController
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.engine.local import LocalEngine
from contextos.workspace.engine.resume import drive_due_runs
from tests.e2e.test_business_hours import OFFICE, at
from tests.e2e.test_verdicts import Wrapped
from tests.sessions import LOOKUP
from tests.world import TENANT, TestWorld, open_world, request, run

OTHERS = ("ord_882", "ord_883", "ord_895")
ORDERS = ("ord_881", "ord_882")
GROUP = ("s1", "r0", "r1", "r2")


def reading_more(body: dict[str, Any]) -> None:
    """The example's plan with three more reads beside its first one."""
    template = body["decision_layer"]["task_templates"][0]
    first, *rest = template["steps"]
    more = [
        {**copy.deepcopy(first), "id": f"r{number}", "params": {"order_id": order}}
        for number, order in enumerate(OTHERS)
    ]
    template["steps"] = [first, *more, *rest]


class InOrder:
    """A `Concurrency` that lets the calls of a group answer in a given order, and stops the machine after some."""

    def __init__(self, order: Sequence[int], stop_after: int | None = None) -> None:
        self._order, self._stop_after = order, stop_after

    async def gather(self, calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
        if len(calls) != len(GROUP):
            return await Sequential().gather(calls)
        for answered, number in enumerate(self._order):
            if answered == self._stop_after:
                raise Unavailable("machine", "it stops in the middle of the group")
            await calls[number]()
        return None

    async def within(self, _timeout_ms: int, call: Callable[[], Awaitable[Any]]) -> Any:
        return await call()


class Chance:
    """The same entropy in every world, so that runs differ by the order of answers alone."""

    def __init__(self) -> None:
        self._random = Random(7)

    def take(self, count: int) -> bytes:
        return self._random.randbytes(count)


@asynccontextmanager
async def opened(path: Path, stores: str, concurrency: Any) -> AsyncIterator[TestWorld]:
    world = await open_world(path, stores=stores, pack=reading_more)
    world.deployment.ports = replace(world.deployment.ports, concurrency=concurrency, entropy=Chance())
    try:
        yield world
    finally:
        await world.aclose()


ORDER_DEPENDENT = frozenset(
    {
        "record_hash",
        "timestamp",
        "lineage.ledgers.context.head",
        "lineage.ledgers.effect.head",
        "lineage.ledgers.decision.head",
        "replay.tool_transcript_chain_hash",
    }
)
"""What of a record depends on the order in which reads answered: when the run ended, and hashes over its entries."""
RESTART_DEPENDENT = ORDER_DEPENDENT | {"budget_usage.wall_clock_ms", "scorecard.latency_ms", "scorecard.latency.score"}
"""What also depends on a restart within the group: durations."""


def differing(one: Any, other: Any, where: str = "") -> set[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            found
            for name in one.keys() | other.keys()
            for found in differing(one.get(name), other.get(name), f"{where}.{name}".lstrip("."))
        }
    return set() if one == other else {where}


async def refunded(path: Path, stores: str, order: Sequence[int], stop_after: int | None) -> dict[str, Any]:
    """The record of a refund whose reads answered in `order`, stopped after some and driven on by another process."""
    body = request(900, "req_parallel")
    async with opened(path, stores, InOrder(order, stop_after)) as world:
        if stop_after is not None:
            with pytest.raises(Unavailable):
                await world.invoke(body)
            world.deployment.ports = replace(world.deployment.ports, concurrency=Sequential())
        view = await world.invoke(body)
        assert view.state == "completed", view
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        replayed = await replay(world.deployment, TENANT, view.run_id)
        assert (replayed.record_hash, replayed.compared) == (view.record["record_hash"], len(entries))
        assert len(world.refunds()) == 1
        answered = [entry.key for entry in entries if entry.kind == "tool.returned"][: len(GROUP)]
        first = [f"0/{GROUP[number]}/1" for number in order][:stop_after]
        assert answered[: len(first)] == first, "on record is the order of arrival"
        assert sorted(answered) == sorted(f"0/{name}/1" for name in GROUP), "what was answered is not asked again"
        return dict(view.record)


@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_the_record_is_the_same_whichever_answer_came_first(stores: str) -> None:
    with tempfile.TemporaryDirectory() as first:
        expected = run(refunded(Path(first), stores, range(4), None))

    @settings(max_examples=25, deadline=None)
    @given(st.permutations(range(4)), st.one_of(st.none(), st.integers(0, 3)))
    def holds(order: list[int], stop_after: int | None) -> None:
        with tempfile.TemporaryDirectory() as name:
            record = run(refunded(Path(name), stores, order, stop_after))
        assert differing(expected, record) <= (ORDER_DEPENDENT if stop_after is None else RESTART_DEPENDENT)

    holds()


class SlowOrders:
    """The orders adapter with replies that take 20 ms, and how many were under way at once."""

    def __init__(self, adapter: Any) -> None:
        self._adapter, self.now, self.most = adapter, 0, 0

    def describe(self) -> Any:
        return self._adapter.describe()

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.02)
        self.now -= 1
        return await self._adapter.call(capability, args, context)


def test_reads_are_under_way_at_once_and_the_run_gives_its_turn_away_once(tmp_path: Path) -> None:
    async def refund() -> tuple[int, list[str]]:
        async with opened(tmp_path, "memory", AsyncioConcurrency()) as world:
            orders = world.adapters["adp_orders"] = SlowOrders(world.adapters["adp_orders"])  # type: ignore[assignment]
            admission = AdmissionController(AdmissionLimits(max_turns=1), world.clock)
            world.deployment.ports = replace(world.deployment.ports, admission=admission)
            views = await asyncio.gather(
                *(world.invoke(request(900, f"req_{order}", order_id=order)) for order in ORDERS)
            )
            for view in views:
                await replay(world.deployment, TENANT, view.run_id)
            return orders.most, [view.state for view in views]

    most, states = run(refund())
    assert most >= len(GROUP)
    assert states == ["completed"] * len(ORDERS)


@pytest.mark.parametrize(("calls", "cost"), [(4, 100.0), (5, 100.0), (6, 100.0), (50, 0.35), (50, 0.75)])
def test_a_group_never_takes_more_than_the_budget_has_left(tmp_path: Path, calls: int, cost: float) -> None:
    """The same end as when reads go one after the other: what does not fit is refused when it is its turn."""

    async def outcome(width: int) -> tuple[Any, ...]:
        path = tmp_path / str(width)
        path.mkdir()
        limits = RunLimits(max_tool_calls=calls, max_cost_cents=cost)
        async with opened(path, "memory", AsyncioConcurrency()) as world:
            world.deployment.config = replace(world.deployment.config, limits=limits)
            with patch.object(parallel_reads, "MAX_PARALLEL_READS", width):
                view = await world.invoke(request(900, "req_bounded"))
            used = view.record["budget_usage"]
            return view.state, used["tool_calls"], used["cost_usd_cents"], view.record["rationale"]["failures"]

    assert run(outcome(8)) == run(outcome(1))


def test_a_group_whose_session_ends_while_its_calls_are_checked_sends_none_of_them(tmp_path: Path) -> None:
    async def refund() -> tuple[str, list[str]]:
        async with opened(tmp_path, "memory", Sequential()) as world:

            async def slow(_: GuardContext, call: ToolCall) -> None:
                # The directory does not answer for a minute while the last read of the group is checked.
                world.clock.at_us += 60_000_000 if call.key.endswith("r2") else 0

            body = request(900, "req_slow") | {"mode": "long_running"}
            body["runtime"] = {**body["runtime"], "max_session_duration_ms": 5_000}
            with patch.object(tool_gateway, "GUARDS", (slow, *tool_gateway.GUARDS)):
                run_id = (await world.invoke(body)).run_id
                await drive_due_runs(world.deployment, LocalEngine(world.deployment.advance, world.stores, world.clock))
            replayed = await replay(world.deployment, TENANT, run_id)
            return replayed.status, await world.kinds(run_id)

    state, kinds = run(refund())
    assert state == "ESCALATED", kinds
    assert "tool.dispatching" not in kinds
    assert "tool.refused" in kinds


@pytest.mark.parametrize("about", [{"capability": LOOKUP}, {}])
def test_reads_that_a_clock_decides_are_each_judged_when_they_are_sent(about: dict[str, str], tmp_path: Path) -> None:
    """The office closes while its first read is under way; the rule is about the reads, or about every tool."""

    class Slow(Wrapped):
        async def call(self, *asked: Any) -> AdapterReply:
            world.clock.at_us = at("2026-10-26T17:00:01")
            return await super().call(*asked)

    def change(body: dict[str, Any]) -> None:
        reading_more(body)
        bundle = body["policy_layer"]["policy_bundles"][0]
        bundle["business_hours"] = {"office": OFFICE}
        closed = {"if": {"!": [{"var": "clock.office.open"}]}, "then": {"allow": False}, "rationale": "closed"}
        bundle["policy_dsl"]["rules"].append({"rule_id": "R_CLOSED", "applies_to": about, **closed})

    world = run(open_world(tmp_path, pack=change))
    orders = world.adapters["adp_orders"] = Slow(world.adapters["adp_orders"])  # type: ignore[assignment]
    world.clock.at_us = at("2026-10-26T16:59:55")
    view = run(world.invoke(request(900, "req_closing")))
    assert (view.state, len(orders.calls)) == ("refused", 1)
    assert "R_CLOSED" in view.record["rationale"]["failures"][0]["detail"]
    assert run(replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
    world.close()
