"""The kinds of no ledger: how a run begins, goes on and ends."""

from __future__ import annotations

from typing import Final, get_args

from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.row import AGENT_SESSION, Kind, picked
from contextos.contracts.envelopes.record import SessionCheckpoint
from contextos.contracts.envelopes.verdicts import End
from contextos.contracts.journal import NONE

RUN_KINDS: Final[dict[str, Kind]] = {
    "run.received": Kind(NONE, recorded.ReceivedRun, "new>received", recorded=True),
    "run.resumed": Kind(
        NONE,
        recorded.ResumedRun,
        "received resolved choosing compiled open planning verifying executing waiting scoring",
        recorded=True,
        author="*",
        wakes=True,
        told=picked("cause"),
    ),
    "run.cancel_requested": Kind(
        NONE,
        recorded.RequestedCancel,
        "resolved choosing compiled open planning executing waiting scoring verifying>executing",
        recorded=True,
        author="/by",
        appended=True,
        wakes=True,
        severity="warn",
        told=picked("by", "reason"),
    ),
    "run.cancel_unproved": Kind(
        NONE,
        recorded.UnprovedCancel,
        "resolved choosing compiled open planning executing waiting scoring verifying>executing",
        recorded=True,
        severity="error",
        always_kept=True,
        told=picked(),
    ),
    "session.checkpointed": Kind(NONE, SessionCheckpoint, "resolved verifying scoring"),
    "session.expired": Kind(
        NONE, recorded.ExpiredSession, "open>scoring", recorded=True, wakes=True, component=AGENT_SESSION, told=picked()
    ),
    "run.ended": Kind(
        NONE,
        derived.EndedRun,
        " ".join(f"scoring>{end}:{end}" for end in sorted(get_args(End))),
        decides="end",
        severity="warn",
    ),
    "run.reopened": Kind(
        NONE,
        recorded.ReopenedRun,
        "escalated>resolved exhausted>resolved",
        recorded=True,
        author="/by",
        wakes=True,
        severity="warn",
        always_kept=True,
        told=picked("by", "reason", "limit", "to"),
    ),
}
