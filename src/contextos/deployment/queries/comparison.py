"""Compare two runs by what their journals say: the request, the envelope, tools, decisions, arguments, evidence and
outcome. Ids of a run, times and hashes are left out, because they differ between any two runs.

`compare_entries` is a pure function of the entries. The body of an entry that was erased is compared as `ERASED_BODY`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.runtime.admission import compared_request
from contextos.runtime.inputs.request_conflicts import differing_places

COMPARED_PARTS: Final = ("request", "envelope", "tools", "decisions", "arguments", "evidence", "outcome")
"""What is compared, in the order of a page."""
ERASED_BODY: Final = "erased"
MAX_RUN_DIFFERENCES: Final = 200

ComparedValue = tuple[str, str, Any]
"""A part, the name of a value in it, and the value."""


@dataclass(frozen=True, slots=True)
class RunDifference:
    """A place where two runs differ: the part, the name of the value and the JSON Pointer in it, then the value in
    each, and the number of the entry that states it. A value is `MISSING`, and its entry None, if a run has none.
    """

    part: str
    name: str
    place: str
    value: Any
    other: Any
    seq: int | None
    other_seq: int | None


def compare_entries(entries: Sequence[Entry], others: Sequence[Entry]) -> tuple[Sequence[RunDifference], bool]:
    """Return where two runs differ, the first difference first, and whether there are more than 200."""
    found, other_found = _values(entries), _values(others)
    names = dict.fromkeys([*found, *other_found])
    ordered = sorted(names, key=lambda name: min(of[name][0] for of in (found, other_found) if name in of))
    differences = _differences(ordered, found, other_found)
    first = list(islice(differences, MAX_RUN_DIFFERENCES))
    return first, next(differences, None) is not None


_Found = Mapping[tuple[str, str], tuple[int, Any]]


def _differences(names: Sequence[tuple[str, str]], found: _Found, other_found: _Found) -> Iterator[RunDifference]:
    for part, name in names:
        seq, value = found.get((part, name), (None, MISSING))
        other_seq, other = other_found.get((part, name), (None, MISSING))
        for place in differing_places(value, other):
            yield RunDifference(part, name, place, _at(value, place), _at(other, place), seq, other_seq)


def _at(value: Any, place: str) -> Any:
    return value if value is MISSING else resolve_pointer(value, place)


def _values(entries: Sequence[Entry]) -> dict[tuple[str, str], tuple[int, Any]]:
    """Return the compared values of a run by part and name, each with the number of its entry. The last one counts."""
    found: dict[tuple[str, str], tuple[int, Any]] = {}
    for entry in entries:
        if entry.kind not in _READERS:
            continue
        body = read_body(entry)
        read = _READERS[entry.kind]
        for part, name, value in read(entry.key, body) if body is not None else _erased(entry):
            found[part, name] = (entry.seq, value)
    return found


def _erased(entry: Entry) -> Iterator[ComparedValue]:
    yield _PART_OF[entry.kind], f"{entry.kind} {entry.key}".strip(), ERASED_BODY


def _request(_key: str, body: Any) -> Iterator[ComparedValue]:
    request = compared_request(body["request"])
    yield "request", "request", {name: value for name, value in request.items() if name != "request_id"}
    yield "envelope", "deployment", body["deployment"]


def _people(key: str, body: Any) -> Iterator[ComparedValue]:
    # A later look at the directory is compared if it found something else than the first one.
    if body["principals"] != {"same": True}:
        yield "envelope", f"principals {key}".strip(), body["principals"]


def _pins(_key: str, body: Any) -> Iterator[ComparedValue]:
    yield "envelope", "pins", {name: value for name, value in body.items() if name != "snapshot_line"}


def _context(_key: str, body: Any) -> Iterator[ComparedValue]:
    yield "envelope", "limits", body


def _compiled(key: str, body: Any) -> Iterator[ComparedValue]:
    yield "tools", f"shown to plan {key}", body["context_ledger"]["tools"]
    yield "envelope", f"budget of plan {key}", body["budget_report"]


def _evidence(_key: str, body: Any) -> Iterator[ComparedValue]:
    for item in body:
        shown = {name: item.get(name) for name in ("value", "origin", "integrity")}
        yield "evidence", f"{item.get('predicate')} of {item.get('subject')}", shown


def _selected(key: str, body: Any) -> Iterator[ComparedValue]:
    act = body.get("answer", body).get("act") or {}
    yield "evidence", f"slot {key}", act.get("refs", body.get("refused"))


def _decision(key: str, body: Any) -> Iterator[ComparedValue]:
    for decision in body.get("decisions", [body]):
        omitted = ("policy_decision_id", "facts_digest")
        shown = {name: value for name, value in decision.items() if name not in omitted}
        yield "decisions", f"{decision['capability_id']} at {key}", shown


def _plan(key: str, body: Any) -> Iterator[ComparedValue]:
    yield "decisions", f"plan {key}", {name: value for name, value in body.items() if name != "plan_id"}


def _route(key: str, body: Any) -> Iterator[ComparedValue]:
    yield "decisions", f"model {key}", {name: body.get(name) for name in ("operation", "rule_id", "profile")}


def _verdict(key: str, body: Any) -> Iterator[ComparedValue]:
    answer = body.get("answer", body)
    yield "decisions", f"answer of a person {key}", {name: answer.get(name) for name in ("verdict", "reason")}


def _call(key: str, body: Any) -> Iterator[ComparedValue]:
    yield "arguments", f"{body['envelope']['capability_id']} {key}", body["envelope"]["args"]


def _result(key: str, body: Any) -> Iterator[ComparedValue]:
    envelope = body.get("envelope") or {}
    shown = {name: envelope.get(name) for name in ("status", "output", "error")}
    yield "evidence", f"result of {envelope.get('capability_id')} {key}", {"outcome": body.get("outcome"), **shown}


def _record(_key: str, body: Any) -> Iterator[ComparedValue]:
    shown = {name: body.get(name) for name in ("end", "status", "outcome", "outputs", "rationale")}
    effects = [{name: one.get(name) for name in ("capability_id", "state", "mutations")} for one in body["effects"]]
    usage = {name: value for name, value in body["budget_usage"].items() if name != "wall_clock_ms"}
    yield "outcome", "record", {**shown, "effects": effects, "budget_usage": usage}


_READERS: Final[Mapping[str, Callable[[str, Any], Iterator[ComparedValue]]]] = {
    "run.received": _request,
    "identity.resolved": _people,
    "run.pinned": _pins,
    "run.context": _context,
    "context.compiled": _compiled,
    "evidence.retrieved": _evidence,
    "slot.selected": _selected,
    "policy.decided": _decision,
    "plan.proposed": _plan,
    "model.routed": _route,
    "approval.answered": _verdict,
    "tool.dispatching": _call,
    "tool.returned": _result,
    "record.revised": _record,
}
_PART_OF: Final = {
    "run.received": "request",
    "context.compiled": "tools",
    "evidence.retrieved": "evidence",
    "slot.selected": "evidence",
    "tool.returned": "evidence",
    "tool.dispatching": "arguments",
    "record.revised": "outcome",
    "identity.resolved": "envelope",
    "run.pinned": "envelope",
    "run.context": "envelope",
    "policy.decided": "decisions",
    "plan.proposed": "decisions",
    "model.routed": "decisions",
    "approval.answered": "decisions",
}
