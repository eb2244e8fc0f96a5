"""The kinds of no ledger: how a run begins, goes on and ends."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, get_args

from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.row import AGENT_SESSION, Aside, Kind, Lines, Severity, StoryReader, picked
from contextos.contracts.envelopes.record import SessionCheckpoint
from contextos.contracts.envelopes.verdicts import End
from contextos.contracts.journal import NONE, Logged

UNPROVED_CANCEL: Final = "a cancel request that no sealed act proves"
_SEVERITIES: Final[dict[str, Severity | None]] = {"completed": None, "escalated": "error", "exhausted": "error"}


def _input_lines(entry: Logged, _: StoryReader) -> Lines:
    request = entry.body["request"]
    input_ = request["input"]
    yield displayed(input_["message"])
    request_id, user_id, agent_id = request["request_id"], request["user"]["user_id"], request["agent"]["agent_id"]
    yield Aside(f"request {displayed(request_id)}, intent {displayed(input_['intent'])}, mode {request['mode']}")
    yield Aside(f"user {displayed(user_id)} through agent {displayed(agent_id)}")
    if context := input_.get("context"):
        yield Aside(f"only stated by the caller, and no evidence: {displayed_json(context)}")


def _input_terms(body: Any) -> Iterator[tuple[str, str]]:
    request = body.get("request", {})
    yield "user", request.get("user", {}).get("user_id")
    yield "agent", request.get("agent", {}).get("agent_id")
    yield "mode", request.get("mode")


def _end_lines(entry: Logged, reader: StoryReader) -> Lines:
    if any(reopening.seq > entry.seq for reopening in reader.run.of("run.reopened")):
        yield f"it ended as {entry.body['end']}"


def _reopening_lines(entry: Logged, _: StoryReader) -> Lines:
    body = entry.body
    limit_text = f" with `{body['limit']}` {body['to']:g}" if body.get("limit") else ""
    yield f"{displayed(entry.by)} reopened it{limit_text}: {displayed(body['reason'])}"


_recorded = partial(Kind, NONE, recorded=True)
_derived = partial(Kind, NONE)

RUN_KINDS: Final[dict[str, Kind]] = {
    "run.received": _recorded(recorded.ReceivedRun, "new>received", story={"asked": _input_lines}, terms=_input_terms),
    "run.resumed": _recorded(
        recorded.ResumedRun,
        "received resolved choosing compiled open planning verifying executing waiting scoring",
        author="*",
        wakes=True,
        told=picked("cause"),
        story={"did": "driven on from the journal"},
    ),
    "run.cancel_requested": _recorded(
        recorded.RequestedCancel,
        "resolved choosing compiled open planning executing waiting scoring verifying>executing",
        author="/by",
        appended=True,
        wakes=True,
        severity="warn",
        told=picked("by", "reason"),
        story={"approved": "{by} cancels: {reason}"},
        why=("authority", "{by} cancelled the run: {reason}"),
        answers="*",
    ),
    "run.cancel_unproved": _recorded(
        recorded.UnprovedCancel,
        "resolved choosing compiled open planning executing waiting scoring verifying>executing",
        severity="error",
        always_kept=True,
        told=picked(),
        story={"approved": f"{UNPROVED_CANCEL}; it cancels nothing"},
    ),
    "session.checkpointed": _derived(SessionCheckpoint, "resolved verifying scoring"),
    "session.expired": _recorded(
        recorded.ExpiredSession,
        "open>scoring",
        wakes=True,
        component=AGENT_SESSION,
        told=picked(),
        story={"allowed": "the agent did not finish in time"},
    ),
    "run.ended": _derived(
        derived.EndedRun,
        " ".join(f"scoring>{end}:{end}" for end in sorted(get_args(End))),
        decides="end",
        severity="warn",
        story={"came": _end_lines},
        graded=lambda body: _SEVERITIES.get(body["end"], "warn"),
        noted=lambda body: {"end": body["end"], "decision_record_id": body["record_id"]},
        noticed=picked("end"),
    ),
    "run.reopened": _recorded(
        recorded.ReopenedRun,
        "escalated>resolved exhausted>resolved",
        author="/by",
        wakes=True,
        severity="warn",
        always_kept=True,
        told=picked("by", "reason", "limit", "to"),
        story={"came": _reopening_lines},
        why=("authority", "{by} reopened the run: {reason}"),
    ),
}
