"""Compute the state of a run from its journal entries, as callers and commands see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.operations import OPERATIONS
from contextos.contracts.documents.runs import BLOCKED_RUNS
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import Principals
from contextos.contracts.journal import Entry
from contextos.contracts.ports.storage import Store
from contextos.contracts.statements.questions import shown_text
from contextos.deployment.queries.run_now import paused_result, whole_result
from contextos.runtime import state_machine
from contextos.trust.journal.entry_acts import last_record
from contextos.trust.journal.ledger import ASKING_STATES

ERASED: Final = "erased"
"""The state of a run that ended, if the entries that say how it ended were erased."""


@dataclass(frozen=True, slots=True)
class RunView:
    """The state of a run, and its current decision record (None before the first).

    `waiting` is None, or states in `for` what the run waits for: `approval`, `slot`, `settlement`, `agent` if the agent
    of a session has to say what comes next, or `engine` if a process has to drive it for the first time, or after an
    answer. For an approval or a settlement, `result` is the `paused` result of the call that waits. `wake_at_us` is
    Unix time in microseconds, or None.
    """

    tenant_id: str
    run_id: str
    state: str
    record: dict[str, Any] | None
    waiting: dict[str, Any] | None
    wake_at_us: int | None

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""
        return self.state in state_machine.ENDS or self.state == ERASED


def run_view(tenant_id: str, run_id: str, entries: Sequence[Entry], wake_at_us: int | None = 0) -> RunView:
    """Compute the view of a run from its entries. Only the bodies that decide the state are parsed."""
    states = {state_machine.START}
    for entry in entries:
        if len(states) == 1 and entry.kind in state_machine.STILL:
            continue
        events = _events(entry) if entry.kind in state_machine.DECIDED_BY_BODY else (entry.kind,)
        states = {
            after for state in states for event in events if (after := state_machine.TABLE[state].get(event))
        } or states
    record = last_record(entries) if len(states) > 1 else None
    if record and record["end"] in states:
        states = {record["end"]}
    state = states.pop() if len(states) == 1 else ERASED
    return view_in_state(tenant_id, run_id, entries, state, last_record(entries), wake_at_us)


def view_in_state(
    tenant_id: str,
    run_id: str,
    entries: Sequence[Entry],
    state: str,
    record: dict[str, Any] | None,
    wake_at_us: int | None,
) -> RunView:
    """Compute the view of a run from its state and last record, which its driver knows."""
    waiting = (
        _waits_for_engine(entries[0])
        if state == "received"
        else {"for": "engine"}
        if entries and entries[-1].kind == "run.reopened"
        else _waits_for(entries)
        if state in ASKING_STATES
        else {"for": "agent"}
        if state == "open"
        else None
    )
    return RunView(tenant_id, run_id, state, record, waiting, wake_at_us)


def _events(entry: Entry) -> Sequence[str]:
    """Return the event of an entry whose body decides the next state. If the body was erased, every event of the kind
    is possible, and later entries rule out the wrong ones.
    """
    body = read_body(entry)
    return state_machine.events(entry.kind) if body is None else (state_machine.event_of(entry.kind, body),)


def _waits_for_engine(entry: Entry) -> dict[str, Any] | None:
    """Return what a run waits for before its first drive: an engine, if it is `long_running`; else None."""
    answer = read_body(entry)
    return {"for": "engine"} if answer and answer["request"]["mode"] == "long_running" else None


def _waits_for(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Return what a waiting run waits for: its last unerased question, or an engine once that was answered."""
    is_uncertain = False
    for entry in reversed(entries):
        # A settlement that does not count is asked for again.
        is_uncertain = is_uncertain or (entry.kind == "record.revised" and entry.key.startswith("uncertain/"))
        if (row := KINDS.get(entry.kind)) is None:
            continue
        if row.answers and not is_uncertain:
            return {"for": "engine"}
        # A `tool.returned` asks only if its outcome is `unknown`.
        body = read_body(entry) if row.asks else None
        if body is None:
            continue
        if entry.kind == "approval.asked":
            return {
                "for": "approval",
                **{
                    name: body[name]
                    for name in ("approval_id", "gate_id", "required_role", "deadline_us", "binding_digest")
                },
                "shown": shown_text(body["binding"], body["args"], body["evidence"]),
                **({"result": paused} if (paused := whole_result(entries, paused_result(body))) else {}),
            }
        if entry.kind == "slot.asked":
            return {"for": "slot", **(row.noticed(body) if row.noticed else {})}
        if body["outcome"] == "unknown":
            return {
                "for": "settlement",
                "capability_id": body["envelope"]["capability_id"],
                "tool_call_id": body["envelope"]["tool_call_id"],
                **({"result": result} if (result := whole_result(entries, body["envelope"])) else {}),
            }
    return None


def run_principals(entries: Sequence[Entry]) -> Principals | None:
    """Return the recorded user and agent of a run; None if they were never recorded or were erased."""
    identity = next((entry for entry in entries if entry.kind == "identity.resolved" and not entry.key), None)
    if identity is None or identity.body is None:
        return None
    fields = read_body(identity)["principals"]
    return Principals.model_validate(fields) if fields else None


async def blocked_by(store: Store, view: RunView) -> str | None:
    """Return the run that does the operation for which this run waited at its last drive; None once it is settled."""
    if view.ended or view.waiting:
        return None
    blocked = await BLOCKED_RUNS.one(store, view.run_id)
    operation = await OPERATIONS.one(store, blocked.body.operation) if blocked else None
    if operation is None or operation.body.state != "claimed" or operation.body.run_id == view.run_id:
        return None
    return operation.body.run_id
