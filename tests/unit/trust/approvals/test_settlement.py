"""Only an operator outside of the run settles, and an approval's signature is none of a settlement."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.identity import Approver, Principal, Settled, SignerAssertion
from contextos.contracts.envelopes.tool import ToolCallEnvelope
from contextos.contracts.statements.settlements import settlement_statement
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.settlement import operator_fault, settlement_fault, sign_settlement
from contextos.trust.seal import kid_of
from tests.world import APPROVER_KEY, OPERATOR_KEY, public_key

KID = kid_of(public_key(OPERATOR_KEY))


def settled(**changes: Any) -> Settled:
    fields = {"happened": True, "output": {"id": 1}, "mutations": [], "evidence_ref": "artifact:books#rev_1"}
    return Settled.model_validate({**fields, "by": "olga", "assertion": {"kind": "jws", "token": "x"}, **changes})


def sent(run_id: str, tool_call_id: str, amount: int = 5, asks: str = "ana") -> ToolCallEnvelope:
    """The parts of a dispatched call that a settlement is about."""
    return ToolCallEnvelope.construct_trusted(
        {
            "run_id": run_id,
            "tool_call_id": tool_call_id,
            "capability_id": "adp.pay",
            "args": {"amount": amount},
            "principal_chain": (Principal(kind="user", id=asks),),
            "approval_mode_effective": "destructive",
            "idempotency_key": "key",
        }
    )


STATEMENT = settlement_statement("t", sent("run_1", "tool_1"), settled())


def operator(**changes: Any) -> Approver:
    fields = {
        "approver_id": "olga",
        "roles": ["operator"],
        "granted_by": {"operator": "admin"},
        "keys": [{"kid": KID, "public_key": public_key(OPERATOR_KEY).hex()}],
    }
    return Approver.model_validate({**fields, **changes})


UNSIGNED = SignerAssertion(kind="unsafe_local")


def signed(statement: Any = STATEMENT, seed: bytes = OPERATOR_KEY, sign: Any = sign_settlement) -> SignerAssertion:
    return SignerAssertion(kind="jws", token=sign(seed, KID, statement))


def reason(person: Approver | None, assertion: SignerAssertion | None, *barred: str) -> str | None:
    refused = settlement_fault(person, barred, STATEMENT, assertion, unsafe_local=False)
    return refused.reason if refused else None


def test_a_settlement_that_an_operator_signed_has_no_fault() -> None:
    assert reason(operator(), signed()) is None


@pytest.mark.parametrize(
    ("person", "assertion", "wanted"),
    [
        (None, signed(), "not_operator"),
        (operator(approver_id="bob"), signed(), "not_operator"),
        (operator(roles=["finance_lead"]), signed(), "not_operator"),
        (operator(granted_by={"operator": "olga"}), signed(), "self_granted"),
        (operator(), signed(seed=APPROVER_KEY), "assertion_invalid"),
        (operator(), signed(sign=sign_approval), "assertion_invalid"),
        (operator(), None, "assertion_invalid"),
        (operator(), UNSIGNED, "unsafe_not_allowed"),
    ],
)
def test_each_flaw_of_a_settlement_is_refused(
    person: Approver | None, assertion: SignerAssertion | None, wanted: str
) -> None:
    assert reason(person, assertion) == wanted


def test_the_people_behind_the_run_do_not_settle_it() -> None:
    assert reason(operator(), signed(), "olga") == "self_settlement"
    assert settlement_fault(operator(), (), STATEMENT, UNSIGNED, unsafe_local=True) is None
    assert operator_fault(operator(), "olga") is None


@pytest.mark.parametrize(
    "other",
    [
        settlement_statement("other", sent("run_1", "tool_1"), settled()),
        settlement_statement("t", sent("run_1", "tool_1", asks="eve"), settled()),
        settlement_statement("t", sent("run_2", "tool_1"), settled()),
        settlement_statement("t", sent("run_1", "tool_2"), settled()),
        settlement_statement("t", sent("run_1", "tool_1", amount=6), settled()),
        settlement_statement("t", sent("run_1", "tool_1"), settled(happened=False, output=None)),
        settlement_statement("t", sent("run_1", "tool_1"), settled(output={"id": 2})),
        settlement_statement("t", sent("run_1", "tool_1"), settled(evidence_ref="artifact:books#rev_2")),
    ],
)
def test_a_signature_fits_one_call_and_one_outcome(other: Any) -> None:
    assert reason(operator(), signed(other)) == "assertion_invalid"
