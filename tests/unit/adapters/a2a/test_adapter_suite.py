"""`A2aAdapter` does what every adapter does, with an agent made with the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.support_refund import shop
from tests.servers.adapters import agent_adapter, reviewed_agent
from tests.servers.processes import agent_connection
from tests.suites.adapter_suite import AdapterSuite, AdapterWorld


class TestAdapter(AdapterSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[AdapterWorld]:
        with (
            closing(shop.Shop(tmp_path / "shop.db")) as books,
            agent_connection("shop_agent.py", tmp_path) as connection,
        ):
            orders, payments = shop.ORDERS_ADAPTER, shop.payments_adapter("keyed")
            yield AdapterWorld(
                lambda one: agent_adapter(reviewed_agent(one, connection)), orders, payments, books.refunds
            )
