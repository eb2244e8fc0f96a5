"""Worker processes that drive refunds over one PostgreSQL server, two beside one.

Server and workers share the cores of the machine, and each side makes the same number of runs in a round. A worker
opens a deployment once and then makes the requested number of refunds, `AT_ONCE` at a time. Its adapters are stubs,
because otherwise a disk that two services share would be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.bars import note, ratio, report_bar
from benchmarks.deployed import closed, deployed, new_folder, opened, timed
from tests.postgres import Database, awaited

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 16


class Worker:
    """A worker process. It is ready once constructed."""

    def __init__(self, module: str, url: str, path: Path, *more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--url", url, "--dir", str(path), *more],
            cwd=ROOT,
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read_line() == "ready"

    def write_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "a worker ended early"
        return line.strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def rate(workers: list[Worker], runs: int) -> float:
    """Return the runs per second of these workers together, `runs` in all."""
    start = time.perf_counter()
    for worker in workers:
        worker.write_line(str(runs // len(workers)))
    for worker in workers:
        worker.read_line()
    return runs / (time.perf_counter() - start)


def measure(database: Database, path: Path, *, runs: int, rounds: int) -> None:
    """Measure two workers and one, in turns."""
    folders = [new_folder(path, f"worker{number}") for number in range(2)]
    awaited(prepare(database.app, folders[0]))
    workers = [
        Worker("benchmarks.workers", database.app, folder, "--number", str(number * 100_000))
        for number, folder in enumerate(folders)
    ]
    alone, together = [], []
    try:
        for number in range(rounds + 1):
            one, two = rate(workers[:1], runs), rate(workers, runs)
            if number:
                alone.append(one)
                together.append(two)
    finally:
        for worker in workers:
            worker.close()
    slowness = [1 / one for one in alone]
    report_bar(
        "two workers / one, runs/s",
        ratio(together, alone)[0],
        1.3,
        best=max(together) / max(alone),
        at_least=True,
        against=slowness,
    )
    note("runs/s of one worker and of two", f"{median(alone):9.0f}, {median(together):.0f}; {os.cpu_count()} cores")


async def prepare(url: str, path: Path) -> None:
    """Put the pack in force."""
    await closed(await opened(url, path))


async def work(url: str, path: Path, number: int) -> None:
    """Serve as a worker: each input line is a number of refunds, each output line reports that they are done."""
    deployment = deployed(url, path)
    numbers = count(number)
    free = asyncio.Semaphore(AT_ONCE)

    async def refund() -> None:
        async with free:
            await timed(deployment, next(numbers))

    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await asyncio.gather(*(refund() for _ in range(int(line))))
        print("done", flush=True)
    await closed(deployment)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--number", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(work(options.url, options.dir, options.number))
