"""Find the steps of a plan that can run at the same time: consecutive reads that do not need each other's results."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from contextos.contracts.bindings import binding_of
from contextos.contracts.envelopes.plan import Plan, PlanStep
from contextos.contracts.scope import ToolAccess

MAX_PARALLEL_READS: Final = 8


def independent_reads(plan: Plan, tools: ToolAccess, first: int, done: Collection[str]) -> tuple[PlanStep, ...]:
    """Return the steps that can run at the same time, beginning with `plan.steps[first]`; at least that step.

    If there are several, each is a read, depends only on steps in `done` and binds no output of the others, and only
    the last can have a decision checkpoint.
    """
    checkpoint_steps = {point.after_step for point in plan.decision_checkpoints}
    group: list[PlanStep] = []
    produced: set[str] = set()
    for step in plan.steps[first : first + MAX_PARALLEL_READS]:
        if not _is_read(tools, step) or not all(step_id in done for step_id in step.depends_on):
            break
        if group and _binds(step, group, produced):
            break
        group.append(step)
        produced.update(tools.capabilities[step.tool].definition.produces)
        if step.id in checkpoint_steps:
            break
    return tuple(group) or (plan.steps[first],)


def _is_read(tools: ToolAccess, step: PlanStep) -> bool:
    capability = tools.capabilities.get(step.tool)
    return capability is not None and capability.definition.kind == "read" and step.approval_mode == "read_only"


def _binds(step: PlanStep, group: Collection[PlanStep], produced: Collection[str]) -> bool:
    """Return whether a parameter of a step reads the output of a step in `group`, or evidence in `produced`."""
    members = {member.id for member in group}
    for value in step.params.values():
        binding = binding_of(value)
        if binding is None:
            continue
        name = binding.pointer.split("/")[1].replace("~1", "/").replace("~0", "~")
        if (binding.source == "step" and name in members) or (binding.source == "evidence" and name in produced):
            return True
    return False
