"""Write the messages that ask a model to plan or to choose calls, and read its answer. Pure: `action.models` asks.

The instructions are the published texts of the pack. All other content, also the answers of tools, is sent as lines of
JSON in a message of the user; each line says how it is to be treated. A model only proposes: its plan is checked like
that of any planner.
Source: How It Works, step 3; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import CLASSIFICATION_LEVELS, Classification
from contextos.contracts.envelopes.plan import MAX_TEMPLATE_STEPS, TaskTemplate
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.models import ModelMessage, ModelTool
from contextos.contracts.scope import Capability
from contextos.decision.planners.foreign import MAX_PLAN_BYTES
from contextos.errors import MalformedJson

MODEL_PLANNER: Final = "model@1"
"""The planner of a pack that names `judge.plan`: the model that its routing rules choose."""
PLAN_OPERATION: Final = "judge.plan"
"""The operation by which a model plans, or chooses the calls of a session."""
END_NAME: Final = "finish"
"""The tool by which a model ends its session. No capability has this name, because the id of a capability has a dot."""
END_TOOL: Final = ModelTool(
    END_NAME,
    "Ends the task. Call it alone, when nothing is left to do, and say how it ends and why.",
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["outcome", "reason"],
        "properties": {
            "outcome": {"type": "string", "enum": ["approved", "denied", "escalated"]},
            "reason": {"type": "string", "maxLength": 2_000},
        },
    },
)
_BINDING: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["from", "pointer"],
    "properties": {
        "from": {"type": "string", "enum": ["request", "parameter", "pack", "evidence", "step"]},
        "pointer": {"type": "string"},
    },
}
_PLAN_TASK: Final = (
    "Answer with one JSON object: the plan. A step calls one of the tools. A value of `params` is a literal, or a "
    'binding such as {"from": "request", "pointer": "/input/context/order_id"}, '
    '{"from": "evidence", "pointer": "/<name>/value"} or {"from": "step", "pointer": "/<step id>/<member>"}. '
    "`depends_on` names the steps that have to be done first. Keep the decision checkpoints of the template."
)
_CHOICE_TASK: Final = (
    "Call the tools that you need, one after the other, each with values and no references. A refused call says why. "
    f"When nothing is left to do, call `{END_NAME}`."
)


def highest_shown(compiled: Mapping[str, Any], others: Iterable[Classification]) -> Classification:
    """Return the highest classification of the blocks of a compiled context and of `others`, at least one."""
    blocks = compiled["compiled_prompt"]["context_blocks"]
    levels = [*others, *(block["provenance"]["classification"] for block in blocks if block.get("provenance"))]
    return max(levels, key=CLASSIFICATION_LEVELS.index)


def plan_messages(
    compiled: Mapping[str, Any],
    templates: Sequence[TaskTemplate],
    tools: Sequence[Capability],
    evidence: Iterable[str],
    before: Sequence[Failure],
) -> tuple[ModelMessage, ...]:
    """Return the messages that ask for a plan. `before` has the reasons why the previous plan was not accepted."""
    lines = [data_line("template", template.to_json()) for template in templates]
    lines += [data_line("tool", {"tool": tool.capability_id, **_tool_description(tool)}) for tool in tools]
    lines.append(data_line("evidence_names", sorted(evidence)))
    if before:
        lines.append("The plan before was not accepted:")
        lines += [data_line("finding", failure.to_json()) for failure in before]
    return (*opening(compiled), ModelMessage("user", "\n".join([*block_lines(compiled), *lines, _PLAN_TASK])))


def session_messages(compiled: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> tuple[ModelMessage, ...]:
    """Return the messages that open a session of a model. `done` has the earlier calls of a reopened session."""
    lines = [data_line("done_before", call) for call in done]
    return (*opening(compiled), ModelMessage("user", "\n".join([*block_lines(compiled), *lines, _CHOICE_TASK])))


def result_message(call_id: str, tool: str, answered: Mapping[str, Any]) -> ModelMessage:
    """Return the message with the result of a call. Without `call_id` the call belongs to another conversation."""
    line = data_line("result", {"tool": tool, **answered})
    return ModelMessage("tool", line, call_id=call_id) if call_id else ModelMessage("user", line)


def model_tools(tools: Sequence[Capability]) -> tuple[ModelTool, ...]:
    """Return the tools of a session in the form that a model is offered, and `END_TOOL`, which ends the session."""
    offered = (
        ModelTool(tool.capability_id, tool.definition.description, tool.definition.input_schema) for tool in tools
    )
    return (*offered, END_TOOL)


def plan_schema(templates: Sequence[TaskTemplate], tools: Sequence[Capability]) -> dict[str, Any]:
    """Return the JSON Schema of a plan that uses these tools and one of the templates."""
    points = sorted({point.decision_id for template in templates for point in template.decision_checkpoints})
    checkpoint = _object_schema(
        {"decision_id": {"type": "string", "enum": points}, "after_step": {"type": ["string", "null"]}}
    )
    names = [f"{template.template_id}@{template.version}" for template in templates]
    return _object_schema(
        {
            "template_id": {"type": "string", "enum": names},
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_TEMPLATE_STEPS,
                "items": {"anyOf": [_step_schema(tool) for tool in tools]},
            },
            "decision_checkpoints": {"type": "array", "items": checkpoint}
            if points
            else {"type": "array", "maxItems": 0},
        }
    )


def proposal_of(text: str, tools: Mapping[str, Capability]) -> tuple[dict[str, Any], str]:
    """Return the plan in an answer as a planner's proposal, and the reason if there is no plan (else an empty text).

    The approval mode of a step is the one that its tool declares; a model does not state it.
    """
    try:
        plan = loads(text, max_bytes=MAX_PLAN_BYTES)
    except MalformedJson as error:
        return {}, f"it is not one JSON object: {error}"
    steps = plan.get("steps") if isinstance(plan, dict) else None
    if not isinstance(plan, dict) or not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        return {}, "it is not a JSON object with a list `steps` of objects"
    valid = []
    for step in steps:
        tool = tools.get(str(step.get("tool")))
        mode = tool.definition.approval_mode if tool is not None else "read_only"
        valid.append({name: value for name, value in step.items() if name != "approval_mode"} | {"approval_mode": mode})
    points = plan.get("decision_checkpoints")
    if isinstance(points, list):
        points = [_without_null(point) for point in points]
    return {**plan, "steps": valid, "decision_checkpoints": points if points is not None else []}, ""


def _without_null(point: Any) -> Any:
    is_null = isinstance(point, dict) and point.get("after_step", "") is None
    return {name: value for name, value in point.items() if name != "after_step"} if is_null else point


def opening(compiled: Mapping[str, Any]) -> tuple[ModelMessage, ...]:
    """Return the instructions of a compiled context: the published texts of the pack."""
    prompt = compiled["compiled_prompt"]
    return (ModelMessage("system", f"{prompt['system']}\n\n{prompt['developer']}\n\n{prompt['task']}"),)


def block_lines(compiled: Mapping[str, Any]) -> list[str]:
    """Return the blocks of a compiled context as lines of JSON, each with how its text is to be treated."""
    return [
        canonical(
            {
                "block": block["block_id"],
                "treatment": (block.get("provenance") or {}).get("instruction_treatment", "data_only"),
                "content": block["content"],
            }
        ).decode()
        for block in compiled["compiled_prompt"]["context_blocks"]
    ]


def data_line(name: str, value: Any) -> str:
    """Return a line of JSON whose content is data only."""
    return canonical({"block": name, "treatment": "data_only", "content": value}).decode()


def _tool_description(tool: Capability) -> dict[str, Any]:
    definition = tool.definition
    return {
        "description": definition.description,
        "kind": definition.kind,
        "produces": list(definition.produces),
        "input_schema": definition.input_schema,
    }


def _step_schema(tool: Capability) -> dict[str, Any]:
    schema = tool.definition.input_schema
    properties = schema.get("properties", {})
    # A reference within the schema of a tool means nothing within another schema.
    text = canonical(schema)
    arguments = {name: {} if b'"$ref"' in text else argument for name, argument in properties.items()}
    params = {
        "type": "object",
        "additionalProperties": False,
        "required": list(schema.get("required", ())),
        "properties": {name: {"anyOf": [argument, dict(_BINDING)]} for name, argument in arguments.items()},
    }
    return _object_schema(
        {
            "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
            "tool": {"type": "string", "const": tool.capability_id},
            "params": params,
            "depends_on": {"type": "array", "items": {"type": "string"}},
        }
    )


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": dict(properties),
    }
