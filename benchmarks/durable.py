"""Refunds as drives of the durable engine, beside the same workflow as DBOS steps, both on one PostgreSQL server.

Ours is queued with DBOS, dispatched as one workflow a run, and journalled by us. Beside it stands the workflow of
`peer_dbos.py` in the folder of the peers, whose steps DBOS records: started directly, which is the fastest that DBOS
has, and from a queue as ours is. Each side is one process, with the same number of runs at once. The peer signs,
seals and replays nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bars import judge, note, ratio, skip
from benchmarks.deployed import AMOUNT_INR, closed, deployed, made, opened, timed
from benchmarks.peers import shared
from benchmarks.refund_pack import TENANT
from benchmarks.workers import Worker, rate
from contextos.contracts.journal import Advance
from contextos.store.clock import SystemClock
from tests.postgres import Database, awaited

AT_ONCE = 16
OURS, DIRECT, QUEUED = "durable engine", "DBOS steps", "DBOS steps from a queue"


def measure(databases: list[Database], path: Path, *, runs: int, rounds: int) -> None:
    """All sides take their turn in each round. `databases`: one for each side, and one for the engine's queue."""
    label = "durable engine / the same workflow as DBOS steps, runs/s"
    missing = missing_for_peers()
    if missing:
        skip(label, missing)
        return
    ours, direct, queued, queue = databases
    folders = [made(path, name) for name in ("durable", "direct", "queued")]
    awaited(prepare(ours.app, folders[0]))
    sides = {
        OURS: Worker("benchmarks.durable", ours.app, folders[0], "--queue", queue.owner),
        DIRECT: Worker("benchmarks.durable", direct.owner, folders[1]),
        QUEUED: Worker("benchmarks.durable", queued.owner, folders[2], "--queued"),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for number in range(rounds + 1):
            for name, side in sides.items():
                found = rate([side], runs)
                if number:
                    rates[name].append(found)
    finally:
        for side in sides.values():
            side.close()
    for name in (DIRECT, QUEUED):
        middle, best = ratio(rates[OURS], rates[name])[0], max(rates[OURS]) / max(rates[name])
        if name == DIRECT:
            judge(label, middle, 3, best=best, at_least=True, against=[1 / one for one in rates[name]])
        else:
            note("durable engine / the same DBOS steps from a queue, runs/s", f"{middle:9.2f}    best {best:9.2f}")
    for name, found_rates in rates.items():
        note(f"runs/s, {AT_ONCE} at once: {name}", f"{median(found_rates):9.0f}")


def missing_for_peers() -> str:
    """What stands in the way of running DBOS here; empty if nothing does."""
    if importlib.util.find_spec("dbos") is None:
        return "`dbos` is not installed; install the extra `durable`"
    if not (shared() / "peer_dbos.py").exists():
        return f"no `{shared() / 'peer_dbos.py'}`; set BENCH_PEERS"
    return ""


async def prepare(url: str, path: Path) -> None:
    """Put the pack in force."""
    await closed(*await opened(url, path))


def told() -> Iterator[int]:
    """How many runs, each time that the benchmark says so; a line goes out when they are done."""
    print("ready", flush=True)
    while line := sys.stdin.readline():
        yield int(line)
        print("done", flush=True)


async def engine(url: str, queue: str, path: Path) -> None:
    """The durable engine in a process of its own: what drives a run takes its request to the end."""
    from contextos.engine.durable import DurableEngine, DurableLimits
    from contextos.engine.reach import migrate
    from contextos.engine.workflows import QueueLimits

    deployment, shop = deployed(url, path)
    done = asyncio.Semaphore(0)

    async def advance(_tenant: str, run: str) -> Advance:
        await timed(deployment, int(run.removeprefix("run_")))
        done.release()
        return Advance("completed", None)

    await asyncio.to_thread(migrate, queue, None)
    bounds = QueueLimits(max_drives=AT_ONCE, max_drives_per_tenant=AT_ONCE, polling_interval_ms=10)
    driving = DurableEngine(
        advance, deployment.ports.stores, SystemClock(), url=queue, limits=DurableLimits(queue=bounds)
    )
    await driving.start()
    numbers, lines = count(), told()
    while (runs := await asyncio.to_thread(next, lines, None)) is not None:
        for _ in range(runs):
            driving.submit(TENANT, f"run_{next(numbers)}")
        for _ in range(runs):
            await done.acquire()
    await driving.stop()
    await closed(deployment, shop)


def steps(url: str, path: Path, *, queued: bool) -> None:
    """The peer's workflow in a process of its own."""
    sys.path[:0] = [str(shared())]
    peer, work = importlib.import_module("peer_dbos"), importlib.import_module("workload")
    from dbos import DBOS, DBOSPortableJSONSerializer

    peer.tools = work.Tools(str(path), work.Policy(0))
    DBOS(config={
        "name": "refunds", "system_database_url": url, "sys_db_pool_size": AT_ONCE, "log_level": "ERROR",
        "serializer": DBOSPortableJSONSerializer(), "application_version": "1",
    })  # fmt: skip
    DBOS.launch()
    DBOS.register_queue("refunds", worker_concurrency=AT_ONCE, polling_interval_sec=0.01)

    def direct(number: int) -> None:
        checked(DBOS.start_workflow(peer.support_refund, work.request(number, AMOUNT_INR)).get_result())

    def enqueued(number: int) -> Any:
        return DBOS.enqueue_workflow("refunds", peer.support_refund, work.request(number, AMOUNT_INR))

    numbers = count()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for runs in told():
            chosen = [next(numbers) for _ in range(runs)]
            if not queued:
                list(pool.map(direct, chosen))
                continue
            for handle in list(pool.map(enqueued, chosen)):
                checked(handle.get_result(polling_interval_sec=0.01))
    DBOS.destroy()


def checked(record: dict[str, Any]) -> None:
    assert record["outputs"]["refund_amount"] == AMOUNT_INR, record


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--queue")
    parser.add_argument("--queued", action="store_true")
    given = parser.parse_args()
    if given.queue:
        asyncio.run(engine(given.url, given.queue, given.dir))
    else:
        steps(given.url, given.dir, queued=given.queued)
