"""The template planner copies its template: same run and revision, same plan."""

from __future__ import annotations

import pytest

from contextos.decision.planners.template import PLANNER, propose_plan
from tests.unit.context import samples

COMPILED = {"context_ledger": {"compiled_context_hash": "sha256:1"}}


def test_a_plan_is_the_template_and_its_id_follows_run_and_revision() -> None:
    template = samples.template()
    plan = propose_plan("run_1", template, COMPILED, {}, 0)
    assert plan == propose_plan("run_1", template, COMPILED, {}, 0)
    assert (plan.steps, plan.planner) == (template.steps, PLANNER)
    others = {
        propose_plan("run_1", template, COMPILED, {}, 1).plan_id,
        propose_plan("run_2", template, COMPILED, {}, 0).plan_id,
    }
    assert len(others | {plan.plan_id}) == 3


def test_a_context_that_was_not_compiled_has_no_plan() -> None:
    with pytest.raises(AssertionError):
        propose_plan("run_1", samples.template(), {"context_ledger": {"compiled_context_hash": ""}}, {}, 0)
