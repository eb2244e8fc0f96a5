"""The reference model passes the suite of the port without an event loop."""

from __future__ import annotations

import pytest

from contextos_sim.memory.stores import MemoryStores
from tests.suites.store_suite import SettableClock, StoreSuite, World, at_once


class TestMemoryStores(StoreSuite):
    @pytest.fixture
    def world(self) -> World:
        clock = SettableClock()
        return World(MemoryStores(clock=clock), clock, at_once)


def test_the_graph_of_a_tenant_is_the_same_each_time() -> None:
    stores = MemoryStores()
    assert stores.graph("a") is stores.graph("a")
    assert stores.graph("a") is not stores.graph("b")
    stores.close()
