"""A question as lines of text."""

from __future__ import annotations

from contextos.contracts.statements.question_text import question_line, question_text

SHOWN = {
    "capability": "adp_payments.issue_refund",
    "mode": "destructive",
    "args": {"amount_inr": 4200, "reason": "approved", "a b": " x"},
    "evidence": [{"name": "identity_verified", "value": True, "ref": "artifact:kyc#rev_1", "subject": "customer:c"}],
    "until": "2026-11-24T01:07:19Z",
    "requester": ["user:usr_771", "agent:support"],
}


def test_a_question_has_the_call_the_arguments_the_evidence_who_asks_and_the_binding() -> None:
    assert question_text(SHOWN, "sha256:ab") == [
        "  call       adp_payments.issue_refund (destructive)",
        "  amount_inr 4200",
        '  "reason"   approved',
        '  "a b"      \\u0020x',
        "  evidence   identity_verified = true",
        "  source     artifact:kyc#rev_1 about customer:c",
        "  asked by   user:usr_771, agent:support",
        "  until      2026-11-24T01:07:19Z",
        "  not bound  services, programs, shared libraries, files outside workspace and packages",
        "binding sha256:ab",
    ]


def test_blanks_at_the_ends_of_a_line_are_seen() -> None:
    assert question_line("reason", "a  b ") == "  reason     a \\u0020b\\u0020"
