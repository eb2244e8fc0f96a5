"""A planner that fails is logged with the class and the frames of its exception, and never with its text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos.contracts.ports.planning import PlanRequest
from contextos.errors import Unavailable
from contextos.telemetry.planner import LoggedPlanner

REQUEST = PlanRequest("run_1", 0, {}, (), ())


class FailingPlanner:
    name = "acme.planner@1"

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def propose(self, _request: PlanRequest) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("hunter2"), TimeoutError("hunter2")])
def test_what_a_planner_raises_is_logged_without_its_text(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(type(error)):
        asyncio.run(LoggedPlanner(FailingPlanner(error)).propose(REQUEST))
    (logged,) = caplog.records
    assert (vars(logged)["run"], vars(logged)["error"]) == ("run_1", type(error).__name__)
    assert any(line.endswith("FailingPlanner.propose") for line in vars(logged)["traceback"])
    assert logged.exc_info is None
    assert "hunter2" not in repr(vars(logged))


def test_a_planner_that_is_away_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Unavailable):
        asyncio.run(LoggedPlanner(FailingPlanner(Unavailable("acme", "away"))).propose(REQUEST))
    assert not caplog.records
