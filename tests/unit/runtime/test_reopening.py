"""A reopened run has more of the limit that it exhausted, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contextos.contracts.entries.recorded import ReopenedRun
from contextos.contracts.envelopes.run import BudgetInForce, RunContext
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.scope import SESSION_LIMIT, RunScope, SessionWindow
from contextos.runtime.reopening import RAISABLE, find_reopening, with_raised_limit
from contextos.trust.journal.record import RunOutcome
from tests.world import run

BUCKETS = dict.fromkeys(("policy", "tool", "evidence", "memory", "business", "session"), 10)
BUDGET = BudgetInForce(
    total_tokens=60,
    bucket_tokens=cast("Any", BUCKETS),
    max_tool_calls=2,
    max_replan_attempts=1,
    wall_clock_ms=1_000,
    max_cost_cents=5,
)


def scope() -> RunScope:
    context = RunContext.model_construct(run_budget=BUDGET)
    nothing: Any = None
    return RunScope(nothing, context, nothing, nothing, nothing, {}, SessionWindow(1_000, 3_000_000))


def raised(limit: str | None, to: float | None) -> RunScope:
    return with_raised_limit(scope(), ReopenedRun(by="user_5", reason="more", limit=limit, to=to))


@pytest.mark.parametrize("limit", sorted(RAISABLE - {SESSION_LIMIT}))
def test_one_limit_is_raised_and_no_other(limit: str) -> None:
    budget = raised(limit, 77).run.run_budget
    assert budget == BUDGET.model_copy(update={limit: 77})
    assert budget.stated(limit) == f"`{limit}` is 77"


def test_a_session_lasts_longer_from_its_own_beginning() -> None:
    assert raised(SESSION_LIMIT, 9_000).session == SessionWindow(9_000, 11_000_000)
    assert raised(SESSION_LIMIT, 9_000).run.run_budget == BUDGET


def test_without_a_limit_nothing_changes() -> None:
    assert raised(None, None) == scope()


def test_only_what_escalated_is_looked_at_and_only_on_the_tape() -> None:
    asked: list[str] = []

    async def wait(kinds: Any, key: str, **_how: Any) -> Any:
        asked.extend(kinds)
        return kinds[0], {"by": "user_5", "reason": "more", "limit": "max_tool_calls", "to": 9}

    live: Any = SimpleNamespace(on_tape=False, wait=wait)
    tape: Any = SimpleNamespace(on_tape=True, wait=wait)
    ended = RunOutcome("exhausted", (Failure(code="budget_exhausted", detail="too much"),))
    assert run(find_reopening(ended, live)) is None
    assert run(find_reopening(replace(ended, end="completed"), tape)) is None
    assert asked == []
    found = run(find_reopening(ended, tape))
    assert found is not None
    assert (found.limit, found.to) == ("max_tool_calls", 9)
