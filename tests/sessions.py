"""A session over the example: the refund pack, with its template opened to an agent that chooses its own calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from contextos.audit.replay import replay
from contextos.contracts.envelopes.identity import UserClaims
from contextos.contracts.ports.gates import Done
from contextos.deployment.gate.gate import Gate
from contextos.deployment.gate.opening import open_session
from tests.world import TENANT, TestWorld, open_world, request, run

LOOKUP, EVAL, REFUND = "adp_orders.lookup", "adp_policy.eval", "adp_payments.issue_refund"


def chosen_by_agent(pack: dict[str, Any]) -> None:
    """Change the example's pack: its agent chooses the calls, and its decision is checked before each write."""
    template = pack["decision_layer"]["task_templates"][0]
    template["chosen_by"] = "agent"
    for step in template["steps"]:
        step.pop("depends_on", None)
        step.pop("params")
    template["decision_checkpoints"] = [{"decision_id": "support.refund.execute"}]


async def refund_session(world: TestWorld, session: str, amount: int = 4200, **more: Any) -> Gate:
    """Open the session of one refund, as the example's user and agent."""
    body = request(amount, session)
    stated: dict[str, Any] = {
        "user": UserClaims.model_validate(body["user"]),
        "agent": body["agent"]["agent_id"],
        "context": body["input"]["context"],
    }
    return await open_session(world.deployment, TENANT, session, **{**stated, **more})


def refund_args(amount: int = 4200) -> dict[str, Any]:
    return {"order_id": "ord_881", "amount_inr": amount, "currency": "INR"}


def refund_calls(amount: int) -> list[tuple[str, dict[str, Any], str]]:
    """The calls of an agent that refunds: tool, arguments, call id."""
    return [
        (LOOKUP, {"order_id": "ord_881"}, "look"),
        (EVAL, {"order_id": "ord_881", "amount_inr": amount}, "check"),
        (REFUND, refund_args(amount), "pay"),
    ]


Play = Callable[[TestWorld], Awaitable[None]]


def in_world(path: Path, play: Play, **options: Any) -> None:
    async def inside() -> None:
        world = await open_world(path, **{"stores": "sqlite", "pack": chosen_by_agent, **options})
        try:
            await play(world)
        finally:
            await world.aclose()

    run(inside())


async def read_first(gate: Gate, amount: int = 4200) -> None:
    """The two reads without whose evidence no refund is allowed."""
    looked = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
    assert isinstance(looked, Done), looked
    assert looked.output
    assert looked.error is None
    checked = await gate.call(EVAL, {"order_id": "ord_881", "amount_inr": amount}, call_id="check")
    assert isinstance(checked, Done), checked


async def assert_replays(world: TestWorld, run_id: str) -> None:
    view = await world.deployment.view(TENANT, run_id)
    assert view.record is not None
    assert (await replay(world.deployment, TENANT, run_id)).record_hash == view.record["record_hash"]
