"""Makes the task template of an intent: a plan of the declared steps, or the tools whose calls an agent chooses.

In a plan each step depends on the step before it, and the decision is checked before the first write.
Refuses a plan that begins with a write: nothing would be known when the decision is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from contextos.contracts.envelopes.plan import MAX_TEMPLATE_STEPS
from contextos.packs.declaration import IntentDeclaration, StepDeclaration
from contextos.packs.expressions import Place
from contextos.packs.origins import default, derived, stated, written
from contextos.packs.rules import RuleBuilder, refuse_pack

PLAN_TIMEOUT_MS: Final = 15_000
MAX_NAME_CHARS_IN_ID: Final = 50


def template_of(name: str, intent: IntentDeclaration, used: Sequence[str], builder: RuleBuilder) -> dict[str, Any]:
    """Return the template of the intent `name`, without its version. `used` are the ids of the intent's tools."""
    if len(used) > MAX_TEMPLATE_STEPS:
        detail = f"the intent `{name}` has {len(used)} tools, and it can have {MAX_TEMPLATE_STEPS}"
        remedy = "name fewer in `tools`, or give several intents their own in `intents`"
        raise refuse_pack("too_many_tools", ("tools",), detail, remedy)
    place: Place = ("intents", name, "steps")
    steps = [
        _step_entry(step, index, intent, used, builder, (*place, index)) for index, step in enumerate(intent.steps)
    ]
    if steps and intent.chosen_by == "model":
        detail = f"the intent `{name}` has `steps`, and its calls are chosen by a model"
        raise refuse_pack("chosen_twice", ("intents", name, "chosen_by"), detail, "leave out one of them")
    chosen_by = written("model") if intent.chosen_by == "model" else derived("template" if steps else "agent")
    outputs = {output: written(binding.to_json()) for output, binding in intent.outputs.items()}
    return {
        "template_id": derived(f"{name}.task"),
        "intent": derived(name),
        "chosen_by": chosen_by,
        "plan_timeout_ms": default(PLAN_TIMEOUT_MS),
        "steps": steps or [_choice_entry(tool, number, builder) for number, tool in enumerate(used, 1)],
        "decision_checkpoints": _checkpoints(name, intent, used, builder),
        "subjects": default([]),
        "outputs": outputs or default({}),
        "memory": default([]),
    }


def _choice_entry(tool: str, number: int, builder: RuleBuilder) -> dict[str, Any]:
    """Return the template entry of one tool that an agent can call with arguments that it chooses."""
    return {
        "id": derived(_numbered_id(tool, number)),
        "tool": derived(tool),
        "approval_mode": derived(builder.tools[tool].approval_mode),
    }


def _step_entry(
    step: StepDeclaration, index: int, intent: IntentDeclaration, used: Sequence[str], builder: RuleBuilder, at: Place
) -> dict[str, Any]:
    (tool,) = builder.named([step.tool], used, (*at, "tool"))
    definition = builder.tools[tool]
    params: dict[str, Any] = {argument: written(value) for argument, value in step.args.items()}
    for argument in definition.input_schema.get("required", ()):
        if argument not in params:
            params[argument] = derived({"from": "request", "pointer": f"/input/context/{argument}"})
    earlier = [step_id(other, number) for number, other in enumerate(intent.steps[:index])]
    return {
        "id": derived(step_id(step, index)) if step.id is None else stated(step, "id"),
        "tool": written(tool),
        "params": params or derived({}),
        "depends_on": derived(earlier[-1:]),
        "approval_mode": derived(definition.approval_mode),
        "requires": default([]),
    }


def step_id(step: StepDeclaration, index: int) -> str:
    """Return the id of a step: as written, or the own name of its tool and its number from 1."""
    return step.id or _numbered_id(step.tool, index + 1)


def _numbered_id(tool: str, number: int) -> str:
    return f"{tool.rpartition('.')[2][:MAX_NAME_CHARS_IN_ID]}_{number}"


def _checkpoints(name: str, intent: IntentDeclaration, used: Sequence[str], builder: RuleBuilder) -> Any:
    if not intent.steps:
        return [{"decision_id": derived(name)}]
    place: Place = ("intents", name, "steps")
    tools = [builder.named([step.tool], used, (*place, index, "tool"))[0] for index, step in enumerate(intent.steps)]
    first = next((index for index, tool in enumerate(tools) if builder.tools[tool].kind == "write"), len(tools))
    if first == 0:
        remedy = "begin with a read, or leave `steps` out for an agent that chooses its calls"
        raise refuse_pack("write_first", (*place, 0), "the plan begins with a write", remedy)
    return [{"decision_id": derived(name), "after_step": derived(step_id(intent.steps[first - 1], first - 1))}]
