"""The events of a run that an operator reads in a log, computed from its journal entries.

Each names the span to which it belongs. They have ids, names, digests and numbers, and no free text.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.row import Severity
from contextos.contracts.journal import Logged
from contextos.telemetry import genai
from contextos.telemetry.ended_run import Attributes, EndedRunEntries, error_type, identifiers
from contextos.telemetry.spans import ALWAYS, call_span_id, component_of, model_span_id, span_id

AXES: Final = ("policy", "utility", "latency", "safety", "economics")
"""The axes of a scorecard."""

REDACTION_EVENT: Final = "contextos.redaction"
_NAMES: Final = {
    "capability_id": genai.TOOL_NAME,
    "tool_call_id": genai.TOOL_CALL_ID,
    "error_code": genai.ERROR_TYPE,
    "model": genai.RESPONSE_MODEL,
}
"""The OpenTelemetry names of members that an entry notes (`Kind.noted`). The others are `contextos.<member>`."""
_REDACTED: Final = frozenset(REDACTION_TARGETS.values())


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, time (Unix microseconds) and severity, and the span (16 hex digits) to which it belongs."""

    name: str
    at_us: int
    severity: Severity
    span_id: str
    attributes: Attributes


def run_events(run: EndedRunEntries) -> Iterator[Event]:
    """Yield the events of a run in the order of its entries. Passed scores and ends that are fine are left out."""
    common = {"contextos.run_id": run.run_id, "contextos.tenant_id": run.tenant_id}
    void = run.account.void_answers()
    for entry in run.log:
        if entry.kind == "run.scored" and entry.body is not None:
            run_span_id = span_id(run, "run")
            for axis in (axis for axis in AXES if entry.body[axis]["status"] != "pass"):
                result = genai.evaluation(axis, entry.body[axis]["score"], entry.body[axis]["status"])
                yield Event(genai.EVALUATION_EVENT, entry.at_us, "warn", run_span_id, {**result, **common})
        elif entry.kind in ("context.compiled", "tool.returned"):
            if redaction := _redaction_attributes(entry):
                attributes = identifiers(common | redaction)
                yield Event(REDACTION_EVENT, entry.at_us, "info", _span_id_of(run, entry), attributes)
        else:
            row = KINDS[entry.kind]
            severity = row.severity if row.graded is None or entry.body is None else row.graded(entry.body)
            if severity is not None:
                attributes = identifiers(common | _noted_attributes(entry, void))
                yield Event(f"contextos.{entry.kind}", entry.at_us, severity, _span_id_of(run, entry), attributes)


def _span_id_of(run: EndedRunEntries, entry: Logged) -> str:
    if entry.kind in ("tool.refused", "tool.returned") and entry.body is not None:
        return call_span_id(entry.body["envelope"]["tool_call_id"])
    if entry.kind in ("model.answered", "model.judged"):
        return model_span_id(run.run_id, entry.key)
    component = component_of(entry)
    # Another component has no span if it worked for a short time.
    return span_id(run, component if component in ALWAYS else "run")


def _redaction_attributes(entry: Logged) -> dict[str, Any]:
    """Return the redactions before an entry was recorded: how many, of which kinds, and by which rules; never where."""
    body = entry.body or {}
    if entry.kind == "tool.returned":
        envelope = body.get("envelope", {})
        if not envelope.get("metadata", {}).get("redaction_applied"):
            return {}
        return {genai.TOOL_NAME: envelope["capability_id"], genai.TOOL_CALL_ID: envelope["tool_call_id"]}
    redactions = body.get("manifests", {}).get("redactions", ())
    kinds = {kind for redaction in redactions for kind in redaction["kinds"]} & _REDACTED
    if not kinds:
        return {}
    rules = sorted({rule for redaction in redactions for rule in redaction["rules"]})
    names = {"contextos.redaction.kinds": sorted(kinds), "contextos.redaction.rules": rules}
    return {"contextos.redaction.places": len(redactions), **names}


def _noted_attributes(entry: Logged, void: Container[int]) -> dict[str, Any]:
    """Return the ids and names of an entry, by attribute. Reasons, arguments and what was shown are left out."""
    select = KINDS[entry.kind].noted
    if select is None or entry.body is None:
        return {}
    attributes = {_NAMES.get(name, f"contextos.{name}"): value for name, value in select(entry.body).items()}
    if genai.ERROR_TYPE in attributes:
        attributes[genai.ERROR_TYPE] = error_type(attributes[genai.ERROR_TYPE])
    return attributes | ({"contextos.verdict": "void"} if entry.seq in void else {})
