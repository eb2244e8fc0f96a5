"""The events of a run that an operator reads in a log, computed from its journal entries.

Each names the span to which it belongs. They have ids, names, digests and numbers, and no text of anybody.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from contextos.contracts.entries.reading import void_answers
from contextos.contracts.journal import Logged
from contextos.telemetry import genai
from contextos.telemetry.ended_run import Attributes, EndedRunEntries, error_type, identifiers
from contextos.telemetry.spans import call_span_id, component_of, span_id

Severity = Literal["info", "warn", "error"]

AXES: Final = ("policy", "utility", "latency", "safety", "economics")
"""The axes of a scorecard."""

SEVERITIES: Final[dict[str, Severity]] = {
    "run.cancel_requested": "warn",
    "run.cancel_unproved": "error",
    "run.reopened": "warn",
    "capability.quarantined": "error",
    "approval.asked": "info",
    "approval.answered": "info",
    "approval.expired": "warn",
    "approval.reasked": "warn",
    "approval.voided": "warn",
    "tool.refused": "warn",
    "tool.retry_scheduled": "warn",
    "effect.settled": "warn",
    "run.ended": "warn",
}
"""The kinds of entries that are events (`contextos.<kind>`), each with its severity."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, the time (Unix microseconds), the severity, and the span (16 hex digits) it belongs to."""

    name: str
    at_us: int
    severity: Severity
    span_id: str
    attributes: Attributes


def run_events(run: EndedRunEntries) -> Iterator[Event]:
    """Yield the events of a run in the order of its entries; of scores those that failed, and no end that is fine."""
    always = {"contextos.run_id": run.run_id, "contextos.tenant_id": run.tenant_id}
    void = void_answers(run.log)
    for entry in run.log:
        if entry.kind == "run.scored" and entry.body is not None:
            scored = span_id(run, "run")
            for axis in (one for one in AXES if entry.body[one]["status"] != "pass"):
                found = genai.evaluation(axis, entry.body[axis]["score"], entry.body[axis]["status"])
                yield Event(genai.EVALUATION_EVENT, entry.at_us, "warn", scored, {**found, **always})
        elif entry.kind == "run.ended" and run.end == "completed":
            continue
        elif (known := SEVERITIES.get(entry.kind)) is not None:
            severity: Severity = (
                "error" if entry.kind == "run.ended" and run.end in ("escalated", "exhausted") else known
            )
            attributes = identifiers(always | _told(entry, void))
            yield Event(f"contextos.{entry.kind}", entry.at_us, severity, _span_of(run, entry), attributes)


def _span_of(run: EndedRunEntries, entry: Logged) -> str:
    if entry.kind == "tool.refused" and entry.body is not None:
        return call_span_id(entry.body["envelope"]["tool_call_id"])
    return span_id(run, component_of(entry) or "run")


def _told(entry: Logged, void: Container[int]) -> dict[str, Any]:
    """The ids and names of an entry, by the attribute. Reasons, arguments and what was shown are left out."""
    body = entry.body
    if body is None:
        return {}
    if entry.kind == "tool.refused":
        envelope = body["envelope"]
        told = {genai.TOOL_NAME: envelope["capability_id"], genai.TOOL_CALL_ID: envelope["tool_call_id"]}
        # What was done before is not sent again, and has no error.
        return told | ({genai.ERROR_TYPE: error_type(envelope["error"].get("code"))} if envelope["error"] else {})
    if entry.kind == "capability.quarantined":
        return {genai.TOOL_NAME: body["capability_id"], "contextos.incidents": body["incidents"]}
    if entry.kind == "approval.asked":
        names = {"approval_id": "approval_id", "gate_id": "gate_id", "required_role": "required_role"}
        return {f"contextos.{name}": body[field] for name, field in names.items()}
    if entry.kind == "approval.answered":
        verdict = "void" if entry.seq in void else body["verdict"]
        return {"contextos.verdict": verdict, "contextos.binding_digest": body["binding_digest"]}
    if entry.kind == "effect.settled":
        return {"contextos.effect": body["happened"]}
    if entry.kind == "run.ended":
        return {"contextos.end": body["end"], "contextos.decision_record_id": body["record_id"]}
    return {}
