"""The run table: one dict, `state -> event -> state`. An event that it does not list is refused and changes nothing.

An event is the kind of a journal entry. Where a verdict in the entry selects the next state, the event is
`kind:verdict`. The state of a run is the fold of its entries through `TABLE`. The diagram in the docs and the
Hypothesis state machine are generated from it.
Source: docs/design/contracts.md, "Run".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

START: Final = "new"
ENDS: Final = frozenset({"completed", "rejected", "refused", "escalated", "exhausted", "cancelled"})

_ENDING: dict[str, str] = {f"run.ended:{end}": end for end in sorted(ENDS)}
# A run in any state can be concluded with a record; every failure ends this way.
_CLOSING: dict[str, str] = {"memory.proposed": "scoring", "record.revised": "scoring", "replay.packed": "scoring"}
_SAME = ("policy.decided", "checkpoint.checked", "run.cancel_requested", "run.cancel_unproved")


def _stay(state: str, *events: str) -> dict[str, str]:
    return dict.fromkeys(events, state)


TABLE: Final[dict[str, dict[str, str]]] = {
    START: {"run.received": "received"},
    "received": {
        **_stay("received", "run.resumed", "identity.resolved", "run.pinned"),
        "run.context": "resolved",
        **_CLOSING,
    },
    "resolved": {
        **_stay(
            "resolved",
            "run.resumed",
            "run.pinned",
            "intent.resolved",
            "parameters.taken",
            "identity.resolved",
            "slot.selected",
            "slot.pinned",
            "attachment.fetched",
            "evidence.retrieved",
            "memory.recalled",
            "session.checkpointed",
            *_SAME,
        ),
        "slot.asked": "choosing",
        "context.compiled": "compiled",
        "call.answered": "open",
        "run.scored": "scoring",
        **_CLOSING,
    },
    "choosing": {
        **_stay(
            "choosing",
            "record.revised",
            "slot.answered",
            "run.resumed",
            "identity.resolved",
            "run.cancel_requested",
            "run.cancel_unproved",
        ),
        "slot.selected": "resolved",
        "run.scored": "scoring",
    },
    "compiled": {
        **_stay("compiled", "run.resumed", "planner.answered", "identity.resolved", *_SAME),
        "plan.proposed": "planning",
        "session.opened": "open",
        "call.answered": "open",
        "run.scored": "scoring",
        **_CLOSING,
    },
    "open": {
        **_stay("open", "run.resumed", *_SAME),
        "call.asked": "compiled",
        "session.finished": "scoring",
        "session.expired": "scoring",
        "run.scored": "scoring",
    },
    "planning": {
        **_stay("planning", "run.resumed", "call.observed", *_SAME),
        "plan.verified:ok": "verifying",
        "plan.verified:replan": "resolved",
        "plan.verified:reject": "scoring",
        "plan.verified:escalate": "scoring",
    },
    "verifying": {
        **_stay("verifying", "run.resumed", "session.checkpointed"),
        "call.answered": "open",
        **dict.fromkeys(
            (
                "policy.decided",
                "call.observed",
                "act.looked_up",
                "capability.quarantined",
                "history.read",
                "answer.compared",
                "arguments.traced",
                "tool.dispatching",
                "tool.refused",
                "checkpoint.checked",
                "run.cancel_requested",
                "run.cancel_unproved",
            ),
            "executing",
        ),
        "run.scored": "scoring",
    },
    "executing": {
        **_stay(
            "executing",
            "run.resumed",
            "call.observed",
            "act.looked_up",
            "capability.quarantined",
            "history.read",
            "credential.exchanged",
            "tool.refused",
            "tool.dispatching",
            "tool.returned",
            "tool.retry_scheduled",
            "tool.retry_due",
            "evidence.frozen",
            "answer.compared",
            "arguments.traced",
            "approval.voided",
            "identity.resolved",
            *_SAME,
        ),
        "approval.asked": "waiting",
        "record.revised": "waiting",
        "call.answered": "open",
        "run.scored": "scoring",
    },
    "waiting": {
        **_stay(
            "waiting",
            "record.revised",
            "approval.answered",
            "approval.expired",
            "approval.reasked",
            "run.cancel_requested",
            "run.cancel_unproved",
            "run.resumed",
            "identity.resolved",
            "credential.exchanged",
            "evidence.rechecked",
            "act.looked_up",
            "capability.quarantined",
            "history.read",
            "policy.decided",
        ),
        "effect.settled": "executing",
        "approval.voided": "executing",
        "tool.dispatching": "executing",
        "tool.refused": "executing",
        "call.observed": "executing",
        "tool.returned": "executing",
        "run.scored": "scoring",
    },
    "scoring": {
        # Of a session that its agent finished, a cancel request is still looked up.
        **_stay("scoring", "run.resumed", "run.scored", "call.observed", "session.checkpointed", *_CLOSING),
        **_stay("scoring", "run.cancel_requested", "run.cancel_unproved"),
        "context.compiled": "compiled",
        "policy.decided": "resolved",
        # A question is asked again: who acts and what is in force is resolved anew.
        "identity.resolved": "resolved",
        "call.answered": "open",
        **_ENDING,
    },
    **{end: {} for end in sorted(ENDS)},
    # An operator reopens a run that a person has to decide otherwise.
    **{end: {"run.reopened": "resolved"} for end in ("escalated", "exhausted")},
}

DECIDED_BY_BODY: Final = {"plan.verified": "verdict", "run.ended": "end"}
"""The kinds whose body selects the next state, each with the member that does."""


def event_of(kind: str, body: Mapping[str, Any]) -> str:
    """Return the event of a journal entry: its kind, followed by `:<verdict>` where the verdict selects the next
    state.
    """
    field = DECIDED_BY_BODY.get(kind)
    return f"{kind}:{body[field]}" if field else kind


def events(kind: str) -> list[str]:
    """Return every event that an entry of this kind can cause."""
    known = {name for row in TABLE.values() for name in row}
    return sorted(name for name in known if name == kind or name.startswith(f"{kind}:"))


def step(state: str, happened: str) -> str | None:
    """Return the next state of a run, or None if the event is not allowed in `state`."""
    return TABLE[state].get(happened)


def transition(state: str, kind: str, body: Mapping[str, Any]) -> str | None:
    """Return the next state of a run after an entry of this kind with this body, or None if it is not allowed."""
    return TABLE[state].get(event_of(kind, body))
