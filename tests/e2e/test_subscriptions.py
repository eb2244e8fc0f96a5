"""A subscriber survives crashes: every event is delivered at least once and in order per run, whatever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.subscriptions import SUBSCRIPTIONS
from contextos.contracts.journal import INDEX
from contextos.deployment.queries.run_events import RUN_EVENTS, RunEvent
from contextos.service.subscriptions import Subscriber
from contextos.store.shared.clock import SystemClock
from tests.processes import ended, whole_lines
from tests.world import TENANT, open_world, place_of, publish_world, request, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 200
KILLS = (1, 7, 40)


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workspace that several processes open, in which the subscriber `audit` is registered."""
    if request.param == "postgresql":
        (tmp_path / "place").write_text(str(request.getfixturevalue("database").app), "utf-8")
    run(publish_world(tmp_path))

    async def nothing(_event: RunEvent) -> None: ...

    async def register() -> None:
        world = await open_world(tmp_path, stores=place_of(tmp_path), clock=SystemClock())
        await Subscriber(world.deployment, TENANT, "audit", RUN_EVENTS, nothing).register()
        await world.aclose()

    run(register())
    return tmp_path


async def make_events(workspace: Path) -> list[int]:
    """Make runs until there are enough events, and return the numbers of all."""
    world = await open_world(workspace, stores=place_of(workspace), clock=SystemClock())
    store = world.stores.tenant(TENANT)
    number = 0
    while await store.length(INDEX) < EVENTS:
        number += 1
        await world.invoke(request(4200 if number % 5 == 0 else 900, f"req_{number}"))
    numbers = [line.seq for line in await store.read(INDEX)]
    await world.aclose()
    return numbers


def started(workspace: Path, log: Path, kill_after: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.e2e.subscriber_driver", "subscribe", str(workspace), str(log)]
    return ended(subprocess.Popen([*command, str(kill_after)], cwd=ROOT))


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(log)]


def stop_when(workspace: Path, log: Path, numbers: list[int], *processes: subprocess.Popen[bytes]) -> None:
    """Wait until every event was handled, then end the processes."""
    until = time.monotonic() + 120
    while {one["sequence"] for one in lines(log)} != set(numbers) and time.monotonic() < until:
        time.sleep(0.05)
    (workspace / "stop").touch()
    for process in processes:
        assert process.wait(30) == 0


def end_lease(workspace: Path) -> None:
    """Let the next process deliver at once: on PostgreSQL it would wait for the lease of the one that was killed."""

    if place_of(workspace) == "sqlite":
        return  # the lock of a process that was killed says that it is gone

    async def act() -> None:
        world = await open_world(workspace, stores=place_of(workspace), clock=SystemClock())

        async def nothing(_event: RunEvent) -> None: ...

        gone = Subscriber(world.deployment, TENANT, "audit", RUN_EVENTS, nothing)
        gone._stored = await SUBSCRIPTIONS.one(world.stores.tenant(TENANT), "audit")
        await gone.release()
        await world.aclose()

    run(act())


def per_run(handled: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for one in handled:
        if one["sequence"] not in found[one["run"]]:
            found[one["run"]].append(one["sequence"])
    return found


def test_what_a_crash_interrupts_between_handler_and_cursor_is_delivered_again_and_nothing_is_lost(
    workspace: Path,
) -> None:
    numbers = run(make_events(workspace))
    log = workspace / "handled.log"
    for kill_after in KILLS:
        end_lease(workspace)
        with started(workspace, log, kill_after) as process:
            assert process.wait(60) == -signal.SIGKILL
    assert len(lines(log)) == sum(KILLS)
    end_lease(workspace)
    with started(workspace, log, 0) as process:
        stop_when(workspace, log, numbers, process)

    handled = lines(log)
    times = Counter(one["sequence"] for one in handled)
    assert sorted(times) == numbers, "nothing is lost"
    repeated = {number for number, count in times.items() if count > 1}
    assert len(handled) - len(numbers) == len(KILLS)
    assert len(repeated) == len(KILLS), "each crash repeats the one event whose cursor had not moved"
    for run_id, sequence in per_run(handled).items():
        assert sequence == sorted(sequence), f"`{run_id}` is out of order"


def test_of_two_processes_with_one_name_one_delivers_at_a_time(workspace: Path) -> None:
    log = workspace / "handled.log"
    with started(workspace, log, 0) as first, started(workspace, log, 0) as second:
        while len(list(workspace.glob("*.ready"))) < 2:
            time.sleep(0.05)
        numbers = run(make_events(workspace))
        stop_when(workspace, log, numbers, first, second)
    handled = sorted(lines(log), key=lambda one: one["began"])
    assert [one["sequence"] for one in handled] == numbers, "each once, in order"
    assert all(one["ended"] <= after["began"] for one, after in pairwise(handled))
