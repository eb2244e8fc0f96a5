"""Worker processes on one shared backlog of received runs, on PostgreSQL: two and four of them beside one.

A worker is a process with the engine of `contextos worker`: it claims due runs in the store. The server and all workers
share the cores of the machine, and all work on one backlog, whose runs belong to four tenants. The other side of the
last bar is the workflow of `peer_dbos.py` in the peers' folder, its steps recorded by DBOS: four processes on one DBOS
queue, on the same server. The peer signs, seals and replays nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import queues
from benchmarks.bars import note, ratio, report_bar, skip
from benchmarks.deployed import AMOUNT_INR, closed, new_folder
from benchmarks.peers import shared
from tests.postgres import Database, awaited

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = (1, 2, 4)
PEER = "four workers / the same workflow as DBOS steps from its queue, runs/s"


def measure(databases: list[Database], path: Path, *, runs: int, rounds: int) -> None:
    """Measure the workers and, if it is there, the peer. `databases`: one for each side."""
    ours, theirs = databases
    folder = new_folder(path, "workers")
    rates = awaited(measured(ours, folder, runs=runs, rounds=rounds))
    if missing := missing_for_peers():
        skip(PEER, missing)
        return
    peers = awaited(peer_rates(theirs, runs=runs, rounds=rounds))
    middle, best = ratio(rates, peers)[0], max(rates) / max(peers)
    report_bar(PEER, middle, 2, best=best, at_least=True, against=[1 / one for one in peers])
    note("runs/s of four workers, and of four DBOS processes", f"{median(rates):9.0f}, {median(peers):.0f}")


async def measured(database: Database, path: Path, *, runs: int, rounds: int) -> list[float]:
    """Measure one, two and four workers in turns, and report the bars.

    Returns the runs/s of four workers while the runs are received, as the peer receives its own.
    """
    backlog = await queues.opened_backlog(queues.OURS, database, path)
    rates: dict[int, list[float]] = {number: [] for number in NUMBERS}
    spent: dict[int, list[float]] = {number: [] for number in NUMBERS}
    for _ in range(rounds):
        for number in NUMBERS:
            rate, transactions = await queues.drained_by(number, queues.OURS, database, path, backlog, runs)
            rates[number].append(rate)
            spent[number].append(transactions)
    slowness = [1 / one for one in rates[1]]
    for number, bar in ((2, 1.4), (4, 1.4)):
        report_bar(
            f"{number} worker processes / one on one backlog, runs/s",
            ratio(rates[number], rates[1])[0],
            bar,
            best=max(rates[number]) / max(rates[1]),
            at_least=True,
            against=slowness,
        )
    label = "4 worker processes / one on one backlog, transactions a run"
    report_bar(label, ratio(spent[4], spent[1])[0], 1.2, best=min(spent[4]) / min(spent[1]))
    waits, idle = await queues.pick_ups(queues.OURS, database, path, backlog)
    report_bar("a run that another process received, to its drive, p50", median(waits), 50, " ms", best=min(waits))
    report_bar("an idle worker, transactions a second", idle, 2)
    rows = ", ".join(f"{median(rates[number]):.0f}" for number in NUMBERS)
    note("runs/s of one, two and four workers", f"{rows}; {os.cpu_count()} cores with the server")
    rows = ", ".join(f"{median(spent[number]):.1f}" for number in NUMBERS)
    note("transactions a run of one, two and four workers", rows)
    queued = await queues.received_and_driven(4, database, path, backlog, runs=runs, rounds=rounds)
    await closed(backlog.deployment)
    return queued


def missing_for_peers() -> str:
    """Return why DBOS cannot run here, or an empty string."""
    if importlib.util.find_spec("dbos") is None:
        return "`dbos` is not installed"
    if not (shared() / "peer_dbos.py").exists():
        return f"no `{shared() / 'peer_dbos.py'}`; set BENCH_PEERS"
    return ""


async def peer_rates(database: Database, *, runs: int, rounds: int) -> list[float]:
    """Return the runs/s of four peer processes on one queue, in each round."""
    line = [sys.executable, "-m", "benchmarks.workers", "--url", database.owner]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # The first one makes the tables and puts the workflows into the queue.
    processes: list[subprocess.Popen[str]] = []
    for _ in range(4):
        processes.append(await asyncio.to_thread(subprocess.Popen, line, cwd=ROOT, env=os.environ, **pipes))
        assert await asyncio.to_thread(read_line, processes[-1]) == "ready"
    rates = []
    for taken in range(rounds + 1):
        start = time.perf_counter()
        stdin = processes[0].stdin
        assert stdin is not None
        stdin.write(f"{runs}\n")
        stdin.flush()
        assert await asyncio.to_thread(read_line, processes[0]) == "done"
        if taken:
            rates.append(runs / (time.perf_counter() - start))
    for process in reversed(processes):
        process.communicate(timeout=60)
    return rates


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class Outside:
    """The peer's tools without their disk, as on our side."""

    def __init__(self, policy: Any) -> None:
        self.policy_eval = policy.evaluate

    def orders_lookup(self, order_id: str) -> dict[str, Any]:
        return {"id": order_id, "total": 9900, "currency": "INR", "status": "delivered"}

    def issue_refund(self, run_id: str, order_id: str, amount: int) -> dict[str, Any]:
        return {"transaction_id": "txn_1", "amount": amount}


def steps(url: str) -> None:
    """Run the peer's workflows from its queue. Each input line is a number of them to put in and wait for."""
    sys.path[:0] = [str(shared())]
    peer, work = importlib.import_module("peer_dbos"), importlib.import_module("workload")
    from dbos import DBOS, DBOSPortableJSONSerializer

    peer.tools = Outside(work.Policy(0))
    DBOS(
        config={
            "name": "refunds",
            "system_database_url": url,
            "sys_db_pool_size": queues.AT_ONCE,
            "log_level": "ERROR",
            "serializer": DBOSPortableJSONSerializer(),
            "application_version": "1",
        }
    )
    DBOS.launch()
    DBOS.register_queue("refunds", worker_concurrency=queues.AT_ONCE, polling_interval_sec=0.05)
    numbers = count()
    print("ready", flush=True)
    while line := sys.stdin.readline():
        requests = [work.request(next(numbers), AMOUNT_INR) for _ in range(int(line))]
        handles = [DBOS.enqueue_workflow("refunds", peer.support_refund, request) for request in requests]
        for handle in handles:
            record = handle.get_result(polling_interval_sec=0.05)
            assert record["outputs"]["refund_amount"] == AMOUNT_INR, record
        print("done", flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    steps(parser.parse_args().url)
