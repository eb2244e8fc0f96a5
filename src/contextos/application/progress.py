"""What happens in one run, as events that an application shows: each entry of its journal is exactly one event.

The types are those of the AG-UI protocol where one fits, and `CUSTOM` with the kind of the entry elsewhere. The number
of an event is that of its entry, so a reader that goes on behind its last number misses nothing and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import KINDS, Entry

ProgressType = Literal["RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_RESULT", "RUN_FINISHED", "CUSTOM"]


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One event of a run. `fields` are those of its type in AG-UI. `at_us` is Unix time in microseconds."""

    seq: int
    type: ProgressType
    at_us: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """The events of a run behind a number, and whether the run has ended, so that nothing follows."""

    events: tuple[ProgressEvent, ...]
    ended: bool


def progress_event(entry: Entry) -> ProgressEvent:
    """Return the event that an entry is. One whose body was erased is `CUSTOM`."""
    body = read_body(entry)
    known = _KNOWN.get(entry.kind)
    if known is not None and body is not None:
        return ProgressEvent(entry.seq, known[0], entry.at_us, known[1](entry, body))
    value = {"key": entry.key, "by": entry.by, "ledger": KINDS[entry.kind].ledger}
    return ProgressEvent(entry.seq, "CUSTOM", entry.at_us, {"name": entry.kind, "value": value})


def _started(entry: Entry, body: Any) -> dict[str, Any]:
    return {"threadId": body["request"].get("session_id") or entry.run, "runId": entry.run}


def _called(_entry: Entry, body: Any) -> dict[str, Any]:
    envelope = body["envelope"]
    return {"toolCallId": envelope["tool_call_id"], "toolCallName": envelope["capability_id"]}


def _returned(_entry: Entry, body: Any) -> dict[str, Any]:
    envelope = body["envelope"]
    said = {name: envelope[name] for name in ("status", "output", "error") if envelope.get(name) is not None}
    call_id = envelope["tool_call_id"]
    return {"messageId": call_id, "toolCallId": call_id, "role": "tool", "content": canonical(said).decode()}


def _ended(entry: Entry, body: Any) -> dict[str, Any]:
    result = {"end": body["end"], "record_id": body["record_id"], "record_hash": body["record_hash"]}
    return {"threadId": entry.run, "runId": entry.run, "result": result}


_KNOWN: Final[Mapping[str, tuple[ProgressType, Callable[[Entry, Any], dict[str, Any]]]]] = {
    "run.received": ("RUN_STARTED", _started),
    "tool.dispatching": ("TOOL_CALL_START", _called),
    "tool.returned": ("TOOL_CALL_RESULT", _returned),
    "run.ended": ("RUN_FINISHED", _ended),
}
