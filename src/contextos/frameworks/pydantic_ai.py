"""Pydantic AI: a toolset whose calls go to a gate, and the reader of its `Tool` objects (extra `pydantic-ai`).

A call that waits ends the agent's run with `DeferredToolRequests`. Run the agent again with the same messages and
`ask_again(messages)`. The agent then makes the same call under the same id, and the gate has the person's answer.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Sequence
from typing import Any, Final

import orjson
from pydantic import ValidationError
from pydantic_ai import AbstractToolset, RunContext, Tool, ToolDefinition
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.tools import AgentDepsT, DeferredToolResults
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from contextos.adapters.function.adapter import BusinessError
from contextos.contracts.encoding.codec import loads
from contextos.contracts.ports.gates import MAX_ARGS_BYTES, Refused, ToolGate, Waiting
from contextos.errors import MalformedJson
from contextos.frameworks.offers import answer_text, ask, offered_tools, question_of
from contextos.frameworks.wrapping import UNKNOWN, ForeignTool, invalid_arguments, refuse_lost
from contextos.packs.tools.exact import exactly, refuse_unseen_parameters

_ANY: Final = SchemaValidator(core_schema.any_schema())


class _Unjudged:
    """Accepts all arguments, because the gate judges them and also records a wrong call. A text that two readers could
    read differently, such as a text with a member twice, reaches the gate as text, and the gate refuses it.
    """

    def validate_json(self, input: Any, *, allow_partial: Any = "off", **_: Any) -> Any:
        if allow_partial == "off":
            try:
                loads(input, max_bytes=MAX_ARGS_BYTES)
            except MalformedJson:
                return input
        return _ANY.validate_json(input, allow_partial=allow_partial)

    def validate_python(self, input: Any, **_: Any) -> Any:
        return input


_UNJUDGED: Final[Any] = _Unjudged()


class GateToolset(AbstractToolset[AgentDepsT]):
    """The tools of an open session, for `Agent(toolsets=[…], output_type=[…, DeferredToolRequests])`.

    A refusal is a `ModelRetry` with the reasons, within the agent's `retries`. So is an error that the tool itself
    marks as retryable. Other errors, and a refusal that ends the session, are a `ToolFailed`.
    """

    def __init__(self, gate: ToolGate) -> None:
        self.gate, self._offered = gate, offered_tools(gate)

    @property
    def id(self) -> str | None:
        """Return the id of the toolset in its agent."""
        return "contextos"

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools of the session. They are called one after the other."""
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=dict(tool.input_schema),
                    sequential=True,
                ),
                max_retries=ctx.max_retries,
                args_validator=_UNJUDGED,
            )
            for tool in self._offered.values()
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],  # noqa: ARG002
    ) -> Any:
        """Ask the gate. The call has the id that the model gave it.

        Raises:
            ApprovalRequired: the session waits.
            ModelRetry: the call was refused, or the tool asks for another try.
            ToolFailed: the tool failed, or the session is over.
        """
        assert ctx.tool_call_id is not None, "a call that a model made has an id"
        answer = await ask(self.gate, self._offered, name, tool_args, ctx.tool_call_id)
        if isinstance(answer, Waiting):
            raise ApprovalRequired(metadata=question_of(answer))
        if isinstance(answer, Refused):
            raise (ToolFailed if answer.ended else ModelRetry)(answer_text(answer))
        if answer.error is not None:
            raise (ModelRetry if answer.error.retryable else ToolFailed)(answer_text(answer))
        as_text = answer.replayed or answer.withheld or answer.artifacts
        return answer_text(answer) if as_text else answer.output


def ask_again(messages: Sequence[ModelMessage], gate: ToolGate) -> DeferredToolResults | None:
    """Return the results with which an agent repeats the waiting calls of the gate's tools at the end of its messages;
    None if there are no such calls.

    They approve nothing: only a person's answer in the session does, and until then the calls wait again. Calls of
    other tools are left out; add their results yourself.
    """
    offered = offered_tools(gate)
    calls = [call.tool_call_id for call in unanswered_calls(messages) if call.tool_name in offered]
    return DeferredToolResults(approvals=dict.fromkeys(calls, True)) if calls else None


def unanswered_calls(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """Return the tool calls at the end of an agent's messages that have no answer yet."""
    calls: list[ToolCallPart] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = list(message.tool_calls)
        else:
            answered_ids = {getattr(part, "tool_call_id", None) for part in message.parts}
            calls = [call for call in calls if call.tool_call_id not in answered_ids]
    return calls


def read_pydantic_ai_tool(tool: Tool[Any]) -> ForeignTool:
    """Read a `Tool`. Raises `InvalidTool` if it needs the run of an agent, or has a setting that is not supported."""
    settings = (
        (tool.takes_ctx, "a `RunContext`", _CLOSE_OVER),
        (tool.prepare, "`prepare`", _CLOSE_OVER),
        (tool.args_validator, "`args_validator`", _CLOSE_OVER),
        (tool.strict, "`strict`", "remove it; the gate checks the arguments of every call"),
        (tool.max_retries is not None, "`max_retries`", "remove it; the `retries` of the agent count"),
        (tool.metadata, "`metadata`", "remove it; a governed tool has none"),
        (tool.tool_kind, "`tool_kind`", "remove it; a governed tool is a plain one"),
        (tool.defer_loading, "`defer_loading`", "remove it; the session says which tools a model sees"),
        (tool.include_return_schema, "`include_return_schema`", "remove it; say in its description what it returns"),
    )
    refuse_lost(tool.name, settings)
    schema = tool.function_schema
    single_argument = schema.single_arg_name
    if single_argument is None:
        refuse_unseen_parameters(tool.function, schema.json_schema, tool.name)

    async def call(arguments: dict[str, Any]) -> Any:
        try:
            call_args = schema.validator.validate_json(orjson.dumps(arguments))
        except ValidationError as error:
            raise invalid_arguments(error) from None
        expected = arguments if single_argument is None else {single_argument: arguments}
        try:
            return await dataclasses.replace(schema, function=exactly(tool.function, expected)).call(call_args, _NO_RUN)
        except ModelRetry as error:
            raise BusinessError("model_retry", error.message, retryable=True) from None
        except ToolFailed as error:
            raise BusinessError("tool_failed", error.message) from None
        except ApprovalRequired:
            raise BusinessError("approval_required", _NO_APPROVAL) from None

    hints = typing.get_type_hints(tool.function, include_extras=True)
    returns = hints.get("return", UNKNOWN)
    parameters = inspect.signature(tool.function).parameters.values()
    types = {arg.name: hints[arg.name] for arg in parameters if arg.name in hints and arg.kind is not arg.VAR_KEYWORD}
    return ForeignTool(
        tool.name,
        tool.description or "",
        schema.json_schema,
        returns,
        call,
        tool.function,
        types,
        asks=tool.requires_approval,
        timeout_s=tool.timeout,
    )


_NO_RUN: Final[Any] = None
_CLOSE_OVER: Final = "take what it needs as arguments, or close over it"
_NO_APPROVAL: Final = "it asks for the approval of its own agent, which it does not get; the pack says who is asked"
