"""Which runs are always exported as a trace, decided when a run has ended and everything about it is known."""

from __future__ import annotations

from typing import Final

from contextos.telemetry.ended_run import EndedRunEntries

_ALWAYS: Final = frozenset(
    {
        "approval.asked",
        "slot.asked",
        "capability.quarantined",
        "run.cancel_unproved",
        "run.reopened",
        "effect.settled",
        "tool.refused",
    }
)
"""Kinds that a run with a gate, an incident or an act of an operator has."""


def is_always_kept(run: EndedRunEntries) -> bool:
    """Return whether the trace of a run is exported whatever share of runs is: it asked a person, failed, was part of
    an incident, or sent a call that can have a durable effect.

    A run of which something was erased is kept too: what is missing could be the reason.
    """
    if run.end != "completed" or any(entry.kind in _ALWAYS for entry in run.log):
        return True
    for entry in run.log:
        if entry.kind not in ("tool.dispatching", "tool.returned"):
            continue
        body = entry.body
        if body is None:
            return True
        if entry.kind == "tool.dispatching" and body["envelope"]["approval_mode_highest"] != "read_only":
            return True
        if entry.kind == "tool.returned":
            failed = body["outcome"] != "returned" or body["envelope"]["error"] is not None
            if failed or body["happened"] or body.get("drifted", False):
                return True
    return False
