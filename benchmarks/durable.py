"""Refunds driven by the durable engine, beside the same workflow as DBOS steps, on one PostgreSQL server.

A run of ContextOS is queued with DBOS, dispatched as one workflow and journalled by ContextOS. The other side is the
workflow of `peer_dbos.py` in the peers' folder, whose steps DBOS records: started directly, which is the fastest that
DBOS offers, and from a queue. Each side is one process with many concurrent runs. Also shown: a process that drives its
runs itself and leaves only unfinished ones to the engine. The peer signs, seals and replays nothing.
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

from benchmarks.bars import note, ratio, report_bar, skip
from benchmarks.deployed import AMOUNT_INR, closed, deployed, new_folder, opened, timed
from benchmarks.peers import shared
from benchmarks.refund_pack import TENANT
from benchmarks.workers import AT_ONCE, Worker, rate
from contextos.contracts.journal import Advance
from contextos.store.shared.clock import SystemClock
from tests.postgres import Database, awaited

OURS, INVOKED = "durable engine", "invoked, no queue"
DIRECT, QUEUED = "DBOS steps", "DBOS steps from a queue"


def measure(databases: list[Database], path: Path, *, runs: int, rounds: int) -> None:
    """Measure the sides in alternating rounds. `databases`: one for each side, and one for the engine's queue."""
    label = "durable engine / the same workflow as DBOS steps, runs/s"
    missing = missing_for_peers()
    if missing:
        skip(label, missing)
        return
    ours, direct, queued, queue = databases
    place = new_folder(path, "durable")
    awaited(prepare(ours.app, place))
    sides = {
        OURS: ("benchmarks.durable", ours.app, "--queue", queue.owner),
        INVOKED: ("benchmarks.workers", ours.app),
        DIRECT: ("benchmarks.durable", direct.owner),
        QUEUED: ("benchmarks.durable", queued.owner, "--queued"),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    numbers = count(0, 10_000)
    for _ in range(rounds):
        for name, (module, url, *more) in sides.items():
            # One process at a time: idle ones would poll their queues.
            worker = Worker(module, url, place, "--number", str(next(numbers)), *more)
            try:
                rate([worker], AT_ONCE * 2)
                rates[name].append(rate([worker], runs))
            finally:
                worker.close()
    middle, best = compared(rates[OURS], rates[DIRECT])
    report_bar(label, middle, 3, best=best, at_least=True, against=[1 / one for one in rates[DIRECT]])
    for one, other in ((OURS, QUEUED), (INVOKED, DIRECT)):
        middle, best = compared(rates[one], rates[other])
        note(f"{one} / {other}, runs/s", f"{middle:9.2f}    best {best:9.2f}")
    for name, found_rates in rates.items():
        note(f"runs/s, {AT_ONCE} at once: {name}", f"{median(found_rates):9.0f}")


def compared(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """Return the median of the ratios of each round, and the ratio of the two best rounds."""
    return ratio(ours, theirs)[0], max(ours) / max(theirs)


def missing_for_peers() -> str:
    """Return why DBOS cannot run here, or an empty string."""
    if importlib.util.find_spec("dbos") is None:
        return "`dbos` is not installed; install the extra `durable`"
    if not (shared() / "peer_dbos.py").exists():
        return f"no `{shared() / 'peer_dbos.py'}`; set BENCH_PEERS"
    return ""


async def prepare(url: str, path: Path) -> None:
    """Put the pack in force."""
    await closed(await opened(url, path))


def run_counts() -> Iterator[int]:
    """Yield the number of runs of each input line, and print `done` after each."""
    print("ready", flush=True)
    while line := sys.stdin.readline():
        yield int(line)
        print("done", flush=True)


async def engine(url: str, queue: str, path: Path, number: int) -> None:
    """Drive refunds with the durable engine in this process, each request to its end."""
    from contextos.engine.durable.engine import DurableEngine, DurableLimits
    from contextos.engine.durable.queue_connection import migrate_queue_tables
    from contextos.engine.durable.workflows import QueueLimits

    deployment = deployed(url, path)
    done = asyncio.Semaphore(0)

    async def advance(_tenant: str, run: str) -> Advance:
        await timed(deployment, int(run.removeprefix("run_")))
        done.release()
        return Advance("completed", None)

    await asyncio.to_thread(migrate_queue_tables, queue, None)
    bounds = QueueLimits(max_drives=AT_ONCE, max_drives_per_tenant=AT_ONCE)
    driving = DurableEngine(
        advance, deployment.ports.stores, SystemClock(), url=queue, limits=DurableLimits(queue=bounds)
    )
    await driving.start()
    numbers, lines = count(number), run_counts()
    while (runs := await asyncio.to_thread(next, lines, None)) is not None:
        for _ in range(runs):
            driving.submit(TENANT, f"run_{next(numbers)}")
        for _ in range(runs):
            await done.acquire()
    await driving.stop()
    await closed(deployment)


class Outside:
    """The peer's tools without their disk, as on our side."""

    def __init__(self, policy: Any) -> None:
        self.policy_eval = policy.evaluate

    def orders_lookup(self, order_id: str) -> dict[str, Any]:
        return {"id": order_id, "total": 9900, "currency": "INR", "status": "delivered"}

    def issue_refund(self, run_id: str, order_id: str, amount: int) -> dict[str, Any]:
        return {"transaction_id": "txn_1", "amount": amount}


def steps(url: str, number: int, *, queued: bool) -> None:
    """Run the peer's workflow in this process."""
    sys.path[:0] = [str(shared())]
    peer, work = importlib.import_module("peer_dbos"), importlib.import_module("workload")
    from dbos import DBOS, DBOSPortableJSONSerializer

    peer.tools = Outside(work.Policy(0))
    DBOS(
        config={
            "name": "refunds",
            "system_database_url": url,
            "sys_db_pool_size": AT_ONCE,
            "log_level": "ERROR",
            "serializer": DBOSPortableJSONSerializer(),
            "application_version": "1",
        }
    )
    DBOS.launch()
    DBOS.register_queue("refunds", worker_concurrency=AT_ONCE, polling_interval_sec=0.01)

    def direct(number: int) -> None:
        check_record(DBOS.start_workflow(peer.support_refund, work.request(number, AMOUNT_INR)).get_result())

    def enqueued(number: int) -> Any:
        return DBOS.enqueue_workflow("refunds", peer.support_refund, work.request(number, AMOUNT_INR))

    numbers = count(number)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for runs in run_counts():
            chosen = [next(numbers) for _ in range(runs)]
            if not queued:
                list(pool.map(direct, chosen))
                continue
            for handle in list(pool.map(enqueued, chosen)):
                check_record(handle.get_result(polling_interval_sec=0.01))
    DBOS.destroy()


def check_record(record: dict[str, Any]) -> None:
    assert record["outputs"]["refund_amount"] == AMOUNT_INR, record


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--queue")
    parser.add_argument("--queued", action="store_true")
    options = parser.parse_args()
    if options.queue:
        asyncio.run(engine(options.url, options.queue, options.dir, options.number))
    else:
        steps(options.url, options.number, queued=options.queued)
