"""B12: after `cancel` is committed, a run makes no further call of any kind: no read, no plan, no retry, no write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function.adapter import FunctionAdapter
from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import CallContext
from contextos.deployment import operator
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ApprovalRefused, LostReply, Unavailable
from tests.e2e.test_planner import RefundPlanner, planned_by
from tests.world import TENANT, TestWorld, open_world, request, run


async def cancel(world: TestWorld, run_id: str) -> None:
    await operator.request_cancel(world.deployment, TENANT, run_id, by=world.actor(), reason="the customer called back")


async def driven(world: TestWorld) -> RunView:
    """A run that is on disk before it is driven, so that it can be cancelled at any moment."""
    view = await world.invoke(request(900, "req_cancelled") | {"mode": "long_running"})
    await world.deployment.advance(TENANT, view.run_id)
    return view


@dataclass
class CancelledMeanwhile:
    """The adapters of the example. While `during` is called, the user cancels the run; `calls` counts every call."""

    world: TestWorld
    during: str
    fails: bool = False
    calls: list[str] = field(default_factory=list)

    def install(self) -> None:
        for adapter_id, inner in list(self.world.adapters.items()):
            definition = inner.describe()
            functions = {one.name: self._function(inner, one.name) for one in definition.capabilities}
            self.world.adapters[adapter_id] = FunctionAdapter(definition, functions)

    def _function(self, inner: Any, name: str) -> Callable[..., Any]:
        async def call(args: Mapping[str, Any], context: CallContext) -> Any:
            self.calls.append(name)
            if name == self.during and self.calls.count(name) == 1:
                await cancel(self.world, context.run_id)
                if self.fails:
                    raise Unavailable("adp_orders", "the line is down")
            return await inner.call(name, args, context)

        return call


async def ends_cancelled(world: TestWorld, run_id: str) -> None:
    view = await world.deployment.view(TENANT, run_id)
    assert view.state == "cancelled"
    assert view.record is not None
    assert view.record["rationale"]["failures"][0]["code"] == "cancelled"
    assert world.refunds() == []
    assert (await replay(world.deployment, TENANT, run_id)).record_hash == view.record["record_hash"]


def test_no_read_follows_a_cancel_that_came_during_a_read(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores)
        try:
            adapters = CancelledMeanwhile(world, "lookup")
            adapters.install()
            view = await driven(world)
            assert adapters.calls == ["lookup"]
            await ends_cancelled(world, view.run_id)
        finally:
            await world.aclose()

    run(attack())


def test_a_read_that_failed_is_not_tried_again_after_a_cancel(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores)
        try:
            adapters = CancelledMeanwhile(world, "lookup", fails=True)
            adapters.install()
            view = await driven(world)
            assert adapters.calls == ["lookup"], "the transport failed, which is otherwise tried three times"
            await ends_cancelled(world, view.run_id)
        finally:
            await world.aclose()

    run(attack())


def test_a_run_that_was_cancelled_before_its_turn_asks_no_planner_and_no_graph(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        world, planner = await open_world(tmp_path, stores=stores), RefundPlanner()
        try:
            planned_by(world, planner)
            view = await world.invoke(request(900, "req_cancelled") | {"mode": "long_running"})
            await cancel(world, view.run_id)
            await world.deployment.advance(TENANT, view.run_id)
            assert planner.asked == []
            kinds = await world.kinds(view.run_id)
            assert not {"evidence.retrieved", "memory.recalled", "planner.answered", "tool.dispatching"} & set(kinds)
            planned_by(world, None)
            await ends_cancelled(world, view.run_id)
        finally:
            await world.aclose()

    run(attack())


class PlannerCancels(RefundPlanner):
    """Proposes a plan for a run that is cancelled while it thinks."""

    def __init__(self, world: TestWorld) -> None:
        super().__init__()
        self.world = world

    async def propose(self, request: Any) -> Mapping[str, Any]:
        await cancel(self.world, request.run_id)
        return await super().propose(request)


def test_no_call_follows_a_plan_that_came_after_a_cancel(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores)
        try:
            planned_by(world, PlannerCancels(world))
            view = await driven(world)
            assert "tool.dispatching" not in await world.kinds(view.run_id)
            planned_by(world, None)
            await ends_cancelled(world, view.run_id)
        finally:
            await world.aclose()

    run(attack())


def test_a_run_that_waits_for_the_operation_of_another_one_stops_too(tmp_path: Path, stores: str) -> None:
    """The other run waits for a person, so this one would look again for ever, cancelled or not."""

    async def lose(_args: Mapping[str, Any], _context: CallContext) -> Any:
        raise LostReply("the answer was lost")

    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores, payments="none")
        try:
            definition = world.adapters["adp_payments"].describe()
            world.adapters["adp_payments"] = FunctionAdapter(definition, {"issue_refund": lose})
            other = await world.invoke(request(900, "req_other"))
            assert other.waiting
            assert other.waiting["for"] == "settlement"
            blocked = await world.invoke(request(900, "req_blocked"))
            assert not blocked.ended
            await cancel(world, blocked.run_id)
            due = [run_id async for _, run_id in world.stores.due(world.clock.now_us())]
            assert blocked.run_id in due, "an engine drives it at once"
            await world.deployment.advance(TENANT, blocked.run_id)
            await ends_cancelled(world, blocked.run_id)
        finally:
            await world.aclose()

    run(attack())


def test_a_cancel_of_a_run_that_ends_meanwhile_is_refused_and_wakes_nothing(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose = operator.propose_act

    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores)
        view = await world.invoke(request(900, "req_ending") | {"mode": "long_running"})

        def slow(*args: Any, **kwargs: Any) -> Any:
            async def write(control: Any) -> Any:
                await world.deployment.advance(TENANT, view.run_id)
                return await args[-1](control)

            return propose(*args[:-1], write, **kwargs)

        monkeypatch.setattr(operator, "propose_act", slow)
        with pytest.raises(ApprovalRefused, match="has ended as `completed`"):
            await cancel(world, view.run_id)
        due = [one async for one in world.stores.due(world.clock.now_us() + 10**12)]
        assert due == []
        await world.aclose()

    run(attack())
