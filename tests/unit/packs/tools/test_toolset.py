"""Tools become adapters, by name, by module or by instance; no two share an id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos import CallContext, Key, read, tools_of, toolset, write
from contextos.adapters.code import SourceCode
from contextos.errors import InvalidTool
from contextos.packs.tools.toolset import grouped

CALL = CallContext("tenant_a", "run_1", "tool_1", "ik_0000000000000001", not_after_us=0, timeout_ms=5000)


class PriceList:
    """A shop's prices."""

    def __init__(self, price: int) -> None:
        self.price = price

    @read(integrity="trusted", produces="price")
    def price_of(self, item: str) -> int:
        """The price of an item."""
        return self.price

    def booked(self, key: Key) -> str | None:
        return f"booked at {self.price}"

    @write(risk="reversible", idempotency="lookup", lookup=booked)
    async def book(self, item: str) -> str:
        """Book an item."""
        return f"{item} at {self.price}"


class Sale(PriceList):
    """Half the price."""

    @read(integrity="trusted", produces="price")
    def price_of(self, item: str) -> int:
        """The price of an item in the sale."""
        return self.price // 2


@read(integrity="trusted")
def ping() -> bool:
    """Whether it is there."""
    return True


def answer(adapter: Any, name: str, args: dict[str, Any]) -> Any:
    return asyncio.run(adapter.call(name, args, CALL)).output["result"]


def test_methods_belong_to_their_instance() -> None:
    dear, cheap = tools_of(PriceList(9)), tools_of(PriceList(4), name="cheap")
    assert (dear.describe().adapter_id, cheap.describe().adapter_id) == ("price_list", "cheap")
    assert answer(dear, "price_of", {"item": "a"}) == 9
    assert answer(cheap, "price_of", {"item": "a"}) == 4
    assert answer(cheap, "book", {"item": "a"}) == "a at 4"
    found = asyncio.run(cheap.lookup("book", "ik_0000000000000001", CALL))
    assert found is not None
    assert found.output == {"result": "booked at 4"}
    assert PriceList(3).price_of("a") == 3, "the method can still be called"


def test_an_overridden_tool_is_that_of_the_subclass() -> None:
    sale = tools_of(Sale(8))
    assert answer(sale, "price_of", {"item": "a"}) == 4
    assert [one.name for one in sale.describe().capabilities] == ["price_of", "book"]


def test_tools_are_grouped_by_their_module() -> None:
    (adapter,) = grouped([ping])
    assert adapter.describe().adapter_id == "test_toolset"


def test_a_toolset_with_endpoints_leaves_the_machine() -> None:
    adapter = toolset("net", [ping], egress=["api.example:443"]).describe()
    assert adapter.external
    assert adapter.leaves(adapter.capabilities[0])


def test_the_code_of_a_toolset_is_that_of_its_functions_and_classes() -> None:
    code = SourceCode()
    assert code.adapter(toolset("a", [ping])) == code.adapter(tools_of(PriceList(1)))
    assert code.adapter(toolset("a", [ping])) is not None


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: toolset("a", [ping, ping]), "duplicate"),
        (lambda: toolset("a", [len]), "no_tool"),
        (lambda: grouped([len]), "no_tool"),
        (lambda: toolset("a", [PriceList.price_of]), "no_instance"),
        (lambda: toolset("a b", [ping]), "bad_toolset"),
        (lambda: toolset("a", []), "bad_toolset"),
        (lambda: toolset("a", [ping], egress=["HTTP://x"]), "bad_toolset"),
        (lambda: tools_of(object()), "no_tools"),
    ],
    ids=[
        "a duplicate",
        "no tool",
        "no tool in a group",
        "no instance",
        "a name with a space",
        "empty",
        "no endpoint",
        "no tools",
    ],
)
def test_a_misfit_is_refused(make: Any, code: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        make()
    assert caught.value.problems[0].code == code
