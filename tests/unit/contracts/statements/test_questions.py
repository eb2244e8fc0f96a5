"""What is derived from a question: its digests, its statement and its text."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.statements.questions import (
    CONTENT,
    approval_statement,
    escape_all,
    question_disagreement,
    shown_text,
)

HOSTILE = "pay\u202eyap"


def question(**changes: Any) -> dict[str, Any]:
    args = {"amount_inr": 42, HOSTILE: HOSTILE}
    evidence = [{"name": HOSTILE, "subject": HOSTILE, "value": {"x": HOSTILE}, "ref": HOSTILE, "digest": "sha256:d"}]
    binding = {
        "capability_id": "adp.pay",
        "mode": "destructive",
        "gate_id": "GATE",
        "args_digest": content_address(args),
        "evidence_snapshot_hash": content_address(evidence),
        "deadline_us": 1_764_000_000_000_000,
        "requester_chain": [{"kind": "user", "id": "usr_1"}],
        "untrusted": {HOSTILE: [HOSTILE]},
        "secrets": {HOSTILE: [HOSTILE]},
        "instructions": [HOSTILE],
    }
    made = {"approval_id": "appr_1", "binding": binding, "args": args, "evidence": evidence}
    return {**made, "binding_digest": content_address(binding), **changes}


def test_a_question_agrees_with_itself_and_each_change_is_found() -> None:
    assert question_disagreement(question()) is None
    assert "arguments" in (question_disagreement(question(args={"amount_inr": 43})) or "")
    assert "evidence" in (question_disagreement(question(evidence=[])) or "")
    assert "binding" in (question_disagreement(question(binding={**question()["binding"], "gate_id": "G"})) or "")


def test_the_statement_is_the_question_in_clear_and_the_answer() -> None:
    said = approval_statement(question(), "ann", "approved", "ok")
    assert said == {**question(), "approver": "ann", "verdict": "approved", "reason": "ok"}
    assert set(CONTENT) == set(question())


@pytest.mark.parametrize("name", CONTENT)
def test_a_statement_has_every_part(name: str) -> None:
    said = approval_statement(question(), "ann", "approved", "ok")
    assert approval_statement({**question(), name: "another"}, "ann", "approved", "ok") != said


def test_every_string_that_is_shown_is_escaped() -> None:
    shown = shown_text(question()["binding"], question()["args"], question()["evidence"])
    assert "\u202e" not in canonical(shown).decode()


def test_every_string_is_escaped_keys_included_and_other_values_are_kept() -> None:
    hostile = {"na\u202eme": ["a\u200bb", {"x": ("\x1b[2J", 7, None, True)}]}
    assert escape_all(hostile) == {"na\\u202eme": ["a\\u200bb", {"x": ["\\u001b[2J", 7, None, True]}]}
