"""A process that reads what happened to the runs of a workspace, and kills itself with SIGKILL where its arguments say.

`python -m tests.e2e.subscriber_driver events WORKSPACE LOG KILL_AFTER` handles each event of the stream by one line in
LOG, goes on behind the last line that is there, and dies after KILL_AFTER lines of its own (0: it lives to the end).
With `subscribe` the process subscribes under the name `audit` to every event, and dies between the handler that wrote
the line and the move of the cursor; with 0 it lives until a file `stop` is in WORKSPACE.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from contextos.deployment.queries.run_events import RUN_EVENTS, RunEvent
from contextos.service.subscriptions import Subscriber
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.event_delivery import EventDelivery
from tests.world import TENANT, open_world, place_of, run


async def handle_events(workspace: Path, log: Path, kill_after: int) -> None:
    world = await open_world(workspace, stores=place_of(workspace), clock=SystemClock())
    after = last_cursor(log)
    handled = 0
    async for event in world.runs().events(TENANT, after=after):
        write_line(log, {"sequence": event.sequence, "cursor": event.cursor, "event": event.event, "run": event.run_id})
        handled += 1
        if handled == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
    await world.aclose()


async def subscribe(workspace: Path, log: Path, kill_after: int) -> None:
    world = await open_world(workspace, stores=place_of(workspace), clock=SystemClock())
    handled = 0

    async def handle(event: RunEvent) -> None:
        nonlocal handled
        began = time.monotonic()
        await asyncio.sleep(0.001)
        line = {"sequence": event.sequence, "run": event.run_id, "event": event.event, "by": os.getpid()}
        write_line(log, {**line, "began": began, "ended": time.monotonic()})
        handled += 1
        if handled == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    delivery = EventDelivery()
    await delivery.begin(Subscriber(world.deployment, TENANT, "audit", RUN_EVENTS, handle))
    (workspace / f"{os.getpid()}.ready").touch()
    while not (workspace / "stop").exists():  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.05)
    await delivery.stop()
    await world.aclose()


def last_cursor(log: Path) -> str:
    done = log.read_text("utf-8").splitlines() if log.exists() else []
    return json.loads(done[-1])["cursor"] if done else ""


def write_line(log: Path, line: dict[str, object]) -> None:
    """Append one line durably."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    _, what, workspace, log, number = sys.argv
    run({"events": handle_events, "subscribe": subscribe}[what](Path(workspace), Path(log), int(number)))
