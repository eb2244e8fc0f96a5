"""Finds the capabilities in quarantine: those with an incident that no sealed act of an operator released.

An incident is a row that nobody signs. A row that somebody made up denies calls and never allows one. If somebody
removed a row, the adapter still compares the definition before every call.
Source: docs/adr/0044-a-quarantine-is-kept-in-the-store.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from contextos.contracts.documents.operations import DRIFT_INCIDENTS
from contextos.contracts.journal import CONTROL
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.trust.approvals.acts import counted_act

RELEASED: Final = "capability.released"
"""The act with which an operator ends a quarantine."""


async def open_incidents(store: Store, keys: Keys, prefix: str) -> Sequence[str]:
    """Return the keys of the incidents that are in force and begin with `prefix`, which begins with `<capability>/`.

    Reads the keys of incidents, not their bodies, and the acts of operators.
    """
    incidents = [key async for page in DRIFT_INCIDENTS.key_pages(store, prefix=prefix) for key in page]
    if not incidents:
        return ()
    released = await _released_incidents(store, keys, prefix.partition("/")[0])
    return [key for key in incidents if key not in released]


async def _released_incidents(store: Store, keys: Keys, capability_id: str) -> set[str]:
    """Return the incidents of a capability that sealed acts release."""
    released = set[str]()
    for entry in await store.lines(CONTROL, capability_id):
        act = counted_act(entry, keys) if entry.kind == RELEASED else None
        if act is not None and act.arguments.get("capability_id") == entry.key:
            released.update(map(str, act.arguments.get("incidents", ())))
    return released
