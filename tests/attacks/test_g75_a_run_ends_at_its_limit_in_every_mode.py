"""`max_session_duration_ms`: the lowest that the request, the pack or the deployment states, in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.runtime.environment import RunLimits
from tests.world import TENANT, ManualClock, open_world, request, run

MINUTE = 60_000


@pytest.mark.parametrize("mode", ["stream", "batch", "long_running"])
@pytest.mark.parametrize("who", ["request", "pack", "deployment"])
def test_an_approval_after_the_limit_pays_nothing(mode: str, who: str, tmp_path: Path, stores: str) -> None:
    def limited(pack: dict[str, Any]) -> None:
        if who == "pack":
            pack["pack_meta"]["max_session_duration_ms"] = MINUTE

    async def attack() -> None:
        clock = ManualClock()
        limits = RunLimits(max_session_duration_ms=MINUTE) if who == "deployment" else None
        world = await open_world(tmp_path, stores=stores, clock=clock, pack=limited, limits=limits)
        try:
            body = request(4200, "req_limit") | {"mode": mode}
            if who == "request":
                body["runtime"]["max_session_duration_ms"] = MINUTE
            view = await world.invoke(body)
            if mode == "long_running":
                await world.deployment.advance(TENANT, view.run_id)
                view = await world.deployment.view(TENANT, view.run_id)
            assert view.waiting is not None
            clock.at_us += MINUTE * 1_000
            await world.deployment.advance(TENANT, view.run_id)
            view = await world.deployment.view(TENANT, view.run_id)
            assert view.record is not None
            assert (view.state, view.record["status"]) == ("exhausted", "ESCALATED")
            [failure] = view.record["rationale"]["failures"]
            assert (failure["code"], failure["facts"]) == ("budget_exhausted", ["max_session_duration_ms"])
            assert world.refunds() == []
        finally:
            await world.aclose()

    run(attack())
