"""Compute the events of one run in order, and find the place in them that an id names.

An event belongs to one entry, and has a fixed number in it. Its id names the run, the entry, that number, and the end
of the entry's hash, so two events never have the same id. An event that is read again after a crash, by another process
or after an erasure keeps its id. The id of another run, an invented id, and the id of an entry that a restore lost are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.entries.reading import read_body
from contextos.deployment.queries.run_view import ERASED
from contextos.deployment.stream.vocabulary import EventType, Told, ended, started, step_event, told
from contextos.errors import InvalidInput, Problem
from contextos.runtime.state_machine import DECIDED_BY_BODY, START, TABLE, event_of, events

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry

Position = tuple[int, int]
"""The number of an entry and the number of an event in it; `(0, 0)` is before the first event."""

BEFORE_ALL: Final[Position] = (0, 0)
_HASH_CHARS: Final = 16
_EVENT_ID: Final = re.compile(
    r"(?P<run>run_[0-9a-z_]{1,64})\.(?P<seq>[1-9][0-9]{0,9})\.(?P<number>[0-9])\.(?P<hash>[0-9a-f]{16})"
)
_STEP_FINISHED, _RUN_STARTED, _STEP_STARTED, _FIRST_OWN = range(4)
"""The numbers of the events of an entry. Its own events are numbered from `_FIRST_OWN` on; an event that the entry does
not have leaves a gap.
"""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a run. `position` is its place, `at_us` Unix time in microseconds, and `members` the members of the
    event except `type` and `timestamp`.
    """

    id: str
    run_id: str
    position: Position
    type: EventType
    at_us: int
    members: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """Return the event as JSON, as AG-UI spells it; `timestamp` is Unix time in milliseconds."""
        return {"type": self.type, "timestamp": self.at_us // 1000, **self.members}


def stream_events(entries: Iterable[Entry]) -> Iterator[StreamEvent]:
    """Yield the events of a run from its entries. A prefix of the entries gives a prefix of the events."""
    fold = _Fold()
    for entry in entries:
        for number, event in fold.step(entry):
            identity = f"{entry.run}.{entry.seq}.{number}.{entry.hash[-_HASH_CHARS:]}"
            yield StreamEvent(identity, entry.run, (entry.seq, number), event.type, entry.at_us, event.members)


def position_of(run_id: str, entries: Sequence[Entry], after: str) -> Position:
    """Return the place of the event with the id `after` in a run; the empty id is before the first event.

    Raises:
        InvalidInput: this run has no such event (`unknown_event`).
    """
    if not after:
        return BEFORE_ALL
    match = _EVENT_ID.fullmatch(after) if isinstance(after, str) else None
    seq = int(match["seq"]) if match else 0
    if match and match["run"] == run_id and seq <= len(entries) and entries[seq - 1].hash.endswith(match["hash"]):
        return seq, int(match["number"])
    remedy = "pass the id of an event of this run, or none to read it from the start"
    raise InvalidInput(Problem("/after", "unknown_event", f"`{str(after)[:64]}` is not an event of this run", remedy))


@dataclass(slots=True)
class _Fold:
    """The state that the events of an entry need from the entries before it. `open` is the step that the run is in.

    An erased body can leave several states possible; the step changes when only one is left.
    """

    states: frozenset[str] = frozenset({START})
    open: str | None = None
    thread: str = ""
    record: dict[str, Any] | None = field(default=None)

    def step(self, entry: Entry) -> Iterator[tuple[int, Told]]:
        """Yield the events of the next entry, each with its number in the entry."""
        body = read_body(entry)
        self.states = _states_after(self.states, entry, body)
        state = next(iter(self.states)) if len(self.states) == 1 else self.open
        has_ended = entry.kind == "run.ended"
        if self.open is not None and (has_ended or state != self.open):
            yield _STEP_FINISHED, step_event("STEP_FINISHED", self.open)
            self.open = None
        if entry.kind in ("run.received", "run.reopened"):
            start = started(entry.run, body if entry.kind == "run.received" else None)
            self.thread = self.thread or start.members["threadId"]
            yield _RUN_STARTED, start._replace(members={**start.members, "threadId": self.thread})
        if self.open is None and not has_ended and state is not None:
            yield _STEP_STARTED, step_event("STEP_STARTED", state)
            self.open = state
        if entry.kind == "record.revised":
            self.record = body
        if has_ended:
            yield _FIRST_OWN, ended(entry.run, self.thread, body["end"] if body else ERASED, self.record)
        yield from enumerate(told(entry, body), _FIRST_OWN)


def _states_after(states: frozenset[str], entry: Entry, body: Any) -> frozenset[str]:
    """Return the states that a run can be in after an entry."""
    erased = body is None and entry.kind in DECIDED_BY_BODY
    # The body of an entry of another kind is not read.
    possible_events = events(entry.kind) if erased else (event_of(entry.kind, body),)
    next_states = {TABLE[state].get(event) for state in states for event in possible_events}
    return frozenset(state for state in next_states if state is not None) or states
