"""`McpAdapter`, over stdio and over HTTP, and `FunctionAdapter` do what every adapter does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from examples.support_refund import shop
from tests.servers.adapters import adapter_of, call_context, drafted, opened, reviewed_mcp
from tests.servers.processes import mcp_connection
from tests.suites.adapter_suite import AdapterSuite, AdapterWorld


@pytest.fixture(params=["function", "stdio", "http"])
def adapter_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AdapterWorld]:
    books = shop.Shop(tmp_path / "shop.db")
    orders, payments = shop.ORDERS_ADAPTER, shop.payments_adapter("keyed")
    with ExitStack() as on_exit:
        on_exit.callback(books.close)
        connection = {}
        if request.param != "function":
            connection = on_exit.enter_context(mcp_connection("shop_server.py", request.param, tmp_path))

        def make(definition: Any) -> Any:
            if request.param != "function":
                adapter: Any = adapter_of(reviewed_mcp(definition, connection, tmp_path), tmp_path)
            else:
                adapter = shop.orders(books) if definition is orders else shop.payments(books, "keyed", shop.unix_us)
            on_exit.callback(adapter.close)
            return adapter

        yield AdapterWorld(make, orders, payments, books.refunds)


class TestAdapters(AdapterSuite):
    @pytest.fixture
    def world(self, adapter_world: AdapterWorld) -> AdapterWorld:
        return adapter_world


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_listed_resource_is_read_and_names_its_origin(transport: str, tmp_path: Path) -> None:
    with mcp_connection("shop_server.py", transport, tmp_path) as connection:
        file = asyncio.run(drafted(connection, tmp_path, resources=["memo://returns"]))
        with opened(file, tmp_path) as adapter:
            reply = asyncio.run(adapter.call("read_resource", {"uri": "memo://returns"}, call_context()))
    text = {"uri": "memo://returns", "text": "Returns within 30 days."}
    assert reply.output == {"contents": [text], "omitted": 0}
