"""Fill a task template (a plan with parameters) without a language model: the template planner.
Source: How It Works, step 3; docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.envelopes.plan import Plan, PlanStep, TaskTemplate
from contextos.contracts.ids import derive

PLANNER: Final = "template@1"


def propose_plan(
    run_id: str, template: TaskTemplate, compiled: Mapping[str, Any], gates: Mapping[str, Sequence[str]], revision: int
) -> Plan:
    """Return the task template as a plan. Each step also requires the approvals that `gates` has for its id. A step
    whose tool this run cannot use stays in the plan and is refused later.
    """
    assert compiled["context_ledger"]["compiled_context_hash"], "a plan is made from a compiled context"
    return Plan(
        plan_id=derive("plan_", run_id, "plan", revision),
        intent=template.intent,
        steps=tuple(_with_gates(step, gates.get(step.id, ())) for step in template.steps),
        decision_checkpoints=template.decision_checkpoints,
        revision=revision,
        planner=PLANNER,
        template_id=f"{template.template_id}@{template.version}",
    )


def _with_gates(step: PlanStep, gates: Sequence[str]) -> PlanStep:
    requires = tuple(dict.fromkeys((*step.requires, *gates)))
    return step if requires == step.requires else step.model_copy(update={"requires": requires})
