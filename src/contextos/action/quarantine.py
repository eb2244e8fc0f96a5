"""Quarantine foreign tools: a tool whose definition has changed is not called, in any process, until a person acts.

The adapter finds the change before it sends anything, and replies with `definition_drift`. The incident becomes a
document in the commit of that reply. Every later call reads it before its adapter is asked for anything.
Source: docs/adr/0044-a-quarantine-is-kept-in-the-store.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from contextos.contracts.documents.operations import DRIFT_INCIDENTS, DriftIncident
from contextos.contracts.envelopes.tool import DEFINITION_DRIFT, AdapterReply, StatedCall
from contextos.contracts.journal import Write
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import Capability

OpenIncidents = Callable[[str], Awaitable[Sequence[str]]]
"""quarantine key -> the keys of the incidents that keep the capability in quarantine."""


async def is_quarantined(
    journal: Journal, capability: Capability, quarantine_key: str, open_incidents: OpenIncidents, key: str
) -> bool:
    """Return whether a capability has open incidents, and record it under `key` if it has."""
    if not can_drift(capability):
        return False

    async def look() -> dict[str, Any] | None:
        incidents = await open_incidents(quarantine_key)
        return {"capability_id": capability.capability_id, "incidents": len(incidents)} if incidents else None

    return await journal.record_found("capability.quarantined", key, look) is not None


def incidents_sought(quarantine_key: str) -> tuple[tuple[str, str, int], ...]:
    """Return the key range to read from the store to see whether a capability has incidents, open or not."""
    return ((*DRIFT_INCIDENTS.place(quarantine_key), 1),)


async def has_incidents(capability: Capability, quarantine_key: str, open_incidents: OpenIncidents) -> bool:
    """Return whether a capability has open incidents. Nothing is recorded here: the caller records what follows."""
    return can_drift(capability) and bool(await open_incidents(quarantine_key))


def quarantine_detail(capability: Capability) -> str:
    """Return the text that explains to a person why a call was not sent."""
    name = capability.capability_id
    return f"`{name}` is in quarantine, because its server does not list it as it was published; nothing was sent"


def has_drifted(capability: Capability, reply: AdapterReply | None) -> bool:
    """Return whether an adapter replied that the server's definition of the tool has changed, so nothing was sent."""
    error = reply.error if reply is not None else None
    return can_drift(capability) and error is not None and error.code == DEFINITION_DRIFT


def incident(quarantine_key: str, envelope: StatedCall, at_us: int) -> Write:
    """Build the write that puts a capability into quarantine. Calls that find the same change do not conflict."""
    body = DriftIncident(envelope.run_id, envelope.tool_call_id, at_us)
    return DRIFT_INCIDENTS.write(f"{quarantine_key}{envelope.tool_call_id}", 0, body)


def can_drift(capability: Capability) -> bool:
    """Return whether a server that others can change answers the calls of a capability."""
    return capability.adapter.type != "function"
