"""Selects the runs whose trace is always exported, when a run has ended and everything about it is known."""

from __future__ import annotations

from contextos.contracts.entries.kinds import KINDS
from contextos.telemetry.ended_run import EndedRunEntries


def is_always_kept(run: EndedRunEntries) -> bool:
    """Return whether the trace of a run is exported whatever share of runs is: it asked a person, failed, was part of
    an incident, or sent a call that can have a durable effect.

    A run of which something was erased is kept too: the missing part could be the reason.
    """
    if run.end != "completed" or any(KINDS[entry.kind].always_kept for entry in run.log):
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
            failed = body["outcome"] != "returned" or body["envelope"].get("error") is not None
            if failed or body["happened"] or body.get("drifted", False):
                return True
    return False
