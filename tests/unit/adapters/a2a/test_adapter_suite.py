"""`A2aAdapter` does what every adapter does, with an agent made with the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.support_refund import shop
from tests.servers.adapters import same_skills, shop_connection
from tests.suites.adapter_suite import AdapterSuite, AdapterWorld


class TestAdapter(AdapterSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[AdapterWorld]:
        with closing(shop.Shop(tmp_path / "shop.db")) as books, shop_connection("a2a", tmp_path) as connection:
            orders, payments = shop.ORDERS_ADAPTER, shop.payments_adapter("keyed")
            yield AdapterWorld(lambda one: same_skills(one, connection), orders, payments, books.refunds)
