"""Without its extra the adapter says which one; what it does with it is in `tests/agentspec`."""

from __future__ import annotations

import sys

import pytest

from contextos.adapters.agentspec import load_flow
from contextos.errors import InvalidSettings
from contextos.server.mcp_slots import slots_server
from contextos.store.memory import MemoryStores
from tests.slots import actor


def test_without_the_extra_agentspec_no_flow_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wayflowcore.agentspec", None)
    monkeypatch.setitem(sys.modules, "wayflowcore", None)
    with pytest.raises(InvalidSettings, match=r"install `contextos\[agentspec\]`"):
        load_flow(b'{"component_type": "Flow"}', {})


def test_without_the_extra_mcp_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    shelf = MemoryStores().artifacts("tenant_acme")
    with pytest.raises(InvalidSettings, match=r"install `contextos\[mcp\]`"):
        slots_server(actor(), shelf, shelf)
