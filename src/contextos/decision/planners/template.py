"""The template planner: deterministic, no model. It proposes a typed plan and cannot execute anything.

Source: How It Works, step 3; docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.ids import derive

PLANNER: Final = "template@1"


def propose_plan(run_id: str, template: TaskTemplate, compiled: Mapping[str, Any], revision: int) -> Plan:
    """The template as a plan. A step whose tool is not in the manifest stays: the Critic refuses, we do not hide it."""
    assert compiled["context_ledger"]["compiled_context_hash"], "a plan is made from a compiled context"
    return Plan(
        plan_id=derive("plan_", run_id, "plan", revision),
        intent=template.intent,
        steps=template.steps,
        decision_checkpoints=template.decision_checkpoints,
        revision=revision,
        planner=PLANNER,
        template_id=f"{template.template_id}@{template.version}",
    )
