"""Pydantic AI: a toolset whose calls go to a gate, and the reader of its `Tool` objects (extra `pydantic-ai`).

A call that waits ends the agent's run with `DeferredToolRequests`. Run the agent again with the same messages and
`ask_again(messages)`: it makes the same call under the same id, and the gate has the person's answer by then.
"""

from __future__ import annotations

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
from contextos.contracts.encoding.pointer import pointer
from contextos.frameworks.offers import answer_text, offered_tools, question_of
from contextos.frameworks.wrapping import UNKNOWN, ForeignTool
from contextos.operations.gate.gate import Gate, Refused, Waiting
from contextos.tools.schemas import refuse_tool

# The gate judges the arguments, so that a wrong call is on record too.
_ANY: Final = SchemaValidator(core_schema.any_schema())


class GateToolset(AbstractToolset[AgentDepsT]):
    """The tools of an open session, for `Agent(toolsets=[…], output_type=[…, DeferredToolRequests])`.

    A refusal is a `ModelRetry` with the reasons, within the agent's `retries`. A refusal that ends the session and an
    error of the tool itself are a `ToolFailed`.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate, self._offered = gate, offered_tools(gate)

    @property
    def id(self) -> str | None:
        """Return the id of the toolset in its agent."""
        return "contextos"

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools of the session. Calls are made one after the other."""
        return {
            one.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=one.name,
                    description=one.description,
                    parameters_json_schema=dict(one.input_schema),
                    sequential=True,
                ),
                max_retries=ctx.max_retries,
                args_validator=_ANY,
            )
            for one in self._offered.values()
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],  # noqa: ARG002
    ) -> Any:
        """Ask the gate. The id of the call is the one that the model gave it.

        Raises:
            ApprovalRequired: the session waits.
            ModelRetry: refused.
            ToolFailed: the tool failed, or the session is over.
        """
        assert ctx.tool_call_id is not None, "a call that a model made has an id"
        answer = await self.gate.call(self._offered[name].tool_id, tool_args, call_id=ctx.tool_call_id)
        if isinstance(answer, Waiting):
            raise ApprovalRequired(metadata=question_of(answer))
        if isinstance(answer, Refused):
            raise (ToolFailed if answer.ended else ModelRetry)(answer_text(answer))
        if answer.error is not None:
            raise ToolFailed(answer_text(answer))
        return answer.output


def ask_again(messages: Sequence[ModelMessage], gate: Gate) -> DeferredToolResults | None:
    """Return what lets an agent make the waiting calls of the gate's tools at the end of its messages again; None if
    there are none.

    It approves nothing: only a person's answer in the session does, and until then the calls wait again. Calls of other
    tools are left out; add their results yourself.
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
            answered = {getattr(part, "tool_call_id", None) for part in message.parts}
            calls = [call for call in calls if call.tool_call_id not in answered]
    return calls


def foreign_tool(tool: Tool[Any]) -> ForeignTool:
    """Read a `Tool`. Raises `InvalidTool` if it needs the run of an agent."""
    for needed, what in (
        (tool.takes_ctx, "a `RunContext`"),
        (tool.prepare, "`prepare`"),
        (tool.args_validator, "`args_validator`"),
    ):
        if needed:
            remedy = "take what it needs as arguments, or close over it"
            refuse_tool(tool.name, "needs_agent", (), f"it needs {what}, which only an agent's run has", remedy)
    schema = tool.function_schema

    async def call(arguments: dict[str, Any]) -> Any:
        try:
            validated = schema.validator.validate_json(orjson.dumps(arguments))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise BusinessError("invalid_arguments", f"{pointer(first['loc'])}: {first['msg']}") from None
        return await schema.call(validated, _NO_RUN)

    hints = typing.get_type_hints(tool.function, include_extras=True)
    returns = hints.get("return", UNKNOWN)
    return ForeignTool(
        tool.name, tool.description or "", schema.json_schema, returns, call, asks=tool.requires_approval
    )


_NO_RUN: Final[Any] = None
