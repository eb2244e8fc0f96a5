"""The graph in memory passes the suite of the port."""

from __future__ import annotations

import pytest

from contextos_sim.memory.graph import MemoryGraph
from tests.suites.graph_suite import GraphSuite, GraphWorld
from tests.suites.store_suite import at_once


class TestMemoryGraph(GraphSuite):
    @pytest.fixture
    def world(self) -> GraphWorld:
        return GraphWorld(lambda _: MemoryGraph(), at_once)
