"""LangGraph: a node whose calls go to a gate, and the reader of LangChain's tool objects (extra `langgraph`).

A call that waits is an `interrupt` with the question. Resume the thread, with whatever value: the node runs again from
its beginning, asks for the same calls under the same ids, and the gate has the recorded answers. A resume approves
nothing: only a person's answer in the session does, and until then the node interrupts again.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException
from langgraph.types import interrupt
from pydantic import BaseModel, PrivateAttr, PydanticUserError, ValidationError

from contextos.contracts.ports.gates import ToolGate, Waiting
from contextos.errors import InvalidInput, Problem
from contextos.frameworks.offers import OfferedTool, answer_text, ask, is_error, offered_tools, question_of
from contextos.frameworks.wrapping import UNKNOWN, ForeignTool, invalid_arguments, refuse_lost
from contextos.packs.tools.exact import exactly, refuse_unseen_parameters
from contextos.packs.tools.schemas import refuse_tool

_CLOSE_OVER: Final = "take what it needs as arguments, or close over it"
_NO_SETTING: Final = "remove it, or decorate a function of your own"
_SUPPLIED_NAMES: Final = ("run_manager", "callbacks")
"""The parameters of a function that LangChain itself fills in for its tracing."""

_METHODS: Final = ("invoke", "ainvoke", "run", "arun", "_parse_input", "_to_args_and_kwargs")

GateNode = Callable[[Any], Awaitable[dict[str, list[AnyMessage]]]]


def gate_node(gate: ToolGate) -> GateNode:
    """Return a node that takes the place of `ToolNode`: it answers the tool calls of the last message, in order.

    The state of the graph has `messages`, as an item or as an attribute. A refusal and an error of a tool are a
    `ToolMessage` of status `error`. Calls of tools that the session does not have are refused too, and recorded.

    Raises, when it runs:
        InvalidInput: the last message is not the message of a model.
        Unavailable: the gate cannot answer now; resume the thread later.
    """
    offered = offered_tools(gate)

    async def answer_calls(state: Any) -> dict[str, list[AnyMessage]]:
        return {"messages": [await _answer_call(gate, offered, *call) for call in _read_calls(state)]}

    return answer_calls


def gate_condition(state: Any) -> Literal["tools", "__end__"]:
    """Return `tools` if the model calls a tool, and else the end of the graph. Calls with arguments that are not JSON
    count too: `tools_condition` of LangGraph leaves them without an answer.

    Raises:
        InvalidInput: the last message is not the message of a model.
    """
    return "tools" if _read_calls(state) else "__end__"


def _read_calls(state: Any) -> list[tuple[Any, Any, Any]]:
    messages = state["messages"] if isinstance(state, Mapping) else state.messages
    last = messages[-1] if messages else None
    if not isinstance(last, AIMessage):
        detail = f"the last message is a `{type(last).__name__}`"
        raise InvalidInput(Problem("/messages", "no_calls", detail, "run this node after the model"))
    return [(call["name"], call["args"], call["id"]) for call in (*last.tool_calls, *last.invalid_tool_calls)]


class GateTool(BaseTool):
    """One tool of a session as a tool of LangChain, which waits and answers as `gate_node` does."""

    _gate: ToolGate = PrivateAttr()
    _offered: Mapping[str, OfferedTool] = PrivateAttr()

    def __init__(self, gate: ToolGate, offered: Mapping[str, OfferedTool], name: str) -> None:
        tool = offered[name]
        super().__init__(name=tool.name, description=tool.description, args_schema=dict(tool.input_schema))
        self._gate, self._offered = gate, offered

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **more: Any) -> ToolMessage:  # noqa: ARG002
        """Ask the gate for the call of a model, with its id.

        Raises:
            InvalidInput: `input` is not a tool call.
            Unavailable: the gate cannot answer now; resume the thread later.
        """
        if not isinstance(input, Mapping) or input.get("type") != "tool_call":
            detail = f"`{self.name}` was called without the call of a model, whose id the session needs"
            raise InvalidInput(Problem("/input", "no_call", detail, "give the tool call, as a tool node does"))
        return await _answer_call(self._gate, self._offered, self.name, input["args"], input["id"])

    def _run(self, *args: Any, **more: Any) -> Any:  # noqa: ARG002
        remedy = "use the asynchronous methods of the graph, such as `ainvoke`"
        raise InvalidInput(Problem("", "not_async", "a session is asked asynchronously", remedy))


def langchain_tools(gate: ToolGate) -> list[BaseTool]:
    """Return the tools of an open session for a `ToolNode`, and for agents that make a tool node from a list of tools.

    Raises:
        InvalidInput: as `offered_tools`.
    """
    offered = offered_tools(gate)
    return [GateTool(gate, offered, name) for name in offered]


async def _answer_call(
    gate: ToolGate, offered: Mapping[str, OfferedTool], name: str | None, args: Any, call_id: str | None
) -> ToolMessage:
    answer = await ask(gate, offered, name, args, call_id)
    while isinstance(answer, Waiting):
        # `interrupt` returns after any resume, also one for an earlier call. So the gate is asked again.
        interrupt(question_of(answer))
        answer = await ask(gate, offered, name, args, call_id)
    status: Literal["error", "success"] = "error" if is_error(answer) else "success"
    return ToolMessage(answer_text(answer), tool_call_id=call_id or "", name=name, status=status)


def read_langchain_tool(tool: BaseTool) -> ForeignTool:
    """Read a tool of LangChain. Raises `InvalidTool` if it needs a graph's run, or has an unsupported setting."""
    settings = (
        (tool.return_direct, "`return_direct`", _NO_SETTING),
        (tool.handle_tool_error, "`handle_tool_error`, after which a failed write would look done", _NO_SETTING),
        (tool.handle_validation_error, "`handle_validation_error`", _NO_SETTING),
        (tool.response_format != "content", "an artifact beside its content", _NO_SETTING),
        (tool.extras, "`extras`", _NO_SETTING),
    )
    refuse_lost(tool.name, settings)
    if isinstance(tool, Tool):
        remedy = "make it with `@tool`, or with `StructuredTool.from_function`"
        refuse_tool(tool.name, "no_arguments", (), "its arguments have no names", remedy)
    attribute = _inner_function(tool)
    function = getattr(tool, attribute)
    hints = typing.get_type_hints(function, include_extras=True)
    arguments, schema = _read_arguments(tool, hints)
    refuse_unseen_parameters(function, schema, tool.name, _SUPPLIED_NAMES)

    async def call(args: dict[str, Any]) -> Any:
        if arguments is not None:
            try:
                arguments.model_validate(args)
            except ValidationError as error:
                raise invalid_arguments(error) from None
        # The tool runs outside of the node's run: its `interrupt` would take the answer that resumed the node.
        token = var_child_runnable_config.set(None)
        try:
            copy = tool.model_copy()
            vars(copy)[attribute] = exactly(function, args, _SUPPLIED_NAMES)
            return await copy.ainvoke(args)
        finally:
            var_child_runnable_config.reset(token)

    returns = hints.get("return", UNKNOWN)
    types = {} if arguments is None else {"arguments": arguments}
    return ForeignTool(tool.name, tool.description, schema, returns, call, function, types, failures=(ToolException,))


