"""A reader of events goes on after a crash in another process: nothing is missed, and nothing is repeated."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contextos.contracts.journal import INDEX
from contextos.store.shared.clock import SystemClock
from tests.world import TENANT, open_world, place_of, publish_world, request, run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workspace that several processes open."""
    if request.param == "postgresql":
        (tmp_path / "place").write_text(str(request.getfixturevalue("database").app), "utf-8")
    run(publish_world(tmp_path))
    return tmp_path


def read_on(workspace: Path, log: Path, kill_after: int) -> int:
    """Read events in a process of its own, and return how it ended."""
    command = [sys.executable, "-m", "tests.e2e.subscriber_driver", "events", str(workspace), str(log), str(kill_after)]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=120).returncode


def test_a_second_process_goes_on_behind_the_cursor_of_one_that_was_killed(workspace: Path) -> None:
    async def make(begin: int) -> list[int]:
        world = await open_world(workspace, stores=place_of(workspace), clock=SystemClock())
        for number in range(begin, begin + 3):
            await world.invoke(request(4200 if number % 2 else 900, f"req_{number}"))
        numbers = [line.seq for line in await world.stores.tenant(TENANT).read(INDEX)]
        await world.aclose()
        return numbers

    log = workspace / "events.log"
    run(make(0))
    assert read_on(workspace, log, 4) == -signal.SIGKILL
    everything = run(make(3))
    assert read_on(workspace, log, 5) == -signal.SIGKILL
    assert read_on(workspace, log, 0) == 0
    assert [json.loads(line)["sequence"] for line in log.read_text("utf-8").splitlines()] == everything


def test_a_reader_that_waits_sees_every_run_that_others_make_meanwhile_once(workspace: Path) -> None:
    async def act() -> list[int]:
        writers = [
            await open_world(workspace, stores=place_of(workspace), clock=SystemClock()),
            await open_world(workspace, stores=place_of(workspace), clock=SystemClock()),
        ]
        seen: list[int] = []
        ended: set[str] = set()

        async def read() -> None:
            async for event in writers[0].runs().events(TENANT, wait=True):
                seen.append(event.sequence)
                ended.update({event.run_id} if event.event == "run.ended" else ())
                if len(ended) == 12:
                    return

        async def write(which: int) -> None:
            for number in range(6):
                await writers[which].invoke(request(900, f"req_{which}_{number}"))

        await asyncio.wait_for(asyncio.gather(read(), write(0), write(1)), timeout=60)
        for world in writers:
            await world.aclose()
        return seen

    seen = run(act())
    assert seen == list(range(1, len(seen) + 1))
