"""Compute the status of a run's decision: the status of its record, or the one that a person gave it after the end.

Also compute its short form, the decision output.

Source: docs/adr/0026-an-escalated-run-has-a-way-on.md; API Contracts, "Decision output".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextos.contracts.envelopes.record import DecisionOutput
from contextos.contracts.journal import CONTROL
from contextos.contracts.refs import policy_ref
from contextos.deployment.queries.checked_run import UNREADABLE
from contextos.deployment.queries.rationales import pinned_artifacts
from contextos.errors import ChainBroken, Integrity, NotFound
from contextos.trust.approvals.acts import read_act
from contextos.trust.journal.entry_acts import DECISION_ACTS, decision_acts
from contextos.trust.journal.ledger import ASKING_STATES
from contextos.trust.journal.record import OUTCOME_OF_END

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contextos.contracts.acts import OperatorAct
    from contextos.contracts.envelopes.verdicts import DecisionStatus
    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store
    from contextos.control.catalog import Catalog
    from contextos.deployment.queries.checked_run import CheckedRun
    from contextos.deployment.queries.run_view import RunView


@dataclass(frozen=True, slots=True)
class DecisionView:
    """The status of a decision, and the person who resolved or closed it with their reason, or None.

    `status` is None if the record was erased.
    """

    status: DecisionStatus | None
    by: str | None = None
    reason: str | None = None


async def decision_of(store: Store, view: RunView, keys: Keys) -> DecisionView:
    """Return the status of a run's decision.

    Raises:
        ChainBroken: an act about the decision is not the one that the runtime recorded.
    """
    entries = await store.lines(CONTROL, view.run_id) if view.ended and view.record is not None else []
    return decision_in(view, [(entry, read_act(entry, keys).act) for entry in entries if entry.kind in DECISION_ACTS])


def decision_in(view: RunView, acts: Iterable[tuple[Entry, OperatorAct]]) -> DecisionView:
    """Return the status of a run's decision after these proved acts of `control`."""
    if not view.ended:
        waits = view.record is not None and view.state in ASKING_STATES
        return DecisionView("DEFERRED" if waits else "IN_FLIGHT")
    if view.record is None:
        return DecisionView(None)
    decision = DecisionView(view.record["status"])
    for _, act in decision_acts(view.run_id, view.record, acts):
        status: Any = "CLOSED" if act.kind == "decision.closed" else act.arguments["status"]
        decision = DecisionView(status, act.actor, str(act.arguments["reason"]))
    return decision


async def checked_decision(store: Store, run: CheckedRun, keys: Keys) -> tuple[DecisionView, str | None]:
    """Return the status of a run's decision, and what about the run or an act on it does not verify, or None."""
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


async def decision_output(run: CheckedRun, catalog: Catalog) -> DecisionOutput:
    """Return the short form of a run's decision: what was decided, and the evidence and the rules that it rests on.

    The evidence is that of the record, in the same order. The rules that matched follow, each with its bundle. A
    person's later resolution shows in the status of the run and does not change this output.

    Raises:
        Integrity: the run does not verify, or what it is pinned to is missing or altered.
        NotFound: nothing was decided yet, or the record was erased.
    """
    if run.fault is not None:
        raise Integrity(run.fault)
    record = run.view().record
    if record is None or record.get("end") is None:
        raise NotFound(f"run `{run.run_id}` has not decided; its output is there when it has ended")
    loaded = await pinned_artifacts(catalog, run.entries)
    rule_ids = {rule: None for decision in record["policy_decisions"] for rule in decision["rule_ids"]}
    bundles = [leveled.bundle for leveled in loaded.bundles] if loaded else []
    rules_of_bundles = [(bundle.bundle_id, {rule.rule_id for rule in bundle.policy_dsl.rules}) for bundle in bundles]
    rules = [policy_ref(bundle, rule) for rule in rule_ids for bundle, ids in rules_of_bundles if rule in ids]
    return DecisionOutput(
        decision_id=record["decision_key"],
        outcome=OUTCOME_OF_END[record["end"]],
        evidence_refs=(*record["evidence_refs"], *rules),
    )