def _inner_function(tool: BaseTool) -> str:
    """Return the attribute with the function that finally runs. Raises `InvalidTool` if the class overrides a call."""
    base: Any = BaseTool
    methods: tuple[str, ...] = ()
    attribute = "_run" if type(tool)._arun is BaseTool._arun else "_arun"
    if isinstance(tool, StructuredTool):
        base, methods, attribute = StructuredTool, ("_run", "_arun"), "coroutine" if tool.coroutine else "func"
    for name in (*_METHODS, *methods):
        if getattr(type(tool), name) is not getattr(base, name):
            refuse_tool(tool.name, "own_call", (name,), f"it has its own `{name}`, after the judgement", _NO_SETTING)
    return attribute


def _read_arguments(tool: BaseTool, hints: Mapping[str, Any]) -> tuple[type[BaseModel] | None, dict[str, Any]]:
    """Return the model of the tool's arguments, or None, and the JSON Schema that is shown. Raises `InvalidTool`."""
    needs = {f"`{name}`" for name, hint in hints.items() if hint in (RunnableConfig, RunnableConfig | None)}
    schema: Any = tool.tool_call_schema
    model: Any = None
    if not isinstance(schema, dict):
        model = tool.get_input_schema()
        if not (issubclass(model, BaseModel) and issubclass(schema, BaseModel)):
            remedy = "use a model of pydantic 2"
            refuse_tool(tool.name, "old_model", (), "its arguments are a model of pydantic 1", remedy)
        needs |= {f"`{name}`" for name in model.model_fields.keys() - schema.model_fields.keys()}
    if needs:
        detail = f"it needs {', '.join(sorted(needs))}, which only a graph's run has"
        refuse_tool(tool.name, "needs_agent", (), detail, _CLOSE_OVER)
    try:
        return model, schema if isinstance(schema, dict) else schema.model_json_schema()
    except PydanticUserError as error:
        detail = f"its arguments have no JSON form: {str(error).partition(chr(10))[0][:200]}"
        refuse_tool(tool.name, "no_json_form", ("arguments",), detail, "use JSON types, or a model of them")
