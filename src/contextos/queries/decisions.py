"""Where the decision of a run stands: the status of its record, or what a person made of it after the end.

Source: docs/adr/0026-an-escalated-run-has-a-way-on.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextos.contracts.journal import CONTROL
from contextos.errors import ChainBroken
from contextos.queries.checked_run import UNREADABLE
from contextos.trust.approvals.acts import read_act
from contextos.trust.journal.ledger import ASKING_STATES

if TYPE_CHECKING:
    from contextos.contracts.envelopes.verdicts import DecisionStatus
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store
    from contextos.queries.checked_run import CheckedRun
    from contextos.queries.run_view import RunView


@dataclass(frozen=True, slots=True)
class DecisionView:
    """The status of a decision, and the person who resolved or closed it with their reason, or None.

    `status` is None if the record was erased.
    """

    status: DecisionStatus | None
    by: str | None = None
    reason: str | None = None


async def decision_of(store: Store, view: RunView, keys: Keys) -> DecisionView:
    """Return where the decision of a run stands.

    Raises:
        ChainBroken: an act about it is not the one that the runtime recorded.
    """
    if not view.ended:
        waits = view.record is not None and view.state in ASKING_STATES
        return DecisionView("DEFERRED" if waits else "IN_FLIGHT")
    if view.record is None:
        return DecisionView(None)
    stands = DecisionView(view.record["status"])
    for line in await store.lines(CONTROL, view.run_id):
        if line.kind not in ("decision.resolved", "decision.closed"):
            continue
        act = read_act(line, keys).act
        if act.arguments["record_hash"] == view.record["record_hash"]:
            status: Any = "CLOSED" if act.kind == "decision.closed" else act.arguments["status"]
            stands = DecisionView(status, act.actor, str(act.arguments["reason"]))
    return stands


async def checked_decision(store: Store, run: CheckedRun, keys: Keys) -> tuple[DecisionView, str | None]:
    """Return where the decision stands, and what about the run or an act about it does not verify, or None."""
    view = run.view()
    if view.state == UNREADABLE:
        return DecisionView(None), run.fault
    try:
        return await decision_of(store, view, keys), run.fault
    except ChainBroken as broken:
        return DecisionView(None), run.fault or str(broken)
    except (LookupError, TypeError):
        if run.fault is None:
            raise
        return DecisionView(None), run.fault
