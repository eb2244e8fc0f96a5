"""A hostile planner: it proposes plans that no template allows, and proposes the same plan in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from contextos.contracts.envelopes.plan import Plan, PlanStep
from contextos.decision.planners.template import propose_plan
from contextos.runtime.attempts import planning


def _last(plan: Plan, **change: Any) -> Plan:
    """Return the plan with its last step, the refund, changed."""
    step: PlanStep = plan.steps[-1].model_copy(update=change)
    return plan.model_copy(update={"steps": (*plan.steps[:-1], step)})


def _with_another_read(plan: Plan) -> Plan:
    """Return the plan with its first read made twice, by two independent steps."""
    first, *rest = plan.steps
    return plan.model_copy(update={"steps": (first.model_copy(update={"id": "other"}), first, *rest)})


HOSTILE_EDITS: Final[dict[str, Callable[[Plan], Plan]]] = {
    "understated_mode": lambda plan: _last(plan, approval_mode="read_only"),
    "no_checkpoint": lambda plan: plan.model_copy(update={"decision_checkpoints": ()}),
    "unknown_tool": lambda plan: _last(plan, tool="adp_payments.drain"),
    "other_amount": lambda plan: _last(plan, params={**plan.steps[-1].params, "amount_inr": 1}),
    "unchecked_step": lambda plan: _last(plan, depends_on=("s1",)),
}


@contextmanager
def proposed_by(hostile: str | None, *, parallel: bool) -> Iterator[None]:
    """Return a context in which the planner proposes this kind of hostile plan (None: the template's plan).

    `parallel`: the plan contains two reads that run at the same time.
    """
    original = propose_plan

    def propose(*args: Any) -> Plan:
        plan = original(*args)
        plan = _with_another_read(plan) if parallel else plan
        return HOSTILE_EDITS[hostile](plan) if hostile else plan

    with patch.object(planning, "propose_plan", propose):
        yield
