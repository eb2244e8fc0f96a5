"""Checks rows of the idempotency table: the signed journal of the run that a row names must show the row's content.

The row is a cache of what runs did, and the application role can rewrite it. The signed journal of the run that it
names is the truth.
Source: docs/design/journal.md, "Rows that the journal proves".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import OperationDocument, args_fingerprint, operation_key
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.kinds import UNSIGNED_KINDS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken
from contextos.trust.journal.signed_heads import read_proved

_DONE_STATES = ("completed", "unusable")


async def operation_fault(
    store: Store, tenant_id: str, keys: Keys, place: str, stored: StoredDocument[OperationDocument]
) -> str | None:
    """Return why the row `place` of the idempotency table is not believed, or None.

    Reads the journal of the run that the row names, and counts only what a signed head covers. An erased call proves
    nothing. If the run goes on at the same time, the row can be older than the journal: read it again.
    """
    row = stored.body
    try:
        entries = await read_proved(store, tenant_id, row.run_id, keys)
    except ChainBroken as error:
        return f"the run that it names does not verify: {error}"
    if not entries:
        return f"it names the run `{row.run_id[:64]}`, which has no signed entry"
    return shown_fault(entries, place, stored)


def shown_fault(entries: Sequence[Entry], place: str, stored: StoredDocument[OperationDocument]) -> str | None:
    """Return why these verified entries of the run that the row names do not show what the row states, or None."""
    row = stored.body
    shown_state = _call_state(entries, place, row)
    if shown_state is None:
        return f"no signed entry of `{row.run_id}` dispatches `{row.tool_call_id[:64]}` for this operation"
    state, output, has_gone_on, claimed_at = shown_state
    if not has_gone_on and row.state == "claimed":
        return None
    if state != row.state:
        return f"it states `{row.state}`, and `{row.run_id}` shows `{state}`"
    # Only a released operation is taken up by another run, which writes the next versions of the row.
    if state == "released" and stored.version != claimed_at + 1:
        return f"it is not the version that `{row.run_id}` released, so the operation was taken up since"
    if state in _DONE_STATES and output != canonical([row.output, list(row.mutations)]):
        return f"its output is not the one that `{row.run_id}` recorded"
    return None


def _call_state(entries: Sequence[Entry], place: str, row: OperationDocument) -> tuple[str, bytes, bool, int] | None:
    """Return the state of the row's call after these entries, its output and effects in canonical JSON, whether the run
    has gone on since it was settled, and the version of the row that claims the operation (0: the entry that states it
    was erased); None if the entries do not dispatch the call.
    """
    state, output, step, was_sent, has_gone_on = "", b"", "", True, True
    free_versions: dict[str, int] = {}
    for entry in entries:
        has_gone_on = has_gone_on or entry.kind not in UNSIGNED_KINDS
        body = read_body(entry) if entry.kind in _READ_KINDS else None
        if body is None:
            continue
        if entry.kind == "act.looked_up":
            phase, _, call = entry.key.partition("/")
            if phase != "again":
                free_versions[call] = body["version"]
        elif entry.kind == "tool.dispatching":
            envelope = body["envelope"]
            operation = operation_key(envelope["capability_id"], envelope.get("idempotency_key") or "")
            same = (envelope["tool_call_id"], args_fingerprint(envelope["args"])) == (row.tool_call_id, row.fingerprint)
            if same and operation == place:
                state, step = "claimed", entry.key.rpartition("/")[0]
        elif not state:
            continue
        elif entry.kind == "tool.returned" and body["envelope"]["tool_call_id"] == row.tool_call_id:
            was_sent = body["outcome"] != "not_sent"
            if body["outcome"] != "unknown":
                is_usable = body["envelope"]["status"] == "completed" and "withheld" not in body["envelope"]
                state, output = _final_state(body["happened"], is_usable), _canonical_output(body["envelope"])
        elif entry.kind == "tool.retry_scheduled" and body["tool_call_id"] == row.tool_call_id:
            state = "claimed"
        elif entry.kind == "tool.refused" and body["envelope"]["tool_call_id"] == row.tool_call_id:
            # The attempt that waited is not made, so the state after the last one is final.
            state = state if was_sent else "released"
        elif entry.key == f"uncertain/{step}":
            # A settlement is asked for again: an entry appended before is not a settlement.
            state, output = "claimed", b""
        elif entry.kind == "effect.settled" and entry.key == step:
            state, output, has_gone_on = _final_state(body["happened"], is_usable=True), _canonical_output(body), False
    return (state, output, has_gone_on, free_versions.get(step, -1) + 1) if state else None


_READ_KINDS = frozenset(
    {"act.looked_up", "tool.dispatching", "tool.returned", "tool.retry_scheduled", "tool.refused"}
    | {"effect.settled", "record.revised"}
)


def _final_state(happened: bool, is_usable: bool) -> str:
    return "released" if not happened else "completed" if is_usable else "unusable"


def _canonical_output(body: dict[str, Any]) -> bytes:
    return canonical([body.get("output"), list(body.get("mutations", ()))])
