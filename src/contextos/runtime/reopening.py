"""Continue an ended run that an operator reopened: which runs can go on, and how far their exhausted limit is raised.
Also continue a run whose void question is asked again: it had not ended, and goes on under what is in force now.

The run goes on from its journal with a new plan. A call that was sent is not sent again, because its operation is done.
Every approval is asked anew. Evidence that became too old since the run began satisfies nothing, and context slots are
filled anew, because the user can have lost what was selected.
Source: docs/adr/0026-an-escalated-run-has-a-way-on.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from contextos.contracts.entries.recorded import ReopenedRun
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import SESSION_LIMIT, Fact, RunScope, SessionWindow
from contextos.intelligence.retrieval import drop_stale_names
from contextos.runtime.admission import AdmittedRun
from contextos.trust.journal.record import RunOutcome

RAISABLE: Final = frozenset(
    {"total_tokens", "max_tool_calls", "max_replan_attempts", "wall_clock_ms", "max_cost_cents", SESSION_LIMIT}
)
"""The limits of a run that an operator can raise, each only if the run exhausted it."""

ASKED_AGAIN: Final[frozenset[FailureCode]] = frozenset({"approval_timeout", "approval_void"})
"""The failures after which a run can go on without more budget, because people are asked anew."""


async def find_reopening(outcome: RunOutcome, journal: Journal) -> ReopenedRun | None:
    """Return the operator's entry that lets this ended run go on, or None if the journal ends with the run."""
    if outcome.end not in ("escalated", "exhausted") or not journal.on_tape:
        return None
    _, answer = await journal.wait(("run.reopened",), "", wake_at_us=0, on_timeout=None)
    return ReopenedRun.model_validate(answer)


def is_asked_again(failures: Sequence[Failure], revision: int, journal: Journal) -> bool:
    """Return whether a person had the question of this plan asked again, so that the run goes on with another plan."""
    reasked = journal.account.last("approval.reasked")
    void = any(failure.code == "approval_void" for failure in failures)
    return void and reasked is not None and reasked.key.startswith(f"{revision}/")


def unchanged_facts(facts: Sequence[Fact], journal: Journal) -> list[Fact]:
    """Return the evidence of tools in `facts` without the evidence that had changed when a question was last asked
    again.
    """
    reasked = journal.account.last("approval.reasked")
    changed = reasked.body["changed"] if reasked else ()
    return [
        fact
        for fact in facts
        if fact.evidence_ref.startswith("tool:") and f"{fact.evidence_ref}#{fact.name}" not in changed
    ]


def with_limits_of(scope: RunScope, before: RunScope) -> RunScope:
    """Return the scope of a run that was admitted anew, with the budget, the deadline and the controls that it had."""
    run = scope.run.model_copy(update={"run_budget": before.run.run_budget})
    return replace(scope, run=run, session=before.session, controls=before.controls)


def as_reopened(admitted: AdmittedRun, reopened: ReopenedRun, now_us: int) -> AdmittedRun:
    """Return the run with the limit that the operator granted, and with only the evidence that is not too old at
    `now_us` (Unix microseconds).
    """
    items = drop_stale_names(admitted.items, admitted.query.named, now_us)
    return replace(admitted, scope=with_raised_limit(admitted.scope, reopened), items=items)


def with_raised_limit(scope: RunScope, reopened: ReopenedRun) -> RunScope:
    """Return the scope with the value that the operator granted. Nothing else of it changes."""
    limit, to = reopened.limit, reopened.to
    if limit is None or to is None:
        return scope
    if limit != SESSION_LIMIT:
        budget = scope.run.run_budget.model_copy(update={limit: to})
        return replace(scope, run=scope.run.model_copy(update={"run_budget": budget}))
    assert scope.session is not None, "only a run with a session exhausts it"
    began_us = scope.session.deadline_us - scope.session.max_duration_ms * 1_000
    return replace(scope, session=SessionWindow(int(to), began_us + int(to) * 1_000))
