"""The state of a run, computed from its entries: the view that callers and commands get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from contextos.contracts.journal import KINDS, Entry
from contextos.runtime import state_machine
from contextos.trust.journal.ledger import ASKING_STATES

ERASED: Final = "erased"
"""The state of a run that ended, if the entries that state how were erased."""

_ASKING: Final = frozenset({"approval.asked", "tool.returned", "slot.asked"})
"""The kinds that make a run wait. A `tool.returned` does if its outcome is `unknown`."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run: its state, and the current decision record (None before the first).

    `waiting` is None, or states in `for` what the run waits for: `approval`, `slot`, `settlement`, or `engine` if no
    process has driven it yet. `wake_at_us` is Unix time in microseconds, or None.
    """

    tenant_id: str
    run_id: str
    state: str
    record: dict[str, Any] | None
    waiting: dict[str, Any] | None
    wake_at_us: int | None

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.state in state_machine.ENDS or self.state == ERASED


def run_view(tenant_id: str, run_id: str, entries: Sequence[Entry], wake_at_us: int | None = 0) -> RunView:
    """Compute the view of a run from its entries. Only the bodies that decide the state are parsed."""
    states = {state_machine.START}
    for entry in entries:
        body = _parsed(entry) if entry.kind in state_machine.DECIDED_BY_BODY else {}
        # If the body was erased, every event of the kind is possible; later entries rule out the wrong ones.
        possible = state_machine.events(entry.kind) if body is None else [state_machine.event_of(entry.kind, body)]
        states = {after for state in states for one in possible if (after := state_machine.step(state, one))} or states
    revised = (_parsed(entry) for entry in reversed(entries) if entry.kind == "record.revised")
    record = next((record for record in revised if record is not None), None)
    if len(states) > 1 and record and record["end"] in states:
        states = {record["end"]}
    state = states.pop() if len(states) == 1 else ERASED
    waiting = (
        _waits_for_engine(entries[0])
        if state == "received"
        else _waits_for(entries)
        if state in ASKING_STATES
        else None
    )
    return RunView(tenant_id, run_id, state, record, waiting, wake_at_us)


def _waits_for_engine(received: Entry) -> dict[str, Any] | None:
    """What a run waits for that no process has driven yet: an engine, if it is `long_running`."""
    answer = _parsed(received)
    return {"for": "engine"} if answer and answer["request"]["mode"] == "long_running" else None


def _parsed(entry: Entry) -> Any:
    """The parsed body of an entry, or its answer if the kind is recorded; None if it was erased."""
    if entry.body is None:
        return None
    body = orjson.loads(entry.body)
    return body["answer"] if KINDS[entry.kind].recorded else body


def _waits_for(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """What a waiting run waits for: its last question that was not erased."""
    for entry in reversed(entries):
        body = _parsed(entry) if entry.kind in _ASKING else None
        if body is None:
            continue
        if entry.kind == "approval.asked":
            return {
                "for": "approval",
                **{name: body[name] for name in ("approval_id", "gate_id", "required_role", "deadline_us", "shown")},
            }
        if entry.kind == "slot.asked":
            return {"for": "slot", "slot_id": body["slot"]["slotId"], "principal_id": body["actor"]["principal_id"]}
        if body["outcome"] == "unknown":
            return {
                "for": "settlement",
                "capability_id": body["envelope"]["capability_id"],
                "tool_call_id": body["envelope"]["tool_call_id"],
            }
    return None
