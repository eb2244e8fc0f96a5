"""Which answers of a run are denials that prove a row."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Entry
from contextos.trust.rows.denials import ShownDenial, shown_denials
from tests.world import APPROVER, TENANT

BINDING = {"capability_id": "pay", "definition_digest": "sha256:0", "idempotency_key": "ik_1"}
ASKED: dict[str, Any] = {"binding": BINDING}
SENT: dict[str, Any] = {"envelope": {}}
VOIDED: dict[str, Any] = {"approval_id": "appr_1", "reason": "the approver is no longer known"}


def answer(verdict: str) -> dict[str, Any]:
    said = {"approver": APPROVER, "verdict": verdict, "reason": "", "binding_digest": "sha256:" + "0" * 64}
    return {"request_digest": "sha256:" + "0" * 64, "answer": {**said, "assertion": {"kind": "unsafe_local"}}}


def tape(*said: tuple[str, str, dict[str, Any] | None]) -> list[Entry]:
    """A run of these entries, each a kind, a key and a body (None: it was erased)."""
    bodies = [canonical(body) if body else None for _, _, body in said]
    return [
        Entry(TENANT, "run_0123456789abcdef", seq, kind, key, 1, APPROVER, "", "", "", body, b"")
        for seq, ((kind, key, _), body) in enumerate(zip(said, bodies, strict=True), 1)
    ]


ASK, CALL = ("approval.asked", "step/1", ASKED), ("tool.dispatching", "step/1/1", SENT)
DENY, APPROVE = (("approval.answered", "step/1", answer(verdict)) for verdict in ("denied", "approved"))
LOST = ("approval.answered", "step/1", None)
OF = "pay/sha256:0/ik_1"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ((ASK, DENY), [ShownDenial(2, OF, APPROVER, erased=False, void=False)]),
        ((ASK, APPROVE, CALL), []),
        ((ASK, APPROVE), []),
        ((DENY,), []),
        ((ASK, DENY, ("approval.voided", "step/1", VOIDED)), [ShownDenial(2, OF, APPROVER, erased=False, void=True)]),
        ((ASK, LOST), [ShownDenial(2, OF, APPROVER, erased=True, void=False)]),
        ((ASK, LOST, CALL), []),
        ((("approval.asked", "step/1", None), DENY), [ShownDenial(2, None, APPROVER, erased=False, void=False)]),
        ((ASK, ("approval.answered", "step/1", {"answer": {"verdict": "denied"}})), []),
        ((ASK, DENY, DENY), [ShownDenial(seq, OF, APPROVER, erased=False, void=False) for seq in (2, 3)]),
    ],
)
def test_a_denial_is_an_answer_that_denies_or_can_have_denied(said: Any, shown: list[ShownDenial]) -> None:
    assert shown_denials(tape(*said)) == shown
