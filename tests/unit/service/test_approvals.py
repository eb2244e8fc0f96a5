"""`app.approvals`: what waits, what an answer signs, and the answer."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.contracts.encoding.jcs import canonical
from contextos.errors import ApprovalRefused, InvalidInput, NotFound
from contextos.service.approvals import ApprovalQuestions
from contextos.trust.seal import kid_of
from tests.world import APPROVER, APPROVER_KEY, TENANT, open_world, public_key, request, run


def test_questions_wait_by_role_in_pages_newest_first(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        asked = [(await world.invoke(request(4200, f"req_{number}"))).run_id for number in range(3)]
        await world.invoke(request(900, "req_small"))
        approvals = ApprovalQuestions(world.deployment)
        assert [one.run_id for one in (await approvals.waiting(TENANT)).items] == asked[::-1]
        assert (await approvals.waiting(TENANT, role="treasurer")).items == ()
        first = await approvals.waiting(TENANT, role="finance_lead", limit=2)
        assert first.cursor is not None
        second = await approvals.waiting(TENANT, role="finance_lead", limit=2, cursor=first.cursor)
        assert [one.run_id for one in (*first.items, *second.items)] == asked[::-1]
        assert second.cursor is None
        await world.answer(asked[1], "denied")
        assert [one.run_id for one in (await approvals.waiting(TENANT)).items] == [asked[2], asked[0]]

    run(act())


def test_a_statement_is_the_canonical_text_that_is_signed_and_the_same_for_people(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(4200, "req_1"))
        question = await ApprovalQuestions(world.deployment).get(TENANT, "req_1")
        assert (question.run_id, question.gate_id) == (view.run_id, "GATE_FINANCE_APPROVAL")
        assert (question.capability_id, question.mode) == ("adp_payments.issue_refund", "destructive")
        assert {one.name: one.value for one in question.args}["amount_inr"] == 4200
        assert [one.name for one in question.evidence][:1] == ["identity_verified"]

        statement = question.statement(APPROVER, "approved", "checked\nthe order")
        stated = json.loads(statement.payload)
        assert statement.payload == canonical(stated)
        assert stated["binding_digest"] == question.binding_digest
        assert (stated["approver"], stated["verdict"], stated["reason"]) == (APPROVER, "approved", "checked\nthe order")
        lines = statement.text.splitlines()
        assert lines[0] == "GATE_FINANCE_APPROVAL asks a finance_lead:"
        assert "  amount_inr 4200" in lines
        assert lines[-3:] == [
            f"  answer     {APPROVER}: approved",
            "  reason     checked\\nthe order",
            f"binding {question.binding_digest}",
        ]

    run(act())


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_an_answer_by_the_persons_key_decides_the_run(tmp_path: Path, verdict: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        question = await ApprovalQuestions(world.deployment).get(TENANT, run_id)
        await question.answer(question.statement(APPROVER, verdict, "looked at it").signed_with(APPROVER_KEY))
        await world.deployment.advance(TENANT, run_id)
        decided = await world.runs().get(TENANT, run_id)
        assert decided.state == ("completed" if verdict == "approved" else "rejected")
        assert decided.record is not None
        assert [(one.approver, one.assertion, one.verdict) for one in decided.record.approvals] == [
            (APPROVER, "jws", verdict)
        ]

    run(act())


def test_a_key_that_is_elsewhere_signs_the_signing_input(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(4200, "req_1"))
        question = await ApprovalQuestions(world.deployment).get(TENANT, "req_1")
        statement = question.statement(APPROVER, "approved")
        to_sign = statement.signing_input(kid_of(public_key(APPROVER_KEY)))
        signature = Ed25519PrivateKey.from_private_bytes(APPROVER_KEY).sign(to_sign)
        token = f"{to_sign.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        assert token == statement.signed_with(APPROVER_KEY)
        await question.answer(token)

    run(act())


def test_what_waits_for_nobody_has_no_question(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_1"))
        approvals = ApprovalQuestions(world.deployment)
        with pytest.raises(ApprovalRefused, match="waits for no approval"):
            await approvals.get(TENANT, "req_1")
        with pytest.raises(NotFound):
            await approvals.get(TENANT, "req_2")
        with pytest.raises(InvalidInput, match="from 1 to"):
            await approvals.waiting(TENANT, limit=0)

    run(act())
