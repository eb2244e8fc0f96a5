"""Verify the audit of context slots: it holds for each run exactly what the run's journal says was selected.

Source: docs/design/contracts.md, "Context slots"; docs/adr/0025-a-run-writes-its-selections-from-its-journal.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.slots import SelectionAct
from contextos.contracts.journal import Entry
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, Integrity


async def verify_selections(store: Store, run_id: str, entries: Sequence[Entry]) -> None:
    """Compare the selections of a run in the audit with the entries of its verified journal.

    A selection that the run has not pinned yet can be in the audit or not.

    Raises:
        ChainBroken: an act of the journal is missing or altered in the audit, or the audit has a further act.
    """
    try:
        stored = {act.selection_id: act for act in await store.selections(run_id)}
    except Integrity as error:
        raise ChainBroken(run_id, len(entries), f"is not what the audit of its slots holds: {error}") from None
    selected = _selected_acts(entries)
    if stored.keys() - selected.keys():
        # The run can have gone on since its entries were read.
        entries = await store.read(run_id)
        selected = _selected_acts(entries)
    pinned = {
        item.key for item in entries if item.kind == "slot.pinned" and (read_body(item) or {}).get("pinned") is not None
    }
    for selection_id, (entry, act) in selected.items():
        stored_act = stored.pop(selection_id, None)
        if stored_act is None and entry.key in pinned:
            raise ChainBroken(run_id, entry.seq, "selected for a slot, and the audit of slots does not hold that")
        if stored_act is not None and stored_act != act:
            raise ChainBroken(run_id, entry.seq, "selected something else for a slot than the audit of slots holds")
    if len(stored) > sum(item.kind == "slot.selected" and item.body is None for item in entries):
        detail = f"made no such selection as `{min(stored)}`, which is in the audit of slots"
        raise ChainBroken(run_id, len(entries), detail)


def _selected_acts(entries: Sequence[Entry]) -> dict[str, tuple[Entry, SelectionAct]]:
    """Return the acts in a journal by selection id. The body of an entry can be erased; then its act is unknown."""
    bodies = ((entry, read_body(entry)) for entry in entries if entry.kind == "slot.selected")
    acts = [(entry, SelectionAct.model_validate(body["act"])) for entry, body in bodies if body and body.get("act")]
    return {act.selection_id: (entry, act) for entry, act in acts}
