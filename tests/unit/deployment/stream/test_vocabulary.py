"""The vocabulary covers every kind of entry, has the shapes of AG-UI, and tells nothing that a rule redacts."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import orjson
import pytest

from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import Draft, Entry, genesis, link
from contextos.deployment.stream.folding import stream_events
from contextos.deployment.stream.vocabulary import EventType, ended, told

CARD = "4111 1111 1111 1111"
TIME_THAT_IS_A_CARD = 4_111_111_111_111_111


def entry(kind: str, body: object, key: str = "") -> Entry:
    raw = orjson.dumps({"request_digest": "", "answer": body} if KINDS[kind].recorded else body)
    return link("t", "run_1", 1, genesis("t", "run_1"), Draft(kind, key, 5, "runtime", raw, bytes(16)))


SPOKEN = {kind for kind, row in KINDS.items() if row.told}
SILENT = {
    "identity.resolved",
    "run.context",
    "session.checkpointed",
    "act.looked_up",
    "history.read",
    "answer.compared",
    "arguments.traced",
    "credential.exchanged",
    "tool.retry_due",
    "evidence.frozen",
    "evidence.rechecked",
    "replay.packed",
}
"""The kinds that are no event: look-ups of the runtime, and what names people, keys and credentials."""


def test_who_watches_a_run_receives_nothing_of_these() -> None:
    assert KINDS.keys() - SPOKEN >= SILENT


def test_contents_are_redacted_by_every_rule_and_times_stay() -> None:
    body = {"how": f"ann@acme.example {CARD}", "at_us": TIME_THAT_IS_A_CARD, "tool_call_id": "tool_1"}
    (one,) = told(entry("tool.retry_scheduled", body), body)
    assert one.members["value"] == {
        "how": "[redacted:email] [redacted:pan]",
        "at_us": TIME_THAT_IS_A_CARD,
        "tool_call_id": "tool_1",
    }
    envelope = {"tool_call_id": "tool_1", "capability_id": "a.b", "args": {"to": "ann@acme.example"}}
    sent = {"mode": "execute", "envelope": {**envelope, "approval_mode_effective": "read_only"}}
    told_args = [one.members["delta"] for one in told(entry("tool.dispatching", sent), sent) if "delta" in one.members]
    assert told_args == ['{"to":"[redacted:email]"}']
    answered = {"outcome": "returned", "envelope": {**envelope, "status": "ok", "error": None, "output": {"pan": CARD}}}
    (result,) = told(entry("tool.returned", answered), answered)
    assert result.members["content"] == '{"pan":"[redacted:pan]"}'
    assert CARD not in str(ended("run_1", "t", "refused", {"rationale": {"failures": [{"code": "x", "detail": CARD}]}}))


def test_the_error_of_a_call_is_its_result() -> None:
    envelope = {"tool_call_id": "t", "status": "failed", "error": {"message": "down"}, "output": {"old": 1}}
    body = {"outcome": "unknown", "envelope": envelope}
    (result,) = told(entry("tool.returned", body), body)
    assert result.members["content"] == '{"error":{"message":"down"}}'
    assert result.members["metadata"]["outcome"] == "unknown"


def test_decisions_about_all_tools_at_once_are_no_event_so_that_hidden_tools_stay_hidden() -> None:
    body = {"decisions": [{"capability_id": "secret.tool", "allowed": False}]}
    assert list(told(entry("policy.decided", body, "compile/0"), body)) == []


@pytest.mark.parametrize(
    ("end", "type_"),
    [
        ("completed", "RUN_FINISHED"),
        ("cancelled", "RUN_FINISHED"),
        ("rejected", "RUN_ERROR"),
        ("refused", "RUN_ERROR"),
        ("escalated", "RUN_ERROR"),
        ("exhausted", "RUN_ERROR"),
    ],
)
def test_only_a_run_that_did_what_was_decided_or_was_cancelled_is_finished(end: str, type_: str) -> None:
    one = ended("run_1", "sess_1", end, None)
    assert one.type == type_
    assert one.members.get("code", end) == end
    assert (one.members.get("outcome", {}).get("type") == "success") is (end == "completed")


def test_an_erased_entry_is_an_event_that_says_so() -> None:
    erased = entry("tool.returned", {}, "0/s1/1")._replace(body=None, salt=None)
    (one,) = told(erased, None)
    assert one.members == {"name": "contextos.erased", "value": {"kind": "tool.returned", "key": "0/s1/1"}}


def test_a_run_whose_end_was_erased_ends_all_the_same() -> None:
    (last,) = stream_events([entry("run.ended", {})._replace(body=None, salt=None)])
    assert (last.type, last.members["code"]) == ("RUN_ERROR", "erased")


def test_the_page_about_events_names_every_type_and_the_reference_every_kind_that_is_an_event() -> None:
    docs = Path(__file__).resolve().parents[4] / "docs"
    page = (docs / "application.md").read_text("utf-8")
    assert {name for name in get_args(EventType) if f"`{name}`" not in page} == set()
    rows = (docs / "reference" / "journal-kinds.md").read_text("utf-8").splitlines()
    assert {row.split("`")[1] for row in rows if row.endswith("| told |")} == SPOKEN
