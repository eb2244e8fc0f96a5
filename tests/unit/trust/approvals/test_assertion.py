"""Only a person who validly holds the role, and whose key signed exactly this answer, approves."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.identity import MAX_SIGNED_CHARS, Approver
from contextos.contracts.statements.questions import approval_statement
from contextos.errors import ApprovalRefused
from contextos.trust.approvals.assertion import (
    approval_fault,
    grant_fault,
    read_answer_assertion,
    read_assertion,
    recorded_assertion,
    sign_approval,
)
from contextos.trust.seal import kid_of
from tests.world import APPROVER_KEY, OPERATOR_KEY, public_key

QUESTION = {
    "approval_id": "appr_1",
    "binding": {"gate_id": "GATE", "deadline_us": 1},
    "binding_digest": "sha256:b",
    "args": {"amount_inr": 42},
    "evidence": [],
    "required_role": "finance_lead",
    "barred": ["usr_requester"],
}
KID = kid_of(public_key(APPROVER_KEY))


def approver(**changes: Any) -> Approver:
    fields = {
        "approver_id": "ann",
        "roles": ["finance_lead"],
        "granted_by": {"finance_lead": "admin"},
        "keys": [{"kid": KID, "public_key": public_key(APPROVER_KEY).hex()}],
    }
    return Approver.model_validate({**fields, **changes})


def answer(seed: bytes = APPROVER_KEY, question: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    statement = approval_statement(question or QUESTION, "ann", "approved", "ok")
    token = sign_approval(seed, KID, statement)
    return {
        "approver": "ann",
        "verdict": "approved",
        "reason": "ok",
        "assertion": {"kind": "jws", "token": token},
        **changes,
    }


def test_a_signed_answer_of_the_right_person_has_no_fault() -> None:
    assert approval_fault(approver(), QUESTION, answer()) is None


@pytest.mark.parametrize(
    ("person", "given", "reason"),
    [
        (approver(approver_id="bob"), answer(), "not_approver"),
        (approver(roles=["support"], granted_by={}), answer(), "not_approver"),
        (approver(granted_by={}), answer(), "not_granted"),
        (approver(granted_by={"finance_lead": "ann"}), answer(), "self_granted"),
        (approver(granted_by={"finance_lead": "usr_requester"}), answer(), "self_granted"),
        (approver(), answer(verdict="denied"), "assertion_invalid"),
        (approver(), answer(reason="another"), "assertion_invalid"),
        (approver(), answer(OPERATOR_KEY), "assertion_invalid"),
        (approver(keys=[]), answer(), "assertion_invalid"),
    ],
)
def test_each_flaw_of_an_answer_is_refused(person: Approver, given: dict[str, Any], reason: str) -> None:
    refused = approval_fault(person, QUESTION, given)
    assert refused is not None
    assert refused.reason == reason


@pytest.mark.parametrize("field", ["approval_id", "binding", "binding_digest", "args", "evidence"])
def test_a_signature_of_another_question_does_not_count(field: str) -> None:
    refused = approval_fault(approver(), QUESTION, answer(question={**QUESTION, field: "another"}))
    assert refused is not None
    assert refused.reason == "assertion_invalid"


def recorded(given: dict[str, Any], question: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer as the journal states it, without what was signed."""
    statement = approval_statement(question or QUESTION, "ann", given["verdict"], given["reason"])
    return {**given, "assertion": recorded_assertion(read_answer_assertion(given["assertion"]), statement)}


def test_an_answer_is_recorded_without_the_question_and_counts_for_it_alone() -> None:
    said = recorded(answer())
    header, statement, _signature = said["assertion"]["token"].split(".")
    assert (bool(header), statement) == (True, "")
    assert recorded(said) == said
    assert approval_fault(approver(), QUESTION, said) is None
    for other in ({**QUESTION, "args": {"amount_inr": 43}}, {**QUESTION, "approval_id": "appr_2"}):
        refused = approval_fault(approver(), other, said)
        assert refused is not None
        assert refused.reason == "assertion_invalid"
    for change in ({"verdict": "denied"}, {"reason": "another"}):
        assert approval_fault(approver(), QUESTION, said | change) is not None
    assert approval_fault(approver(), QUESTION, recorded(answer(OPERATOR_KEY))) is not None


def test_a_token_over_another_spelling_of_the_statement_is_recorded_whole() -> None:
    header, _, signature = answer()["assertion"]["token"].split(".")
    for payload in ("e30", answer()["assertion"]["token"].split(".")[1] + "A"):
        spelled = {"kind": "jws", "token": f"{header}.{payload}.{signature}"}
        assert recorded(answer(assertion=spelled))["assertion"] == spelled


@pytest.mark.parametrize("token", ["..", "a..", "..b", "a...b", "a..b..c", "a.b..c"])
def test_a_token_of_no_three_parts_counts_for_nothing(token: str) -> None:
    assert approval_fault(approver(), QUESTION, answer(assertion={"kind": "jws", "token": token})) is not None


def test_true_is_not_one_and_an_added_member_does_not_count() -> None:
    for other in ({**QUESTION, "args": {"amount_inr": True}}, {**QUESTION, "args": {"amount_inr": 42, "to": "eve"}}):
        one = {**QUESTION, "args": {"amount_inr": 1}} if other["args"]["amount_inr"] is True else QUESTION
        assert approval_fault(approver(), one, answer(question=other)) is not None


def test_the_requester_never_approves_and_a_grant_needs_another_person() -> None:
    refused = approval_fault(approver(), {**QUESTION, "barred": ["ann"]}, answer())
    assert refused is not None
    assert refused.reason == "self_approval"
    assert grant_fault(approver(), "finance_lead") is None


@pytest.mark.parametrize(
    "given",
    [
        None,
        "jws",
        {},
        {"kind": "webauthn"},
        {"kind": "jws"},
        {"kind": "jws", "token": 7},
        {"kind": "jws", "token": "x", "alg": "none"},
        {"kind": "unsafe_local", "token": "x"},
        {"kind": "jws", "token": "x" * (MAX_SIGNED_CHARS + 1)},
    ],
)
def test_an_assertion_of_another_kind_or_shape_is_refused(given: Any) -> None:
    with pytest.raises(ApprovalRefused) as refused:
        read_assertion(given)
    assert refused.value.reason == "assertion_invalid"
