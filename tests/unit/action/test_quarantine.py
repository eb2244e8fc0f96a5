"""Only the reply of a foreign server is an incident, and two calls never write the same one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.quarantine import has_drifted, incident
from contextos.contracts.documents.operations import DRIFT_INCIDENTS
from contextos.contracts.envelopes.tool import AdapterReply, ToolError


def capability(kind: str) -> Any:
    return SimpleNamespace(adapter=SimpleNamespace(type=kind))


def replied(code: str) -> AdapterReply:
    return AdapterReply(error=ToolError(code=code, message="x"), cost_cents=0)


@pytest.mark.parametrize("kind", ["mcp", "a2a", "openapi", "custom"])
def test_a_changed_definition_of_a_foreign_server_is_an_incident(kind: str) -> None:
    assert has_drifted(capability(kind), replied("definition_drift"))
    for reply in (replied("tool_error"), AdapterReply(output={}, cost_cents=0), None):
        assert not has_drifted(capability(kind), reply)


def test_a_function_of_this_process_cannot_put_itself_into_quarantine() -> None:
    assert not has_drifted(capability("function"), replied("definition_drift"))


def test_each_call_has_an_incident_of_its_own() -> None:
    calls: list[Any] = [SimpleNamespace(run_id="run_1", tool_call_id=f"tool_{number}") for number in range(2)]
    writes = [incident("lab.say/sha256:0/", one, 7) for one in calls]
    assert [(one.key, one.expect) for one in writes] == [("lab.say/sha256:0/tool_0", 0), ("lab.say/sha256:0/tool_1", 0)]
    assert [body.tool_call_id for _, body in DRIFT_INCIDENTS.written(writes)] == ["tool_0", "tool_1"]
