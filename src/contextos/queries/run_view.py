"""A run as its caller sees it, folded from its entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from contextos.contracts.journal import KINDS, Entry
from contextos.runtime import state_machine
from contextos.trust.journal.ledger import ASKING_STATES

ERASED: Final = "erased"
"""The state of a run that ended, where what would tell how was erased."""

_ASKING: Final = frozenset({"approval.asked", "tool.returned", "slot.asked"})
"""What a run may wait for stands in one of these: an effect that is not known in the answer of its call."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its caller sees it: its state, and the record as it stands (None before there is one).

    `waiting` says for whom it waits (`for`: `approval`, `settlement`, or `engine` where nobody has driven it yet).
    """

    tenant_id: str
    run_id: str
    state: str
    record: dict[str, Any] | None
    waiting: dict[str, Any] | None
    wake_at_us: int | None

    @property
    def ended(self) -> bool:
        """Whether the run has come to one of its ends."""
        return self.state in state_machine.ENDS or self.state == ERASED


def run_view(tenant_id: str, run_id: str, entries: Sequence[Entry], wake_at_us: int | None = 0) -> RunView:
    """The view of a run from its entries, in values of its own. Only bodies that decide something are read."""
    states = {state_machine.START}
    for entry in entries:
        seen = _seen(entry) if entry.kind in state_machine.DECIDED_BY_BODY else {}
        # Where a body was erased that decided the way, what came after tells which way it was.
        happened = state_machine.events(entry.kind) if seen is None else [state_machine.event_of(entry.kind, seen)]
        states = {after for state in states for one in happened if (after := state_machine.step(state, one))} or states
    revised = (_seen(entry) for entry in reversed(entries) if entry.kind == "record.revised")
    record = next((record for record in revised if record is not None), None)
    if len(states) > 1 and record and record["end"] in states:
        states = {record["end"]}
    state = states.pop() if len(states) == 1 else ERASED
    waiting = _dispatched(entries[0]) if state == "received" else _asked(entries) if state in ASKING_STATES else None
    return RunView(tenant_id, run_id, state, record, waiting, wake_at_us)


def _dispatched(received: Entry) -> dict[str, Any] | None:
    """What a run waits for that nobody has driven yet, as far as anything of it is durable."""
    said = _seen(received)
    return {"for": "engine"} if said and said["request"]["mode"] == "long_running" else None


def _seen(entry: Entry) -> Any:
    """What an entry says, of an asked one the answer; None where it was erased."""
    if entry.body is None:
        return None
    body = orjson.loads(entry.body)
    return body["answer"] if KINDS[entry.kind].recorded else body


def _asked(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """What a run that waits waits for: what it asked last, as far as that was not erased."""
    for entry in reversed(entries):
        body = _seen(entry) if entry.kind in _ASKING else None
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
