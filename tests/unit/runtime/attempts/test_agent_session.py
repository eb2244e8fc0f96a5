"""How a session ends: by its agent, by its budget, at its deadline, or because somebody stopped it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.verdicts import SessionOutcome
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.deployment.acts.ended_runs import reopen_run
from contextos.deployment.gate.gate import Gate
from tests.sessions import (
    EVAL,
    LOOKUP,
    REFUND,
    assert_replays,
    chosen_by_agent,
    in_world,
    read_first,
    refund_args,
    refund_calls,
    refund_session,
)
from tests.world import TENANT, TestWorld


async def is_escalated(gate: Gate, outcome: SessionOutcome, why: str) -> None:
    """The agent states an outcome that the journal contradicts."""
    view = await gate.finish(outcome)
    assert (view.state, view.record["status"]) == ("escalated", "ESCALATED")
    assert why in view.record["rationale"]["failures"][0]["detail"]


def of_reads(pack: dict[str, Any]) -> None:
    """A session whose decision governs no write."""
    chosen_by_agent(pack)
    template = pack["decision_layer"]["task_templates"][0]
    template["steps"] = [step for step in template["steps"] if step["approval_mode"] == "read_only"]
    template["outputs"], template["memory"] = {}, []


def test_an_agent_cannot_approve_without_the_evidence_of_its_decision(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_read_one")
        await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
        await is_escalated(gate, "approved", "requires `policy.eval`")
        await assert_replays(world, gate.run_id)
        other = await refund_session(world, "ses_read_all")
        await read_first(other)
        assert (await other.finish("approved")).state == "completed"

    in_world(tmp_path, play, pack=of_reads)


def test_an_agent_cannot_approve_what_it_did_not_do(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_empty")
        await is_escalated(gate, "approved", "no write of the session was made")
        view = await gate.view()
        again = await gate.finish("approved")
        assert again.record == view.record
        late = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="late")
        assert isinstance(late, Refused)
        assert late.ended
        assert late.reasons[0].code == "session_ended"
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_a_session_that_only_read_ends_well_and_its_record_has_no_effect(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_reads")
        wrong = await gate.call(LOOKUP, {"order": "ord_881"}, call_id="wrong")
        assert isinstance(wrong, Refused), wrong
        await read_first(gate)
        view = await gate.finish("approved")
        assert (view.state, view.record["status"], view.record["outcome"]) == ("completed", "DECIDED", "approved")
        assert view.record["effects"] == []
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_a_session_that_read_a_part_of_what_the_decision_requires_does_not_end_well(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_part")
        assert isinstance(await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look"), Done)
        await is_escalated(gate, "approved", "requires `policy.eval`")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


@pytest.mark.parametrize(
    ("tool", "args", "why"),
    [
        (REFUND, refund_args(), "the last call of `adp_payments.issue_refund` was not done"),
        (REFUND, {"order_id": 7}, "the last call of `adp_payments.issue_refund` was not done"),
        (EVAL, {"order": "ord_881"}, "the last call of `adp_policy.eval` was not done"),
        ("adp_payments.other", {}, "the last call of `adp_payments.other` was not done"),
    ],
)
def test_a_session_that_read_and_was_refused_does_not_end_well(
    tmp_path: Path, tool: str, args: dict[str, Any], why: str
) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_refused")
        assert isinstance(await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look"), Done)
        assert isinstance(await gate.call(tool, args, call_id="more"), Refused)
        assert isinstance(await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="again"), Done)
        await is_escalated(gate, "approved", why)
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_an_agent_cannot_deny_what_it_did(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_did", 900)
        await read_first(gate, 900)
        assert isinstance(await gate.call(REFUND, refund_args(900), call_id="pay"), Done)
        await is_escalated(gate, "denied", "had an effect")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_an_agent_cannot_approve_what_a_person_denied_last(tmp_path: Path) -> None:
    async def denied(world: TestWorld, gate: Gate) -> None:
        assert isinstance(await gate.call(REFUND, refund_args(4200), call_id="much"), Waiting)
        await world.approve(gate.run_id, "denied")
        answer = await gate.call(REFUND, refund_args(4200), call_id="much")
        assert isinstance(answer, Refused)
        assert answer.reasons[0].code == "approval_denied"

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_after", 4200)
        await read_first(gate, 4200)
        await denied(world, gate)
        await is_escalated(gate, "approved", "the last call of `adp_payments.issue_refund` was not done")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_evidence_that_grew_too_old_in_a_session_allows_no_write(tmp_path: Path) -> None:
    def fresh(pack: dict[str, Any]) -> None:
        chosen_by_agent(pack)
        for path in pack["intelligence_refs"]["retrieval"]["evidence"]:
            path["max_age_s"] = 15_200_000  # 600 s more than the age of the facts of the example

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_old", 900)
        await read_first(gate, 900)
        world.clock.at_us += 700_000_000
        answer = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "missing_evidence"
        assert world.refunds() == []

    in_world(tmp_path, play, pack=fresh)


def test_a_session_whose_user_was_disabled_reads_nothing(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_gone")
        await read_first(gate)
        world.edit_directory(lambda tenant: tenant["users"].clear())
        sent = (await world.kinds(gate.run_id)).count("tool.dispatching")
        answer = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="again")
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "identity_refused"
        assert (await world.kinds(gate.run_id)).count("tool.dispatching") == sent
        await gate.finish("escalated")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_a_session_whose_pack_was_withdrawn_reads_nothing(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_withdrawn")
        await world.withdraw((await world.deployment.catalog(TENANT).active()).packs[0].refs[0])
        answer = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "unknown_ref"
        assert "open a new one" in str(answer)

    in_world(tmp_path, play)


def test_a_question_that_nobody_answers_escalates_the_session_and_a_reopened_one_reads_again(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_silent", 4200)
        await read_first(gate, 4200)
        assert isinstance(await gate.call(REFUND, refund_args(4200), call_id="pay"), Waiting)
        world.clock.at_us += 3_601_000_000
        answer = await gate.call(REFUND, refund_args(4200), call_id="pay")
        assert isinstance(answer, Refused), answer
        assert (answer.reasons[0].code, answer.ended) == ("approval_timeout", True)
        assert (await gate.view()).state == "escalated"
        await reopen_run(world.deployment, TENANT, gate.run_id, by=world.actor(), reason="they are back")
        early = await gate.call(REFUND, refund_args(4200), call_id="early")
        assert isinstance(early, Refused), early
        assert early.reasons[0].code == "missing_evidence"
        for number, (tool, args, _) in enumerate(refund_calls(4200)[:2]):
            assert isinstance(await gate.call(tool, args, call_id=f"again_{number}"), Done)
        assert isinstance(await gate.call(REFUND, refund_args(4200), call_id="pay_again"), Waiting)
        await world.approve(gate.run_id)
        assert isinstance(await gate.call(REFUND, refund_args(4200), call_id="pay_again"), Done)
        assert (await gate.finish("approved")).state == "completed"
        assert len(world.refunds()) == 1
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
        from contextos.deployment.operator import request_cancel

        gate = await refund_session(world, "ses_cancel", 900)
        await read_first(gate, 900)
        await request_cancel(world.deployment, TENANT, gate.run_id, by=world.actor(), reason="wrong customer")
        answer = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(answer, Refused)
        assert answer.ended
        assert world.refunds() == []
        assert (await gate.view()).state == "cancelled"
        await assert_replays(world, gate.run_id)
        late = await refund_session(world, "ses_late", 900)
        await request_cancel(world.deployment, TENANT, late.run_id, by=world.actor(), reason="not now")
        assert (await late.finish("escalated")).state == "cancelled", "it wins over what the agent states"
        await assert_replays(world, late.run_id)
        idle = await refund_session(world, "ses_idle", 900)
        await request_cancel(world.deployment, TENANT, idle.run_id, by=world.actor(), reason="not needed")
        await world.deployment.advance(TENANT, idle.run_id)
        assert (await idle.view()).state == "cancelled"
        await assert_replays(world, idle.run_id)

    in_world(tmp_path, play)
