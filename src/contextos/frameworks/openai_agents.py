"""OpenAI Agents SDK: function tools whose calls go to a gate, and the reader of its `FunctionTool` (extra
`openai-agents`).

A call that waits interrupts the agent's run, as a tool that needs approval does. Keep the `RunState`. After
`approve_answered`, run the agent with it again. The agent makes the same calls under the same ids, and the gate has the
recorded answers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

from agents import FunctionTool, RunContextWrapper, RunState, Tool, default_tool_error_function
from agents.exceptions import ModelBehaviorError
from agents.function_schema import FuncSchema, function_schema
from agents.tool import resolve_function_tool_failure_error_function, set_function_tool_failure_error_function
from agents.tool_context import ToolContext
from pydantic import BaseModel, ValidationError

from contextos.adapters.function.adapter import BusinessError
from contextos.contracts.ports.gates import ToolGate, Waiting
from contextos.errors import Unavailable
from contextos.frameworks.offers import OfferedTool, answer_text, ask, offered_tools
from contextos.frameworks.wrapping import UNKNOWN, ForeignTool, invalid_arguments, refuse_lost
from contextos.packs.tools.exact import exactly, refuse_unseen_parameters
from contextos.packs.tools.schemas import refuse_tool

_CLOSE_OVER: Final = "take what it needs as arguments, or close over it"
_NO_SETTING: Final = "remove it from the tool"


def gate_tools(gate: ToolGate) -> list[Tool]:
    """Return the tools of an open session, for `Agent(tools=…)`.

    The agent asks the gate whether a call needs approval, and the gate makes the call, refuses it or waits, before the
    agent's run goes on. A refusal and an error of a tool are texts for the model. An error of the gate ends the run, as
    the cause of a `UserError`. So does a call that is approved in the state and still waits in the session.

    Raises:
        InvalidInput: as `offered_tools`.
    """
    offered = offered_tools(gate)
    return [_gate_tool(gate, offered, tool) for tool in offered.values()]


async def approve_answered(state: RunState[Any, Any], gate: ToolGate) -> bool:
    """Approve in `state` the interrupted calls of the gate's tools that no longer wait in the session. Return whether
    there are any.

    The gate makes those calls, if they were not made yet. Calls that still wait and calls of other tools do not change.

    Raises:
        Unavailable: the gate cannot answer now; try again with the same state.
    """
    offered, any_approved = offered_tools(gate), False
    for item in state.get_interruptions():
        if item.tool_name in offered:
            answer = await ask(gate, offered, item.tool_name, _parse_arguments(item.arguments or ""), item.call_id)
            if not isinstance(answer, Waiting):
                state.approve(item)
                any_approved = True
    return any_approved


def _gate_tool(gate: ToolGate, offered: Mapping[str, OfferedTool], entry: OfferedTool) -> FunctionTool:
    async def waits(run: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:  # noqa: ARG001
        return isinstance(await ask(gate, offered, entry.name, arguments, call_id), Waiting)

    async def call(context: ToolContext[Any], arguments: str) -> str:
        answer = await ask(gate, offered, entry.name, _parse_arguments(arguments), context.tool_call_id)
        if isinstance(answer, Waiting):
            # Somebody approved the call in the state, which is not an approval in the session.
            raise Unavailable(gate.session, f"it waits for `{answer.waits_for}` about the call `{answer.about}`")
        return answer_text(answer)

    tool = FunctionTool(
        name=entry.name,
        description=entry.description,
        params_json_schema=dict(entry.input_schema),
        on_invoke_tool=call,
        strict_json_schema=False,
        needs_approval=waits,
    )
    # By default an exception would become a text for the model, and the run would go on.
    return set_function_tool_failure_error_function(tool, None)


def _parse_arguments(arguments: str) -> Any:
    """Return the arguments as the SDK reads them when it asks for approval: an object, or the text if it is not one."""
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def read_openai_agents_tool(tool: FunctionTool) -> ForeignTool:
    """Read a tool that `function_tool` made. Raises `InvalidTool` if it needs the run of an agent, or has a setting
    that is not supported.
    """
    handler = resolve_function_tool_failure_error_function(tool)
    settings = (
        (handler not in (None, default_tool_error_function), "`failure_error_function`", _NO_SETTING),
        (tool.tool_input_guardrails or tool.tool_output_guardrails, "guardrails", _NO_SETTING),
        (callable(tool.needs_approval), "`needs_approval` that decides for each call", _NO_SETTING),
        (tool.is_enabled is not True, "`is_enabled`", _NO_SETTING),
        (
            tool.timeout_behavior != "error_as_result" or tool.timeout_error_function,
            "a rule for its timeout",
            _NO_SETTING,
        ),
        (tool.defer_loading, "`defer_loading`", _NO_SETTING),
        (tool.custom_data_extractor, "`custom_data_extractor`", _NO_SETTING),
        (tool.allowed_callers, "`allowed_callers`", _NO_SETTING),
        (tool.output_json_schema, "an output type of its own", _NO_SETTING),
    )
    refuse_lost(tool.name, settings)
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        remedy = "make it with `function_tool`, from a function"
        refuse_tool(tool.name, "no_function", (), "it is called with the run of an agent", remedy)
    schema = function_schema(function, name_override=tool.name, use_docstring_info=False, strict_json_schema=False)
    refuse_lost(tool.name, [(schema.takes_context, "the context of a run", _CLOSE_OVER)])
    refuse_unseen_parameters(function, tool.params_json_schema, tool.name)

    async def call(arguments: dict[str, Any]) -> Any:
        args, kwargs = _call_arguments(schema, arguments)
        exact_function = exactly(function, arguments)
        if inspect.iscoroutinefunction(function):
            return await exact_function(*args, **kwargs)
        return await asyncio.to_thread(exact_function, *args, **kwargs)

    returns = UNKNOWN if schema.return_annotation is inspect.Signature.empty else schema.return_annotation
    return ForeignTool(
        tool.name,
        tool.description,
        tool.params_json_schema,
        returns,
        call,
        function,
        {"arguments": schema.params_pydantic_model},
        asks=bool(tool.needs_approval),
        timeout_s=tool.timeout_seconds,
    )


def _call_arguments(schema: FuncSchema, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of the function as the SDK converts them. Raises a `BusinessError` if they are not valid."""
    try:
        model: BaseModel = schema.params_pydantic_model.model_validate(arguments)
        return schema.to_call_args(model)
    except ValidationError as error:
        raise invalid_arguments(error) from None
    except ModelBehaviorError as error:
        raise BusinessError("invalid_arguments", str(error)) from None
