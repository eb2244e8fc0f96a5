"""Continue a run that an operator reopened, or whose void question a person had asked again.

A reopened run had ended. It goes on with a higher value of the limit that it exhausted. A run with a void question had
not ended. It goes on under the policies and definitions that are in force now.

The run goes on from its journal with a new plan. A call that was sent is not sent again, because its operation is done.
Every approval is asked anew. Evidence that became too old since the run began satisfies nothing. Context slots are
filled anew, because the user can have lost the right to see what was selected.
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
    """Return the recorded reopening that follows this end of the run, or None if nobody reopened the run."""
    if outcome.end not in ("escalated", "exhausted") or not journal.on_tape:
        return None
    _, answer = await journal.wait(("run.reopened",), "", wake_at_us=0, on_timeout=None)
    return ReopenedRun.model_validate(answer)


def is_asked_again(failures: Sequence[Failure], revision: int, journal: Journal) -> bool:
    """Return whether the question of the plan `revision` was void and a person had it asked again."""
    question = journal.account.last("approval.reasked")
    is_void = any(failure.code == "approval_void" for failure in failures)
    return is_void and question is not None and question.key.startswith(f"{revision}/")


def unchanged_facts(facts: Sequence[Fact], journal: Journal) -> list[Fact]:
    """Return the evidence of tools in `facts`, without what the last `approval.reasked` entry lists as changed."""
    question = journal.account.last("approval.reasked")
    changed = question.body["changed"] if question else ()
    return [
        fact
        for fact in facts
        if fact.evidence_ref.startswith("tool:") and f"{fact.evidence_ref}#{fact.name}" not in changed
    ]


def with_limits_of(scope: RunScope, before: RunScope) -> RunScope:
    """Return the newly admitted `scope` of a run with the budget, the session deadline and the controls of `before`."""
    run = scope.run.model_copy(update={"run_budget": before.run.run_budget})
    return replace(scope, run=run, session=before.session, controls=before.controls)


def as_reopened(admitted: AdmittedRun, reopened: ReopenedRun, now_us: int) -> AdmittedRun:
    """Return the run with the limit that the operator granted, and with only the evidence that is not too old at
    `now_us` (Unix microseconds).
    """
    items = drop_stale_names(admitted.items, admitted.query.named, now_us)
    return replace(admitted, scope=with_raised_limit(admitted.scope, reopened), items=items)


def with_raised_limit(scope: RunScope, reopened: ReopenedRun) -> RunScope:
    """Return the scope with the new value of the exhausted limit; unchanged if the run exhausted none."""
    limit, value = reopened.limit, reopened.to
    if limit is None or value is None:
        return scope
    if limit != SESSION_LIMIT:
        budget = scope.run.run_budget.model_copy(update={limit: value})
        return replace(scope, run=scope.run.model_copy(update={"run_budget": budget}))
    assert scope.session is not None, "only a run with a session exhausts it"
    began_us = scope.session.deadline_us - scope.session.max_duration_ms * 1_000
    return replace(scope, session=SessionWindow(int(value), began_us + int(value) * 1_000))
