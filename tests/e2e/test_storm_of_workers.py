"""Workers on one PostgreSQL database, killed and stopped at random, while the server crashes and clocks are set wrong.

When it is quiet: nothing is lost, nothing is stuck, nothing happened twice, every journal verifies and replays equal.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.storm import Weather, check, lines_of, raged, storm
from tests.world import run

pytestmark = pytest.mark.slow

CLOCK_OFF = re.compile(
    r"`clock` is unavailable: the clock of this machine is \d+ s (ahead of|behind) the store's, and 5 s are allowed; "
    r"set it, for example with NTP; try again in \d+ ms"
)


@pytest.mark.requirement("J-DURABLE", "J-FENCED", "J-BARRIER", "E-DUE", "E-WORKER-DEATH")
def test_a_small_storm_leaves_nothing_lost_stuck_or_twice(tmp_path: Path) -> None:
    with storm(tmp_path, Weather(18), seed=1) as made:
        check(run(raged(made)))


@pytest.mark.soak
@pytest.mark.requirement("J-DURABLE", "J-FENCED", "J-BARRIER", "E-DUE", "E-WORKER-DEATH")
@pytest.mark.parametrize("engine", ["local", "shared"])
def test_a_storm_leaves_nothing_lost_stuck_or_twice(tmp_path: Path, engine: str) -> None:
    with storm(tmp_path, Weather(500, engine=engine, rage_s=90, patience_s=600), seed=2) as made:
        check(run(raged(made)))


@pytest.mark.soak
@pytest.mark.requirement("J-DURABLE", "J-FENCED", "J-BARRIER", "E-DUE", "E-WORKER-DEATH")
def test_ten_thousand_runs_outlive_four_workers_whose_clocks_are_minutes_apart(tmp_path: Path) -> None:
    """A worker whose clock is wrong takes nothing and says so; with the right time it goes on."""
    weather = Weather(
        10_000,
        workers=4,
        mode="long_running",
        rage_s=900,
        patience_s=1800,
        kills_s=(4, 12),
        crashes_s=(30, 90),
        clocks_apart_s=300,
        repeated=0.02,
    )
    with storm(tmp_path, weather, seed=3) as made:
        counts = run(raged(made))
        check(counts)
        assert counts["workers killed"]
        assert counts["workers stopped"]
        assert counts["server crashes"]
        refused = lines_of(tmp_path / "clocks.jsonl")
        assert refused
        assert [one["said"] for one in refused if not CLOCK_OFF.fullmatch(one["said"])] == []
