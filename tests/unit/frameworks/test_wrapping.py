"""`govern` takes a framework's tool as it is, closed and bounded, or refuses it with what to write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_ai import RunContext, Tool

from contextos.errors import InvalidTool
from contextos.frameworks.wrapping import govern
from examples.frameworks import desk


def lookup(order: str, amount: int = 3) -> str:
    """Look an order up."""
    return f"{order} {amount}"


def with_context(ctx: RunContext[None], order: str) -> str:
    """Look an order up."""
    return order


def opened(order: dict[str, Any]) -> str:
    """Look an order up."""
    return str(order)


def untyped(order: str):
    """Look an order up."""
    return order


def bare(order: str) -> str:
    return order


def test_a_governed_tool_has_the_frameworks_schema_closed_and_bounded() -> None:
    tool = govern(Tool(lookup), risk="read", produces="order")
    schema = tool.definition.input_schema
    assert schema["additionalProperties"] is False
    assert schema["properties"]["order"] == {"type": "string", "maxLength": 1000}
    assert schema["properties"]["amount"]["default"] == 3
    assert schema["required"] == ["order"]
    assert tool.definition.kind == "read"
    assert asyncio.run(tool(order="ord_1")) == "ord_1 3", "its own default is used"


def test_the_argument_for_the_key_is_in_no_schema() -> None:
    tool = govern(Tool(desk.rollback), risk="irreversible", idempotency="keyed", key="request_key")
    assert set(tool.definition.input_schema["properties"]) == {"service", "env"}
    assert tool.definition.approval_mode == "destructive"


REFUSED: dict[str, tuple[Any, Mapping[str, Any], str]] = {
    "no_risk": (lookup, {}, "no_risk"),
    "no_idempotency": (lookup, {"risk": "irreversible"}, "no_idempotency"),
    "lookup_strategy": (lookup, {"risk": "reversible", "idempotency": "lookup"}, "no_idempotency"),
    "keyed_without_key": (lookup, {"risk": "reversible", "idempotency": "keyed"}, "no_key"),
    "key_that_is_no_argument": (lookup, {"risk": "reversible", "idempotency": "keyed", "key": "x"}, "no_key"),
    "key_that_is_no_text": (lookup, {"risk": "reversible", "idempotency": "keyed", "key": "amount"}, "no_key"),
    "key_of_a_read": (lookup, {"risk": "read", "key": "order"}, "key_of_a_read"),
    "run_context": (with_context, {"risk": "read"}, "needs_agent"),
    "open_object": (opened, {"risk": "read"}, "open_object"),
    "no_return_type": (untyped, {"risk": "read"}, "no_return_type"),
    "no_docstring": (bare, {"risk": "read"}, "no_docstring"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_derived_is_refused_with_what_to_write(case: str) -> None:
    function, said, code = REFUSED[case]
    with pytest.raises(InvalidTool) as refused:
        govern(Tool(function), **said)
    (problem,) = refused.value.problems
    assert problem.code == code
    assert problem.remedy


def test_a_read_that_asks_for_approval_is_refused() -> None:
    with pytest.raises(InvalidTool, match="asks for approval"):
        govern(Tool(lookup, requires_approval=True), risk="read")


def test_something_that_is_no_tool_is_refused() -> None:
    with pytest.raises(InvalidTool, match="no tool of a framework"):
        govern(lookup, risk="read")


def test_a_stated_return_type_takes_the_place_of_a_missing_hint() -> None:
    tool = govern(Tool(untyped), risk="read", returns=str)
    assert tool.definition.output_schema["properties"]["result"]["type"] == "string"
