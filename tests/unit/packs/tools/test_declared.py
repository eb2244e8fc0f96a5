"""A decorated function is a tool: it can still be called as it is, and governed calls convert, supply and check."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from datetime import datetime
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from contextos import CallContext, Key, read, write
from contextos.contracts.envelopes.tool import AdapterReply, Idempotency
from contextos.errors import InvalidTool
from contextos.packs.tools.declared import Tool
from contextos.packs.tools.toolset import toolset

CALL = CallContext("tenant_a", "run_1", "tool_1", "ik_0000000000000001", not_after_us=0, timeout_ms=5000)


class Build(BaseModel):
    """One build."""

    commit: str = Field(max_length=40)
    green: bool


@dataclasses.dataclass
class Window:
    """A time."""

    opens: datetime


class Ticket(TypedDict):
    """A ticket."""

    number: int


@read(integrity="trusted", produces="ci")
def ci_status(service: str, build: Build | None = None) -> Build:
    """The newest build of a service.

    Further paragraphs are for readers of the code.
    """
    assert build is None or isinstance(build, Build)
    return build or Build(commit=service, green=True)


@write(risk="irreversible", idempotency="keyed", timeout_s=20, cost_cents=2, scopes=["deploy"])
async def rollback(service: str, env: Literal["prod", "staging"], key: Key, steps: int = 1) -> Ticket:
    """Put the build before back."""
    assert isinstance(key, Key)
    assert key == CALL.idempotency_key
    return {"number": len(service) + steps}


@read(integrity="trusted")
def opens_at(window: Window, context: CallContext) -> datetime:
    """When a window opens."""
    assert context is CALL
    assert isinstance(window, Window)
    return window.opens


@write(risk="reversible", idempotency=Idempotency(strategy="none", scope="tenant", identity_args=("service",)))
def pause(service: str) -> None:
    """Stop taking requests."""


def ticket_of(key: Key, context: CallContext) -> Ticket | None:
    return {"number": 7} if key.endswith("1") else None


@write(risk="reversible", idempotency="lookup", lookup=ticket_of)
def order(item: str) -> Ticket:
    """Order an item."""
    return {"number": len(item)}


def governed(tool: Tool[..., Any], args: dict[str, Any]) -> AdapterReply:
    return asyncio.run(toolset("box", [tool]).call(tool.name, args, CALL))


def test_a_tool_is_still_the_function() -> None:
    assert ci_status("a").commit == "a"
    assert inspect.signature(ci_status) == inspect.signature(ci_status.function)
    assert asyncio.run(rollback("abc", "prod", CALL.idempotency_key and Key(CALL.idempotency_key))) == {"number": 4}


def test_arguments_arrive_in_their_types_and_dependencies_are_supplied() -> None:
    assert governed(ci_status, {"service": "a", "build": None}).output == {"commit": "a", "green": True}
    given = {"service": "a", "build": {"commit": "c", "green": False}}
    assert governed(ci_status, given).output == {"commit": "c", "green": False}
    assert governed(rollback, {"service": "abc", "env": "prod", "steps": 1}).output == {"number": 4}
    opened = governed(opens_at, {"window": {"opens": "2026-05-04T09:00:00Z"}})
    assert opened.output == {"result": "2026-05-04T09:00:00Z"}, "what is not an object is held as `result`"
    assert governed(pause, {"service": "a"}).output == {}


def test_the_definition_says_what_the_function_says() -> None:
    declared = rollback.definition
    assert (declared.kind, declared.risk_level, declared.approval_mode) == (
        "write",
        "write_irreversible",
        "destructive",
    )
    assert declared.input_schema["required"] == ["service", "env"]
    assert set(declared.input_schema["properties"]) == {"service", "env", "steps"}, "dependencies are in no schema"
    assert declared.input_schema["properties"]["steps"]["default"] == 1
    assert (declared.timeout_s, declared.cost_cents, declared.required_scopes) == (20, 2, ("deploy",))
    assert ci_status.definition.description == "The newest build of a service."
    assert ci_status.definition.produces == ("ci",)
    assert pause.definition.idempotency.scope == "tenant"
    assert pause.definition.risk_level == "write_reversible"
    assert pause.definition.approval_mode == "destructive", "a person is asked unless a pack says otherwise"


@pytest.mark.parametrize(
    "args",
    [{"service": 3}, {"service": "a", "build": {"commit": 1, "green": True}}, {"service": "a", "other": 1}],
    ids=["a number for a text", "a field of another type", "an unknown argument"],
)
def test_what_does_not_convert_is_refused_before_the_function_runs(args: dict[str, Any]) -> None:
    reply = governed(ci_status, args)
    assert reply.error is not None
    assert reply.error.code == "invalid_arguments"


@pytest.mark.parametrize(
    "value", ["text", None, object(), 2**70, "\ud800"], ids=["text", "nothing", "object", "large", "half"]
)
def test_an_output_of_another_type_is_an_answer_that_does_not_fit(value: Any) -> None:
    """The function has run: nobody calls it again, and nobody is asked whether it happened."""

    @read(integrity="trusted", name="wrong")
    def wrong() -> int:
        """A number."""
        return value  # type: ignore[no-any-return]

    @write(risk="reversible", idempotency="none", cost_cents=3)
    def wrong_write() -> int:
        """A number."""
        return value  # type: ignore[no-any-return]

    for tool, cents in ((wrong, 0), (wrong_write, 3)):
        reply = governed(tool, {})
        assert (reply.output, reply.error, reply.cost_cents) == (None, None, cents)
        assert reply.withheld is not None


def test_a_lookup_is_asked_with_the_key() -> None:
    adapter = toolset("box", [order])
    found = asyncio.run(adapter.lookup("order", "ik_0000000000000001", CALL))
    assert found is not None
    assert found.output == {"number": 7}
    assert asyncio.run(adapter.lookup("order", "ik_0000000000000002", CALL)) is None


def test_an_async_lookup_is_awaited() -> None:
    async def find(key: Key) -> Ticket | None:
        return {"number": 9} if key else None

    @write(risk="reversible", idempotency="lookup", lookup=find)
    async def order_late(item: str) -> Ticket:
        """Order an item."""
        return {"number": 1}

    found = asyncio.run(toolset("box", [order_late]).lookup("order_late", "ik_0000000000000001", CALL))
    assert found is not None
    assert found.output == {"number": 9}


def refused(declare: Any, function: Any) -> InvalidTool:
    with pytest.raises(InvalidTool) as caught:
        declare(function)
    return caught.value


def plain(a: str) -> int:
    """A number."""
    return len(a)


def keyed(a: str, key: Key) -> int:
    """A number."""
    return len(a)


def silent(a: str) -> int:
    return len(a)


def generates(a: str) -> Any:
    """Numbers."""
    yield a


KEYED = {"risk": "reversible", "idempotency": "keyed"}
LOOKED_UP = {"risk": "reversible", "idempotency": "lookup"}


@pytest.mark.parametrize(
    ("declare", "function", "code", "remedy"),
    [
        (write(idempotency="none"), plain, "no_risk", 'risk="reversible"'),
        (write(risk="reversible"), plain, "no_idempotency", 'idempotency="keyed"'),
        (write(**KEYED), plain, "no_key", "contextos.Key"),
        (write(**LOOKED_UP), plain, "no_lookup", "lookup="),
        (write(**KEYED, lookup=ticket_of), keyed, "no_lookup", "lookup="),
        (write(**LOOKED_UP, lookup=plain), plain, "lookup_arguments", "contextos.Key"),
        (write(**LOOKED_UP, lookup=ticket_of), plain, "lookup_return", "or None"),
        (write(**LOOKED_UP, lookup=print), plain, "no_function", "plain function"),
        (read(), keyed, "key_of_a_read", "remove"),
        (read(), silent, "no_docstring", "first sentence"),
        (read(), generates, "no_function", "def"),
        (read(), staticmethod(plain), "no_function", "nearest to the function"),
        (read(), Window, "no_function", "def"),
        (read(name="not a name"), plain, "misfit", "correct"),
        (read(timeout_s=0), plain, "misfit", "correct"),
    ],
    ids=[
        "a write without a risk",
        "a write without idempotency",
        "a keyed write without its key",
        "lookup without a function",
        "a function without lookup",
        "a lookup with arguments",
        "a lookup of another type",
        "a lookup of no function",
        "a read with a key",
        "no docstring",
        "a generator",
        "a static method object",
        "a class",
        "a name with spaces",
        "no time",
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_what_to_write(
    declare: Any, function: Any, code: str, remedy: str
) -> None:
    problem = refused(declare, function).problems[0]
    assert problem.code == code
    assert remedy in problem.remedy
