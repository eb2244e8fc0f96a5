"""How a run ends for each failure, and when a scorecard accepts."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.verdicts import Failure
from contextos.decision.scoring import end_of, score
from tests.unit.context import samples

MISSING = Failure(code="missing_evidence", detail="an item is missing")


def card(**changes: Any) -> dict[str, Any]:
    used: dict[str, Any] = {
        "wall_clock_us": 15_000_000,
        "cost_cents": 5,
        "steps": 2,
        "done": 2,
        "failures": (),
        "acted": False,
    }
    return score(samples.pack(), "support.refund", samples.run().run_budget, **used | changes)


def test_the_first_failure_decides_how_a_run_ends() -> None:
    denied = Failure(code="policy_denied", detail="denied")
    assert end_of(()) == "completed"
    assert end_of((denied, MISSING)) == "refused"
    assert end_of((MISSING, denied)) == "escalated"


def test_each_axis_is_a_share_between_0_and_1() -> None:
    shares = {axis: card()[axis]["score"] for axis in ("policy", "utility", "latency", "safety", "economics")}
    assert shares == {"policy": 1, "utility": 1, "latency": 0.75, "safety": 1, "economics": 0.8}
    assert card(wall_clock_us=10**12)["latency"]["score"] == 0


@pytest.mark.parametrize(("acted", "verdict"), [(False, "replan"), (True, "escalate")])
def test_missing_evidence_replans_only_before_anything_had_an_effect(acted: bool, verdict: str) -> None:
    assert card(failures=(MISSING,), done=1, acted=acted)["verdict"] == verdict
