"""`govern` takes a tool of the OpenAI Agents SDK as it is, closed and bounded, or refuses it with what to write."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from agents import (
    Agent,
    FunctionTool,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.tool_context import ToolContext
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


@pytest.mark.parametrize("function", [lookup, alookup], ids=["function", "coroutine"])
def test_a_governed_tool_has_the_sdks_schema_closed_and_bounded(function: Any) -> None:
    governed = govern(function_tool(function), risk="read", produces="order")
    schema = governed.definition.input_schema
    assert schema["additionalProperties"] is False
    assert schema["properties"]["order"] == {"type": "string", "maxLength": 1000}
    assert schema["required"] == ["order", "amount"], "a strict schema of the SDK requires all"
    assert governed.definition.description == "Look an order up."
    assert asyncio.run(governed(order="ord_1", amount=4)) == "ord_1 4"


def test_a_tool_that_is_not_strict_keeps_its_defaults() -> None:
    governed = govern(function_tool(lookup, strict_mode=False), risk="read")
    assert governed.definition.input_schema["required"] == ["order"]
    assert asyncio.run(governed(order="ord_1")) == "ord_1 3"


def test_its_name_description_timeout_and_approval_are_kept() -> None:
    told = {"name_override": "pay", "description_override": "Pay an order.", "timeout": 4.0, "needs_approval": True}
    governed = govern(function_tool(alookup, **told), risk="irreversible", idempotency="none")
    assert (governed.name, governed.definition.description) == ("pay", "Pay an order.")
    assert governed.definition.timeout_s == 4
    with pytest.raises(InvalidTool, match="asks for approval"):
        govern(function_tool(alookup, **told), risk="read")


class Order(BaseModel):
    order_id: str


def pay(order: Order, speed: Literal["slow", "fast"]) -> str:
    """Pay an order."""
    return f"{type(order).__name__} {order.order_id} {speed}"


def test_arguments_are_converted_to_the_types_of_the_function() -> None:
    governed = govern(function_tool(pay), risk="irreversible", idempotency="none")
    assert asyncio.run(governed(order={"order_id": "ord_1"}, speed="fast")) == "Order ord_1 fast"
    with pytest.raises(BusinessError, match="/order/order_id"):
        asyncio.run(governed(order={}, speed="fast"))


def with_context(run: RunContextWrapper[None], order: str) -> str:
    """Look an order up."""
    return order


def with_tool_context(run: ToolContext[None], order: str) -> str:
    """Look an order up."""
    return order


def opened(order: dict[str, Any]) -> str:
    """Look an order up."""
    return str(order)


def untyped(order: str):
    """Look an order up."""
    return order


async def asks(run: Any, arguments: dict[str, Any], call_id: str) -> bool:
    return True


@tool_input_guardrail
def guards(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow()


@tool_output_guardrail
def guards_output(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow()


def by_hand() -> FunctionTool:
    async def call(context: Any, arguments: str) -> str:
        return arguments

    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    return FunctionTool("lookup", "Look an order up.", schema, call)


REFUSED: dict[str, tuple[Any, str]] = {
    "context": (function_tool(with_context), "the context of a run"),
    "tool_context": (function_tool(with_tool_context), "the context of a run"),
    "by_hand": (by_hand(), "make it with `function_tool`"),
    "agent": (Agent("other").as_tool("other", "Ask another agent."), "make it with"),
    "error_function": (
        function_tool(lookup, failure_error_function=lambda run, error: "all is well"),
        "`failure_error_function`",
    ),
    "approval_by_call": (function_tool(lookup, needs_approval=asks), "`needs_approval` that decides"),
    "guardrail": (function_tool(lookup, tool_input_guardrails=[guards]), "guardrails"),
    "output_guardrail": (function_tool(lookup, tool_output_guardrails=[guards_output]), "guardrails"),
    "disabled": (function_tool(lookup, is_enabled=False), "`is_enabled`"),
    "timeout_rule": (function_tool(alookup, timeout=3, timeout_behavior="raise_exception"), "a rule for its timeout"),
    "defer_loading": (function_tool(lookup, defer_loading=True), "`defer_loading`"),
    "custom_data": (function_tool(lookup, custom_data_extractor=lambda context: None), "`custom_data_extractor`"),
    "callers": (function_tool(lookup, allowed_callers=["direct"]), "`allowed_callers`"),
    "open_object": (function_tool(opened, strict_mode=False), "an object of anything"),
    "no_return_type": (function_tool(untyped), "the type that it returns is not known"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_only_an_agent_has_is_refused_and_not_dropped(case: str) -> None:
    refused, told = REFUSED[case]
    with pytest.raises(InvalidTool, match=told) as problem:
        govern(refused, risk="read")
    assert problem.value.problems[0].remedy


def test_an_exception_stays_one_so_that_a_failed_write_does_not_look_done() -> None:
    def broken(order: str) -> str:
        """Pay an order."""
        raise ValueError("the line went dead")

    governed = govern(function_tool(broken), risk="irreversible", idempotency="none")
    with pytest.raises(ValueError, match="the line went dead"):
        asyncio.run(governed(order="ord_1"))
