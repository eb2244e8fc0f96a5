"""How a session ends: by its agent, by its budget, at its deadline, or because somebody stopped it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextos.operations.gate.gate import Refused
from tests.sessions import (
    LOOKUP,
    REFUND,
    assert_replays,
    chosen_by_agent,
    in_world,
    read_first,
    refund_args,
    refund_session,
)
from tests.world import TENANT, TestWorld


def test_an_agent_cannot_approve_without_the_evidence_of_its_decision(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_empty")
        view = await gate.finish("approved")
        assert (view.state, view.record["status"]) == ("escalated", "ESCALATED")
        assert view.record["rationale"]["failures"][0]["code"] == "missing_evidence"
        again = await gate.finish("approved")
        assert again.record == view.record
        late = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="late")
        assert isinstance(late, Refused)
        assert late.ended
        assert late.reasons[0].code == "session_ended"
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_one_budget_holds_for_the_whole_session(tmp_path: Path) -> None:
    def two_calls(pack: dict[str, Any]) -> None:
        chosen_by_agent(pack)
        pack["pack_meta"]["run_budget"]["max_tool_calls"] = 2

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_budget")
        await read_first(gate)
        third = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="third")
        assert isinstance(third, Refused)
        assert third.ended
        assert third.reasons[0].facts == ("max_tool_calls",)
        view = await gate.view()
        assert (view.state, view.record["budget_usage"]["tool_calls"]) == ("exhausted", 2)
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, pack=two_calls)


def test_a_session_that_nobody_finishes_is_escalated_at_its_deadline(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_lost")
        await read_first(gate)
        world.clock.at_us += 5 * 3_600_000_000
        await world.deployment.advance(TENANT, gate.run_id)
        view = await gate.view()
        assert (view.state, view.record["status"]) == ("exhausted", "ESCALATED")
        assert "did not finish its session" in view.record["rationale"]["failures"][0]["detail"]
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_a_cancelled_session_makes_no_further_call(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        from contextos.operations.operator import request_cancel

        gate = await refund_session(world, "ses_cancel", 900)
        await read_first(gate, 900)
        await request_cancel(world.deployment, TENANT, gate.run_id, by=world.actor(), reason="wrong customer")
        answer = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(answer, Refused)
        assert answer.ended
        assert world.refunds() == []
        assert (await gate.view()).state == "cancelled"
        await assert_replays(world, gate.run_id)
        idle = await refund_session(world, "ses_idle", 900)
        await request_cancel(world.deployment, TENANT, idle.run_id, by=world.actor(), reason="not needed")
        await world.deployment.advance(TENANT, idle.run_id)
        assert (await idle.view()).state == "cancelled"
        await assert_replays(world, idle.run_id)

    in_world(tmp_path, play)
