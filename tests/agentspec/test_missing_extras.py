"""Without its extra WayFlow or MCP says which one; what it does with it is in the tests beside this one."""

from __future__ import annotations

import sys

import pytest

from contextos.errors import InvalidInput, InvalidSettings
from contextos.server.mcp.slots import slots_server
from contextos_agentspec.session import SelectionSession
from contextos_agentspec.wayflow import load_flow, selection_tools
from contextos_sim.memory.stores import MemoryStores
from tests.agentspec.forged import SAID
from tests.agentspec.planted import good
from tests.slots import actor, one_loop, run
from tests.world import ManualClock


def test_without_the_extra_wayflow_no_flow_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wayflowcore.agentspec", None)
    monkeypatch.setitem(sys.modules, "wayflowcore", None)
    with pytest.raises(InvalidSettings, match=r"install `contextos-agentspec\[wayflow\]`"):
        load_flow(b'{"component_type": "Flow"}', {})


def test_without_the_extra_mcp_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    repository = MemoryStores().artifacts("tenant_acme")
    with pytest.raises(InvalidSettings, match=r"install `contextos\[mcp\]`"):
        slots_server(actor(), repository, repository)


@pytest.mark.requirement("W-PERSON")
def test_an_answer_that_no_resume_brought_is_refused() -> None:
    repository = MemoryStores().artifacts("tenant_acme")
    package = "@contextos-examples/email-outreach-agent"
    desk = SelectionSession(good()[0], "run_1", package, actor(), repository, repository, ManualClock())
    finalize = selection_tools(desk)["context_finalize"]
    with one_loop():
        with pytest.raises(InvalidInput, match="nobody gave this answer"):
            run(finalize("run_1", package, "offeringContext", "act_1", SAID))
        assert list(run(repository.selections("acme", "run_1"))) == []
