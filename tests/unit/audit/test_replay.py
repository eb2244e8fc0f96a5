"""A replay validates in full what the run itself built and did not validate again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.context import compiler
from contextos.errors import InvalidInput, ReplayMismatch
from contextos.runtime import conclusion, wiring
from tests.world import TENANT, open_world, request, run


def test_a_run_that_waits_is_no_finding(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_waits")))
    assert view.state == "waiting"
    with pytest.raises(InvalidInput, match="has not ended; replay it when it has"):
        run(replay(world.deployment, TENANT, view.run_id))


@pytest.mark.parametrize(
    ("module", "function", "contract"),
    [
        pytest.param(wiring, "build_record", "DecisionRecord", id="record"),
        pytest.param(conclusion, "build_packet", "ReplayPacket", id="packet"),
        pytest.param(compiler, "compiled_context", "CompiledContext", id="context"),
    ],
)
def test_an_envelope_that_breaks_its_contract_does_not_replay(
    module: Any, function: str, contract: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = getattr(module, function)
    monkeypatch.setattr(module, function, lambda *values, **named: build(*values, **named) | {"surplus": 1})
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(900, "req_surplus")))
    assert view.state == "completed"
    with pytest.raises(ReplayMismatch, match=f"it is no valid `{contract}`: `/surplus`"):
        run(replay(world.deployment, TENANT, view.run_id))
