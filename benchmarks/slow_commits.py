"""Refunds of one tenant where each commit takes 20 ms, as on a slow disk or with a synchronous replica.

The server waits before each flush of its log (`commit_delay`); commits that arrive meanwhile share the flush, and no
run goes on before its own commit is on disk. One process makes the runs. The same refunds with the disk's own commits
take turns with them, and the CPU of the process says what the limit is: the server has the rest of the machine.
Then four worker processes drive a backlog of one tenant, and one of four tenants: all commits of a tenant add to the
same chains, so this shows what the lock on a chain costs while a commit takes 20 ms.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks import outside, queues
from benchmarks.bars import note, ratio, report_bar
from benchmarks.deployed import AMOUNT_INR, closed, new_folder, opened
from contextos.deployment.deployment import Deployment
from contextos.store.postgres.connections import connect_postgres
from contextos.workspace.engine.shared import SharedLimits
from tests.postgres import Database

AT_ONCE = 64
DELAY_MS = 20
MAX_DRIVES = SharedLimits().max_drives
SAMPLES = 21


async def measure(databases: list[Database], path: Path, *, runs: int, rounds: int) -> None:
    """Measure `runs` refunds in each round. `databases`: one for the disk's own commits, and two for slow ones."""
    disk, *slow = databases
    for database in slow:
        for setting, value in (("commit_delay", DELAY_MS * 1000), ("commit_siblings", 0)):
            await database.fetch(f"ALTER DATABASE {database.name} SET {setting} = {value}")
    compared = (slow[0], disk)
    commits_ms = [await raw_commit_ms(database) for database in compared]
    sides = [await opened(one.app, new_folder(path, f"commits_{one.name}")) for one in compared]
    numbers = count()
    rates: list[list[float]] = [[], []]
    used = []
    for taken in range(rounds + 1):
        for side, deployment in enumerate(sides):
            rate, cpu_s = await refunds_at_once(deployment, numbers, runs)
            if taken:
                rates[side].append(rate)
            if taken and not side:
                used.append((cpu_s * 1e3 / runs, cpu_s * rate / runs))
    label = f"one tenant, commits of {DELAY_MS} ms, {AT_ONCE} runs at once, runs/s"
    slowness = [1 / one for one in rates[1]]
    report_bar(label, median(rates[0]), 200, best=max(rates[0]), at_least=True, against=slowness)
    note(
        "a commit by hand there, and with the disk's own commits, p50", f"{commits_ms[0]:9.1f}, {commits_ms[1]:.1f} ms"
    )
    note("the same refunds with the disk's own commits, runs/s", f"{median(rates[1]):9.0f}")
    cpu_ms, cores = (median(one) for one in zip(*used, strict=True))
    note("CPU of the process for a run, and cores that it used", f"{cpu_ms:9.1f} ms, {cores:.2f}")
    for deployment in sides:
        await closed(deployment)
    await chains_of_a_tenant(slow[1], new_folder(path, "chains"), runs=runs, rounds=rounds)


async def chains_of_a_tenant(database: Database, path: Path, *, runs: int, rounds: int) -> None:
    """Let four workers drive runs of one tenant and of four in turns, where each commit takes 20 ms.

    A worker drives as many runs of one tenant as it drives in all, so that the two differ only in the chains.
    """
    backlog = await queues.opened_backlog(queues.OURS, database, path)
    kinds = (queues.TENANTS[:1], queues.TENANTS)
    rates: tuple[list[float], ...] = ([], [])
    for _ in range(rounds):
        for taken, tenants in zip(rates, kinds, strict=True):
            bound = {queues.PER_TENANT: str(MAX_DRIVES)}
            rate, _ = await queues.drained_by(4, queues.OURS, database, path, backlog, runs, tenants=tenants, **bound)
            taken.append(rate)
    label = f"four workers, commits of {DELAY_MS} ms: one tenant / four tenants, runs/s"
    middle, best = ratio(*rates)[0], max(rates[0]) / max(rates[1])
    report_bar(label, middle, 0.8, best=best, at_least=True, against=[1 / one for one in rates[1]])
    note("runs/s of one tenant, and of four", f"{median(rates[0]):9.0f}, {median(rates[1]):.0f}")
    await closed(backlog.deployment)


async def raw_commit_ms(database: Database) -> float:
    """Return the median time of a commit of one row, made alone, in milliseconds."""
    connection = await connect_postgres(database.owner)
    await connection.execute("CREATE TABLE public.by_hand (n bigint)")
    times = []
    for number in range(SAMPLES):
        start = time.perf_counter()
        await connection.execute("INSERT INTO public.by_hand VALUES ($1)", number)
        times.append((time.perf_counter() - start) * 1e3)
    await connection.close()
    return median(times)


async def refunds_at_once(deployment: Deployment, numbers: count[int], runs: int) -> tuple[float, float]:
    """Make so many refunds, `AT_ONCE` at a time. Returns runs/s, and the CPU seconds of this process."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with slots:
            view = await deployment.invoke(outside.request(next(numbers), AMOUNT_INR))
            assert view.state == "completed", view

    start, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(runs)))
    return runs / (time.perf_counter() - start), time.process_time() - cpu_s
