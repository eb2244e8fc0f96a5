"""`govern` takes a tool of LangChain as it is, closed and bounded, or refuses it with what to write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, Tool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from contextos.adapters.function.adapter import BusinessError
from contextos.errors import InvalidTool
from contextos.frameworks.wrapping import govern


def lookup(order: str, amount: int = 3) -> str:
    """Look an order up."""
    return f"{order} {amount}"


async def alookup(order: str, amount: int = 3) -> str:
    """Look an order up."""
    return f"{order} {amount}"


class Lookup(BaseTool):
    name: str = "lookup"
    description: str = "Look an order up."

    def _run(self, order: str, amount: int = 3, run_manager: Any = None) -> str:
        return f"{order} {amount}"


class AsyncLookup(Lookup):
    async def _arun(self, order: str, amount: int = 3, run_manager: Any = None) -> str:
        return f"{order} {amount}"


JSON_SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "amount": {"type": "integer", "default": 3}},
    "required": ["order"],
}
TOOLS = {
    "function": tool(lookup),
    "coroutine": tool(alookup),
    "class": Lookup(),
    "async_class": AsyncLookup(),
    "json_schema": StructuredTool(name="lookup", description="Look.", args_schema=JSON_SCHEMA, func=lookup),
}


@pytest.mark.parametrize("case", TOOLS)
def test_a_governed_tool_has_the_frameworks_schema_closed_and_bounded(case: str) -> None:
    governed = govern(TOOLS[case], risk="read", produces="order")
    schema = governed.definition.input_schema
    assert schema["additionalProperties"] is False
    assert schema["properties"]["order"] == {"type": "string", "maxLength": 1000}
    assert schema["properties"]["amount"]["default"] == 3
    assert schema["required"] == ["order"]
    assert asyncio.run(governed(order="ord_1")) == "ord_1 3", "its own default is used"


def with_state(order: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Look an order up."""
    return order


def with_store(order: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Look an order up."""
    return order


def with_call_id(order: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Look an order up."""
    return order


def with_runtime(order: str, runtime: ToolRuntime) -> str:
    """Look an order up."""
    return order


def with_config(order: str, config: RunnableConfig) -> str:
    """Look an order up."""
    return order


def opened(order: dict[str, Any]) -> str:
    """Look an order up."""
    return str(order)


def untyped(order: str):
    """Look an order up."""
    return order


class StatedArguments(BaseModel):
    order: str
    state: Annotated[dict[str, Any], InjectedState]


REFUSED: dict[str, tuple[Any, str]] = {
    "state": (tool(with_state), "needs `state`"),
    "state_in_a_model": (tool(args_schema=StatedArguments)(with_state), "needs `state`"),
    "store": (tool(with_store), "needs `store`"),
    "call_id": (tool(with_call_id), "needs `call_id`"),
    "runtime": (tool(with_runtime), "needs `runtime`"),
    "config": (tool(with_config), "needs `config`"),
    "return_direct": (tool(return_direct=True)(lookup), "`return_direct`"),
    "artifact": (tool(response_format="content_and_artifact")(lookup), "an artifact"),
    "extras": (tool(extras={"defer_loading": True})(lookup), "`extras`"),
    "handled_error": (Lookup(handle_tool_error=True), "would look done"),
    "handled_validation": (Lookup(handle_validation_error="no"), "`handle_validation_error`"),
    "single_text": (Tool("lookup", func=lookup, description="Look."), "its arguments have no names"),
    "open_object": (tool(opened), "an object of anything"),
    "no_return_type": (tool(untyped), "the type that it returns is not known"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_only_a_graph_has_is_refused_and_not_dropped(case: str) -> None:
    refused, told = REFUSED[case]
    with pytest.raises(InvalidTool, match=told) as problem:
        govern(refused, risk="read")
    assert problem.value.problems[0].remedy


def failing(order: str) -> str:
    """Pay an order."""
    raise ToolException("the shop is closed")


def test_an_error_of_a_read_is_its_answer_and_of_a_write_leaves_open_what_happened() -> None:
    with pytest.raises(BusinessError, match="the shop is closed"):
        asyncio.run(govern(tool(failing), risk="read")(order="ord_1"))
    write: Mapping[str, Any] = {"risk": "irreversible", "idempotency": "none"}
    with pytest.raises(ToolException):
        asyncio.run(govern(tool(failing), **write)(order="ord_1"))


def test_arguments_that_its_model_refuses_do_not_reach_the_function() -> None:
    class Even(BaseModel):
        order: str

    class Checked(Even):
        def model_post_init(self, context: Any) -> None:
            if self.order == "none":
                raise ValueError("there is no such order")

    def pay(order: str) -> str:
        """Pay an order."""
        raise AssertionError("it ran")

    governed = govern(tool(args_schema=Even)(pay), risk="irreversible", idempotency="none")
    with pytest.raises(BusinessError, match="valid string"):
        asyncio.run(governed(order=3))
    with pytest.raises(InvalidTool, match="model_post_init"):
        govern(tool(args_schema=Checked)(pay), risk="irreversible", idempotency="none")


def test_a_tool_that_interrupts_does_not_take_the_answer_that_resumed_the_graph() -> None:
    """The value of a resume approves nothing, also not inside of a governed tool."""

    def pay(order: str) -> str:
        """Pay an order."""
        return f"paid, because {interrupt('pay?')}"

    governed, seen = govern(tool(pay), risk="irreversible", idempotency="none"), []

    async def node(state: MessagesState) -> dict[str, Any]:
        interrupt("the gate waits")
        try:
            seen.append(await governed(order="ord_1"))
        except (KeyError, RuntimeError) as error:
            seen.append(error)
        return {"messages": [AIMessage("done")]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    compiled: Any = graph.compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "t"}}

    async def resumed() -> None:
        await compiled.ainvoke({"messages": []}, thread)
        await compiled.ainvoke(Command(resume=True), thread)
        await compiled.ainvoke(Command(resume=True), thread)

    asyncio.run(resumed())
    assert seen
    assert not any(isinstance(one, str) for one in seen), seen
