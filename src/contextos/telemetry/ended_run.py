"""`EndedRunEntries`: the entries of a run since its last end, read once for spans, events, metrics and sampling.

Telemetry is made only from what `EndedRunEntries` reads: a run has no second account of itself. Values are taken by
name from known fields. Arguments, outputs, evidence, messages and reasons are never taken, and a text counts only if it
has the form of an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.verdicts import FailureCode
from contextos.contracts.journal import Entry, Logged
from contextos.contracts.trace import TraceContext
from contextos.errors import Integrity

Value = str | int | float | bool | tuple[str, ...]
Attributes = Mapping[str, Value]

_ONCE: Final = ("run.received", "run.pinned", "run.context", "intent.resolved")
MAX_VALUE_CHARS: Final = 256
_IDENTIFIER: Final = re.compile(rf"[A-Za-z0-9_.:/@#+\-]{{1,{MAX_VALUE_CHARS}}}")
_HTTP_ERROR: Final = re.compile(r"http_[1-5][0-9]{2}")
_FAILURES: Final = frozenset(get_args(FailureCode))
_READ: Final = frozenset(
    {
        "run.received",
        "run.pinned",
        "run.context",
        "intent.resolved",
        "policy.decided",
        "plan.proposed",
        "attachment.fetched",
        "tool.dispatching",
        "tool.returned",
        "tool.refused",
        "effect.settled",
        "capability.quarantined",
        "approval.asked",
        "approval.answered",
        "approval.expired",
        "approval.reasked",
        "approval.voided",
        "run.scored",
        "run.ended",
    }
)
"""The kinds whose body is parsed. So are the final record, and a compile that had something redacted before it. Of the
others only the time counts.
"""
_REDACTED: Final = b'"redactions":[{'


@dataclass(frozen=True, slots=True)
class EndedRunEntries:
    """The entries of a run since its last end (`log`), with the bodies that telemetry reads; None if it was erased.

    `trace` is the trace of the request. `segment` counts how often the run was reopened before: 0 for most runs.
    `begun` has what a run records once, when it begins, by the kind of the entry, and `spent_before` the budget that it
    had used at its last end.
    """

    tenant_id: str
    run_id: str
    trace: TraceContext
    log: Sequence[Logged]
    segment: int
    begun: Mapping[str, Mapping[str, Any]]
    spent_before: Mapping[str, float]

    def of(self, *kinds: str) -> Iterator[Logged]:
        """Yield the entries of these kinds whose body was not erased, in order."""
        return (entry for entry in self.log if entry.kind in kinds and entry.body is not None)

    def first(self, kind: str) -> Mapping[str, Any]:
        """Return the body of the first entry of a kind, or an empty one."""
        body: Mapping[str, Any] = next((entry.body for entry in self.of(kind)), self.begun.get(kind, {}))
        return body

    @property
    def record(self) -> Mapping[str, Any]:
        """Return the final record, or an empty one."""
        return self.first("record.revised")

    @property
    def end(self) -> str:
        """Return how the run ended."""
        return str(self.first("run.ended").get("end", "unknown"))


def ended_run(entries: Sequence[Entry]) -> EndedRunEntries:
    """Read the entries of a run that ends with `run.ended`.

    Raises:
        Integrity: the run has not ended, or the body of its request was erased.
    """
    if not entries or entries[-1].kind != "run.ended":
        raise Integrity("a run that has not ended has no telemetry; drive it to its end")
    ends = [at for at, entry in enumerate(entries) if entry.kind == "run.ended"]
    received = read_body(entries[0])
    if received is None:
        raise Integrity(f"the request of `{entries[0].run}` was erased, and with it its trace")
    begins = ends[-2] + 1 if len(ends) > 1 else 0
    records = [read_body(one) for one in entries[:begins] if (one.kind, one.key) == ("record.revised", "final")]
    return EndedRunEntries(
        tenant_id=entries[0].tenant,
        run_id=entries[0].run,
        trace=TraceContext.model_validate(received["request"]["trace"]),
        log=tuple(_log(entries[begins:])),
        segment=len(ends) - 1,
        begun={one.kind: read_body(one) or {} for one in entries[:begins] if one.kind in _ONCE and not one.key},
        spent_before=(records[-1] or {}).get("budget_usage", {}) if records else {},
    )


def ended_parts(entries: Sequence[Entry]) -> Iterator[EndedRunEntries]:
    """Read each part of a run that ends with `run.ended`, in order; of a run that has not ended there is none.

    Raises:
        Integrity: the body of its request was erased.
    """
    for at, entry in enumerate(entries, 1):
        if entry.kind == "run.ended":
            yield ended_run(entries[:at])


def identifiers(found: Mapping[str, Any]) -> dict[str, Value]:
    """Return the attributes that can leave: numbers, truth values, and texts with the form of an identifier.

    >>> identifiers({"tool": "adp_orders.lookup", "why": "he said so", "none": None, "count": 3})
    {'tool': 'adp_orders.lookup', 'count': 3}
    """
    kept: dict[str, Value] = {}
    for name, value in found.items():
        if isinstance(value, str):
            if _IDENTIFIER.fullmatch(value):
                kept[name] = value
        elif isinstance(value, list | tuple):
            if texts := tuple(one for one in value if isinstance(one, str) and _IDENTIFIER.fullmatch(one)):
                kept[name] = texts
        elif isinstance(value, bool | int | float):
            kept[name] = value
    return kept


def error_type(code: Any) -> str:
    """Return a code of a failed call from a closed set: those of the runtime, `http_<status>`, or `tool_error`.

    An adapter chooses its own codes freely, so one of those could hold anything.
    """
    known = isinstance(code, str) and (code in _FAILURES or _HTTP_ERROR.fullmatch(code))
    return str(code) if known else "tool_error"


def _log(entries: Sequence[Entry]) -> Iterator[Logged]:
    for entry in entries:
        reads = entry.kind in _READ or (entry.kind, entry.key) == ("record.revised", "final")
        reads = reads or (entry.kind == "context.compiled" and _REDACTED in (entry.body or b""))
        body = read_body(entry) if reads else None
        yield Logged(entry.seq, entry.kind, entry.key, entry.at_us, entry.by, body, entry.hash)
