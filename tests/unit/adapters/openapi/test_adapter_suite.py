"""`OpenApiAdapter` does what every adapter does, over the HTTP API of the refund example's shop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.support_refund import shop
from tests.servers.adapters import foreign_adapter
from tests.servers.places import REFUND, behind_openapi
from tests.suites.adapter_suite import AdapterSuite, AdapterWorld


class TestOpenApiAdapter(AdapterSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[AdapterWorld]:
        books = shop.Shop(tmp_path / "shop.db")
        with behind_openapi(REFUND, tmp_path) as files:
            by_id = {one["definition"]["adapter_id"]: one for one in files}

            def make(definition: Any) -> Any:
                return foreign_adapter(by_id[definition.adapter_id], tmp_path)

            orders, _, payments = REFUND.definitions
            yield AdapterWorld(make, orders, payments, books.refunds)
        books.close()
