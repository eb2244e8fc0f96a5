"""`OpenApiAdapter` does what every adapter does, over the HTTP API of the refund example's shop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.adapter_file import read_adapter_file
from contextos.app.foreign_adapters import make_adapter
from contextos.contracts.encoding.jcs import canonical
from examples.support_refund import shop
from tests.servers.places import REFUND, behind_openapi
from tests.suites.adapter_suite import AdapterSuite, AdapterWorld


class TestOpenApiAdapter(AdapterSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[AdapterWorld]:
        books = shop.Shop(tmp_path / "shop.db")
        with behind_openapi(REFUND, tmp_path) as files:
            made = {one["definition"]["adapter_id"]: read_adapter_file(canonical(one)) for one in files}

            def make(definition: Any) -> Any:
                return make_adapter(made[definition.adapter_id], tmp_path)

            orders, _, payments = REFUND.definitions
            yield AdapterWorld(make, orders, payments, books.refunds)
        books.close()
