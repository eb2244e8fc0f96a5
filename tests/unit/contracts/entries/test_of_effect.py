"""What a run has used: a fold of its journal."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.entries.kinds import account_of
from contextos.contracts.journal import Logged


def log(*steps: tuple[str, int, dict[str, Any]]) -> list[Logged]:
    return [
        Logged(seq, kind, "0/pay/1", at_us, "runtime", body, "") for seq, (kind, at_us, body) in enumerate(steps, 1)
    ]


@pytest.mark.requirement("R-WALL-CLOCK", "R-TURN-BACK")
@pytest.mark.parametrize(("waited_us", "wall_clock_us"), [(None, 50), (30, 20), (3_600_000_000, 10)])
def test_a_wait_for_a_turn_is_subtracted_once_and_never_more(waited_us: int | None, wall_clock_us: int) -> None:
    """A clock that was put forward and back while the run waited says that it waited for an hour."""
    envelope = {"citations": [], "risk_tags": [], "metadata": {}}
    answer = {"cost_cents": 0, "envelope": envelope} | ({} if waited_us is None else {"waited_us": waited_us})
    entries = log(
        ("run.received", 100, {}),
        ("tool.dispatching", 105, {"reserved_cents": 0}),
        ("tool.returned", 145, answer),
        ("run.scored", 150, {}),
    )
    assert account_of("run_00000000000000ab", entries).used().wall_clock_us == wall_clock_us
