"""`govern` takes a framework's tool as it is, closed and bounded, or refuses it with what to write."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from agents import function_tool
from langchain_core.tools import StructuredTool
from pydantic import create_model
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed

from contextos import toolset
from contextos import write as declared
from contextos.adapters.code import SourceCode
from contextos.adapters.function.adapter import BusinessError
from contextos.errors import InvalidTool
from contextos.frameworks.wrapping import govern
from examples.deploy_rollback import deploy
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


def test_the_code_of_a_governed_tool_is_that_of_its_function_and_of_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deploy, "Order", ORDER, raising=False)
    read = SourceCode()
    code = {kind: read.adapter(toolset("desk", [govern(one, risk="read")])) for kind, one in OF_FRAMEWORKS.items()}
    own = read.adapter(toolset("desk", [declared(risk="reversible", idempotency="none")(lookup)]))
    assert own is not None
    assert code == {"pydantic_ai": own, "langchain": own, "openai": own, "arguments": code["arguments"]}
    assert code["arguments"] not in (None, own), "a model of another module is code too"


ORDER: Any = create_model("Order", __module__=deploy.__name__, order=(str, ...), amount=(int, 3))

OF_FRAMEWORKS: dict[str, Any] = {
    "pydantic_ai": Tool(lookup),
    "langchain": StructuredTool.from_function(lookup),
    "openai": function_tool(lookup),
    "arguments": StructuredTool.from_function(lookup, args_schema=ORDER),
}

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


def test_a_tool_of_langchain_whose_arguments_have_no_json_form_is_refused() -> None:
    def look(on: Collection[int]) -> str:
        """Look."""
        return str(on)

    with pytest.raises(InvalidTool) as refused:
        govern(StructuredTool.from_function(look), risk="read")
    assert refused.value.problems[0].code == "no_json_form"


AGENTS_OWN: dict[str, tuple[Mapping[str, Any], str]] = {
    "strict": ({"strict": True}, "checks the arguments of every call"),
    "max_retries": ({"max_retries": 0}, "the `retries` of the agent"),
    "metadata": ({"metadata": {"team": "a"}}, "`metadata`"),
    "tool_kind": ({"tool_kind": "tool-search"}, "`tool_kind`"),
    "defer_loading": ({"defer_loading": True}, "`defer_loading`"),
    "include_return_schema": ({"include_return_schema": True}, "`include_return_schema`"),
    "prepare": ({"prepare": lambda ctx, tool_def: tool_def}, "`prepare`"),
    "args_validator": ({"args_validator": lambda ctx, order, amount: None}, "`args_validator`"),
}


@pytest.mark.parametrize("case", AGENTS_OWN)
def test_what_only_an_agents_own_tool_has_is_refused_and_not_dropped(case: str) -> None:
    said, told = AGENTS_OWN[case]
    with pytest.raises(InvalidTool, match=told):
        govern(Tool(lookup, **said), risk="read")


def test_the_timeout_of_the_tool_is_its_deadline() -> None:
    assert govern(Tool(lookup), risk="read").definition.timeout_s == 10
    assert govern(Tool(lookup, timeout=3.0), risk="read").definition.timeout_s == 3
    assert govern(Tool(lookup), risk="read", timeout_s=7).definition.timeout_s == 7


@pytest.mark.parametrize(("own", "stated"), [(2.5, None), (600, None), (3, 4), (None, 0)])
def test_a_timeout_that_cannot_be_kept_is_refused(own: float | None, stated: int | None) -> None:
    with pytest.raises(InvalidTool, match="timeout"):
        govern(Tool(lookup, timeout=own), risk="read", timeout_s=stated)


@pytest.mark.parametrize(
    ("raised", "code", "retryable"),
    [(ModelRetry("not today"), "model_retry", True), (ToolFailed("not today"), "tool_failed", False)],
    ids=["model_retry", "tool_failed"],
)
def test_a_refusal_in_the_words_of_the_framework_is_a_business_error(
    raised: Exception, code: str, retryable: bool
) -> None:
    def refuse(order: str) -> str:
        """Pay an order."""
        raise raised

    tool = govern(Tool(refuse), risk="irreversible", idempotency="none")
    with pytest.raises(BusinessError, match="not today") as refused:
        asyncio.run(tool(order="ord_1"))
    assert (refused.value.code, refused.value.retryable) == (code, retryable)


def test_a_function_that_asks_its_agent_for_approval_learns_that_the_pack_asks() -> None:
    def pay(order: str) -> str:
        """Pay an order."""
        raise ApprovalRequired

    tool = govern(Tool(pay), risk="irreversible", idempotency="none")
    with pytest.raises(BusinessError, match="the pack says who is asked"):
        asyncio.run(tool(order="ord_1"))


def test_something_that_is_no_tool_is_refused() -> None:
    with pytest.raises(InvalidTool, match="is not a tool of a framework"):
        govern(lookup, risk="read")


def test_a_stated_return_type_takes_the_place_of_a_missing_hint() -> None:
    tool = govern(Tool(untyped), risk="read", returns=str)
    assert tool.definition.output_schema["properties"]["result"]["type"] == "string"
