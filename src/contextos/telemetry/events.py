"""The events of a run that an operator reads in a log, computed from its journal entries.

Each names the span to which it belongs. They have ids, names, digests and numbers, and no text of anybody.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.entries.account import void_answers
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.row import Severity
from contextos.contracts.journal import Logged
from contextos.telemetry import genai
from contextos.telemetry.ended_run import Attributes, EndedRunEntries, error_type, identifiers
from contextos.telemetry.spans import ALWAYS, call_span_id, component_of, span_id

AXES: Final = ("policy", "utility", "latency", "safety", "economics")
"""The axes of a scorecard."""

REDACTION_EVENT: Final = "contextos.redaction"
_REDACTED: Final = frozenset(REDACTION_TARGETS.values())


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
        elif entry.kind in ("context.compiled", "tool.returned"):
            if removed := _redaction(entry):
                attributes = identifiers(always | removed)
                yield Event(REDACTION_EVENT, entry.at_us, "info", _span_of(run, entry), attributes)
        elif entry.kind == "run.ended" and run.end == "completed":
            continue
        elif (known := KINDS[entry.kind].severity) is not None:
            severity: Severity = known
            attributes = identifiers(always | _told(entry, void))
            if entry.kind == "run.ended" and run.end in ("escalated", "exhausted"):
                severity = "error"
            if attributes.get("contextos.policy.denied") and attributes.get("contextos.policy.point") != "compile":
                severity = "warn"  # what a compile denies is a tool that is not shown
            yield Event(f"contextos.{entry.kind}", entry.at_us, severity, _span_of(run, entry), attributes)


def _span_of(run: EndedRunEntries, entry: Logged) -> str:
    if entry.kind in ("tool.refused", "tool.returned") and entry.body is not None:
        return call_span_id(entry.body["envelope"]["tool_call_id"])
    component = component_of(entry)
    # Of the others a component that worked for a short time has no span.
    return span_id(run, component if component in ALWAYS else "run")


def _redaction(entry: Logged) -> dict[str, Any]:
    """What was removed before it was recorded: how often, of which kinds, and by which rules; never where."""
    body = entry.body or {}
    if entry.kind == "tool.returned":
        envelope = body.get("envelope", {})
        if not envelope.get("metadata", {}).get("redaction_applied"):
            return {}
        return {genai.TOOL_NAME: envelope["capability_id"], genai.TOOL_CALL_ID: envelope["tool_call_id"]}
    found = body.get("manifests", {}).get("redactions", ())
    kinds = {kind for one in found for kind in one["kinds"]} & _REDACTED
    if not kinds:
        return {}
    rules = sorted({rule for one in found for rule in one["rules"]})
    names = {"contextos.redaction.kinds": sorted(kinds), "contextos.redaction.rules": rules}
    return {"contextos.redaction.places": len(found), **names}


def _decisions(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a policy decided about one call, or about every tool at once."""
    decided = body.get("decisions", (body,))
    lists = {"rule_ids": "matched_rule_ids", "denying_rule_ids": "denying_rule_ids", "gates": "gates"}
    return {
        "contextos.policy.point": decided[0].get("point") if decided else None,
        "contextos.policy_decision_ids": [one.get("policy_decision_id") for one in decided],
        "contextos.policy.denied": [one.get("capability_id") for one in decided if not one.get("allowed")],
        **{
            f"contextos.policy.{name}": sorted({each for one in decided for each in one.get(field, ())})
            for name, field in lists.items()
        },
    }


def _told(entry: Logged, void: Container[int]) -> dict[str, Any]:
    """The ids and names of an entry, by the attribute. Reasons, arguments and what was shown are left out."""
    body = entry.body
    if body is None:
        return {}
    if entry.kind == "policy.decided":
        return _decisions(body)
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
