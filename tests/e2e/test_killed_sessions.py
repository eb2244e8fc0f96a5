"""`kill -9` at every durable boundary of an agent's session; the same agent in a fresh process goes on from there.

The agent says the same words again, with the same call ids, and reads the recorded answers. One run, one record, one
effect, and a replay that is equal.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.crash_driver import Job
from tests.sessions import chosen_by_agent
from tests.world import open_world, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def outcomes(folder: Path, jobs: list[Job]) -> list[dict[str, Any]]:
    folder.mkdir()
    plan = folder / "jobs.json"
    plan.write_text(json.dumps([asdict(job) for job in jobs]), "utf-8")
    subprocess.run([sys.executable, "-m", "tests.e2e.crash_driver", str(plan)], cwd=ROOT, check=True)
    answers: list[dict[str, Any]] = json.loads((folder / "answer.json").read_text("utf-8"))
    return answers


def published(path: Path) -> Path:
    """A workspace whose pack opens the refund to an agent."""

    async def publish(where: Path) -> None:
        world = await open_world(where, stores="sqlite", pack=chosen_by_agent)
        await world.aclose()

    first = path / "published"
    first.mkdir()
    run(publish(first))
    return first


@pytest.mark.parametrize(
    ("amount", "step"), [(4200, 4), *(pytest.param(amount, 1, marks=pytest.mark.soak) for amount in (4200, 900))]
)
def test_a_session_that_is_killed_at_any_boundary_goes_on_in_a_fresh_process(
    tmp_path: Path, amount: int, step: int
) -> None:
    """By default at each fourth boundary; the soak kills at each of them."""
    origin, quiet, log = published(tmp_path), tmp_path / "unkilled", tmp_path / "quiet.log"
    shutil.copytree(origin, quiet)
    (undisturbed,) = outcomes(tmp_path / "quiet", [Job("session", str(quiet), str(log), amount)])
    assert (undisturbed["exit"], undisturbed["state"]) == (0, "completed")
    boundaries = len(log.read_text("utf-8").splitlines())
    assert boundaries > 20
    spaces = {at: Path(shutil.copytree(origin, tmp_path / f"copy_{at}")) for at in range(0, boundaries, step)}
    killed = [
        Job("session", str(space), str(tmp_path / f"{at}.log"), amount, kill_at=at) for at, space in spaces.items()
    ]
    assert {one["exit"] for one in outcomes(tmp_path / "killed", killed)} == {-signal.SIGKILL}
    again = [Job("session", str(space), str(tmp_path / f"{at}.again"), amount) for at, space in spaces.items()]
    for at, result in zip(spaces, outcomes(tmp_path / "again", again), strict=True):
        assert result["exit"] == 0, f"killed at boundary {at}"
        assert (result["state"], result["record"]["status"]) == ("completed", "DECIDED")
        assert [one["amount_inr"] for one in result["refunds"]] == [amount]
        assert result["replayed"] == result["record"]["record_hash"]
        assert result["record"]["effects"][0]["state"] == "happened"
