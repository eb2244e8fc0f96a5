"""Four ways to share one backlog between worker processes on PostgreSQL: `python -m benchmarks.queues`.

The claims of this store, and the queues of procrastinate, pgqueuer and DBOS, which hold tenant and run and nothing
else. Each drives the same received refunds with the same code, so only the way to the next run differs. All workers are
processes of their own over one server with fsync, on the cores of this machine. `transactions a run` counts everything
in the database, also those of the run itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, note
from benchmarks.deployed import AMOUNT_INR, closed, deployed, new_folder
from benchmarks.refund_pack import TENANT
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Advance
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.deployment import Deployment, wake_orphans
from contextos.trust.seal import seal
from tests.postgres import Database, awaited, own_server

ROOT = Path(__file__).resolve().parents[1]
OURS, ENGINES = "claims", ("claims", "procrastinate", "pgqueuer", "dbos")
AT_ONCE = 8
ENDED = "ended"
WARM_RUNS = 24
"""Runs of each worker before it is measured: the first ones load code, packs and policies."""
PER_TENANT = "BENCH_PER_TENANT"
"""How many runs of a tenant a worker drives at once, if it is not `AT_ONCE`."""
HOLD = "BENCH_HOLD"
"""Set in a worker that is to be killed: it begins a run and never goes on."""
DONE = "SELECT count(*) AS n FROM contextos.runs WHERE wake_at_us <> 0"
TRANSACTIONS = "SELECT sum(xact_commit + xact_rollback)::bigint AS n FROM pg_stat_database WHERE datname = '{0}'"
SILENT_S = 10
TENANTS = (TENANT, "tenant_b", "tenant_c", "tenant_d")
COLUMNS = (
    "runs/s of 1, 2, 4 workers",
    "transactions a run",
    "idle, transactions/s",
    "pick-up p50",
    "taken over after SIGKILL",
    "bound per tenant in all",
    "rate per tenant",
    "private names",
)
FACTS = {
    "claims": ("yes", "yes", "0"),
    "procrastinate": ("1 (a lock)", "no", "0"),
    "pgqueuer": ("no", "no", "0"),
    "dbos": ("yes", "yes", "2: recovery, pickles"),
}
"""What their documentation offers. Rescue of stalled jobs is own code with procrastinate and built in with pgqueuer."""
Drive = Callable[[str, str], Awaitable[Advance]]


class Process:
    """A worker process, which has opened its deployment. It drives from `begin` to `end`, as often as it is told."""

    def __init__(self, engine: str, database: Database, path: Path, **more: str) -> None:
        line = [sys.executable, "-m", "benchmarks.queues", "--engine", engine, "--url", database.app]
        self._process = subprocess.Popen(
            [*line, "--owner", database.owner, "--dir", str(path)],
            cwd=ROOT,
            env=os.environ | more,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def begin(self) -> None:
        self._tell("begin")

    def end(self) -> None:
        """Let it finish its drives. Its last line is then `ENDED`."""
        self._tell("end")

    def ended(self) -> None:
        """End, and pass over what it printed."""
        self.end()
        while self.line() != ENDED:
            pass

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End the process: its input ends. What it printed and nobody read is read, so that it can end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.stdout is not None
        while self._process.stdout.readline():
            pass
        self._process.wait(30)
        self._process.stdout.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


def started(engine: str, database: Database, path: Path, number: int, **more: str) -> list[Process]:
    processes = [Process(engine, database, path, **more) for _ in range(number)]
    for process in processes:
        process.begin()
    return processes


class Backlog:
    """Receives runs, and puts them into the queue of an engine that has one."""

    def __init__(self, engine: str, database: Database, deployment: Deployment) -> None:
        self._database, self.deployment, self._engine = database, deployment, engine
        self._numbers = count()
        self._put: Callable[[list[str]], Awaitable[Any]] | None = None

    async def open(self) -> None:
        if self._engine != OURS:
            self._put = await PUTS[self._engine](self._database.owner)

    async def receive(self, number: int, tenants: Sequence[str] = TENANTS) -> list[str]:
        """Receive `number` runs of these tenants in turns. Returns them as `tenant/run`."""
        slots = asyncio.Semaphore(16)

        async def one() -> str:
            async with slots:
                number = next(self._numbers)
                tenant = tenants[number % len(tenants)]
                body = outside.request(number, AMOUNT_INR) | {"mode": "long_running", "tenant_id": tenant}
                return f"{tenant}/{(await self.deployment.invoke(body)).run_id}"

        runs = list(await asyncio.gather(*(one() for _ in range(number))))
        if self._put is not None:
            await self._put(runs)
        return runs

    async def transactions(self) -> int:
        # A session reports what it did when it is idle for a second, or ends.
        await asyncio.sleep(1.5)
        return int((await self._database.fetch(TRANSACTIONS.format(self._database.name)))[0]["n"])

    async def drained(self) -> int:
        """Wait until every run has ended. Returns the number of questions that this took."""
        for asked in count(1):
            if not (await self._database.fetch(DONE))[0]["n"]:
                return asked
            await asyncio.sleep(0.1)
        raise AssertionError


async def opened_backlog(engine: str, database: Database, path: Path) -> Backlog:
    """Put the pack in force in every tenant, and return an empty backlog."""
    deployment = deployed(database.app, path, tenants=TENANTS)
    for tenant in TENANTS:
        body = refund_pack.pack(0)
        body["pack_meta"]["tenant"] = tenant
        envelope = seal(PACK_TYPE, canonical(body), deployment.ports.keys, "pack")
        await refund_pack.put_in_force(deployment, tenant, envelope)
    backlog = Backlog(engine, database, deployment)
    await backlog.open()
    return backlog


async def drained_by(
    workers: int,
    engine: str,
    database: Database,
    path: Path,
    backlog: Backlog,
    runs: int,
    *,
    tenants: Sequence[str] = TENANTS,
    **more: str,
) -> tuple[float, float]:
    """Receive a backlog of these tenants and let so many warm worker processes drive it. `more` is their environment.

    Returns runs/s, and transactions a run.
    """
    processes = [await asyncio.to_thread(Process, engine, database, path, **more) for _ in range(workers)]
    taken, spent = 0.0, 0
    for number in (WARM_RUNS * workers, runs):
        await backlog.receive(number, tenants)
        before, start = await backlog.transactions(), time.perf_counter()
        for process in processes:
            process.begin()
        asked = await backlog.drained()
        taken = time.perf_counter() - start
        for process in processes:
            await asyncio.to_thread(process.ended)
        # Each question is a connection of its own.
        spent = await backlog.transactions() - before - asked
    for process in processes:
        await asyncio.to_thread(process.close)
    return runs / taken, spent / runs


async def received_and_driven(
    workers: int, database: Database, path: Path, backlog: Backlog, *, runs: int, rounds: int
) -> list[float]:
    """Let so many warm worker processes drive runs while they are received. Returns the runs/s of each round."""
    processes = await asyncio.to_thread(started, OURS, database, path, workers)
    await backlog.receive(WARM_RUNS * workers)
    await backlog.drained()
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        await backlog.receive(runs)
        await backlog.drained()
        rates.append(runs / (time.perf_counter() - start))
    for process in processes:
        await asyncio.to_thread(process.close)
    return rates


async def pick_ups(engine: str, database: Database, path: Path, backlog: Backlog) -> tuple[list[float], float]:
    """Return the ms from the receipt of a run to its drive by one of two workers, and what one costs while it idles,
    in transactions a second.
    """
    processes = await asyncio.to_thread(started, engine, database, path, 2)
    await asyncio.sleep(8)
    before, start = await backlog.transactions(), time.perf_counter()
    await asyncio.sleep(10)
    idle = (await backlog.transactions() - before) / 2 / (time.perf_counter() - start)
    lines: asyncio.Queue[str] = asyncio.Queue()
    readers = [asyncio.ensure_future(read_lines(process, lines)) for process in processes]
    waits = []
    for _ in range(25):
        (run,) = await backlog.receive(1)
        at_s = time.time()
        while not (line := await lines.get()).startswith(run):
            pass
        waits.append((float(line.split()[1]) - at_s) * 1e3)
        await asyncio.sleep(0.13)
    for process in processes:
        process.end()
    await asyncio.gather(*readers)
    for process in processes:
        await asyncio.to_thread(process.close)
    return waits, idle


async def measured(engine: str, database: Database, path: Path, *, runs: int, rounds: int) -> list[str]:
    """Measure one engine. Returns the cells of its row."""
    backlog = await opened_backlog(engine, database, path)
    rates, spent = [], []
    for workers in (1, 2, 4):
        seen = [await drained_by(workers, engine, database, path, backlog, runs) for _ in range(rounds)]
        rates.append(median(rate for rate, _ in seen))
        spent.append(median(transactions for _, transactions in seen))
    waits, idle = await pick_ups(engine, database, path, backlog)
    recovered_s = await recovery(engine, database, path, backlog)
    await closed(backlog.deployment)
    return [
        ", ".join(f"{rate:.0f}" for rate in rates),
        ", ".join(f"{transactions:.1f}" for transactions in spent),
        f"{idle:.1f}",
        f"{median(waits):.1f} ms",
        "by nobody" if recovered_s is None else f"{recovered_s:.1f} s",
        *FACTS[engine],
    ]


async def read_lines(process: Process, lines: asyncio.Queue[str]) -> None:
    while (line := await asyncio.to_thread(process.line)) not in ("", ENDED):
        await lines.put(line)


async def recovery(engine: str, database: Database, path: Path, backlog: Backlog) -> float | None:
    """Return the seconds from a SIGKILL to the moment at which another worker begins the run. None: never.

    DBOS queues the workflows of a dead executor again by a private function, or by a service outside the deployment.
    """
    if engine == "dbos":
        return None
    (held,) = await asyncio.to_thread(lambda: started(engine, database, path, 1, **{HOLD: "1"}))
    (run,) = await backlog.receive(1)
    assert (await asyncio.to_thread(held.line)).startswith(run)
    (other,) = await asyncio.to_thread(started, engine, database, path, 1)
    await asyncio.sleep(3)
    at_s = time.time()
    await asyncio.to_thread(held.kill)
    reading = asyncio.ensure_future(asyncio.to_thread(other.line))
    done, _ = await asyncio.wait([reading], timeout=90)
    await asyncio.to_thread(other.close)
    line = await reading
    return float(line.split()[1]) - at_s if done and line.startswith(run) else None


async def work(engine: str, url: str, owner: str, path: Path) -> None:
    """Serve as a worker from a line `begin` to a line `end`, until the input ends. Prints each run that it begins."""
    deployment = deployed(url, path, tenants=TENANTS)

    async def drive(tenant_id: str, run_id: str) -> Advance:
        print(f"{tenant_id}/{run_id}", time.time(), flush=True)
        if os.environ.get(HOLD):
            await asyncio.sleep(600)
        return await deployment.advance(tenant_id, run_id)

    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    print("ready", flush=True)
    while await told.readline():
        stop = asyncio.Event()
        working = asyncio.ensure_future(WORKERS[engine](deployment, url, owner, drive, stop))
        await told.readline()
        stop.set()
        await working
        print(ENDED, flush=True)
    await closed(deployment)


async def work_claims(deployment: Deployment, url: str, _owner: str, drive: Drive, stop: asyncio.Event) -> None:
    from contextos.contracts.ports.claims import ClaimLimits
    from contextos.store.postgres.claims import PostgresClaims
    from contextos.workspace.engine.shared import SharedEngine, SharedLimits

    limits = ClaimLimits(per_tenant=int(os.environ.get(PER_TENANT, AT_ONCE)))
    ports = deployment.ports
    claims = PostgresClaims(url, ports.owner, ports.clock, limits)
    engine = SharedEngine(
        drive,
        ports.stores,
        ports.clock,
        claims,
        on_dead=lambda _: None,
        wake_orphans=partial(wake_orphans, deployment),
        limits=SharedLimits(claims=limits),
    )
    await engine.start()
    await stop.wait()
    await engine.stop()


def procrastinate_app(owner: str) -> Any:
    from procrastinate import App, PsycopgConnector

    return App(connector=PsycopgConnector(conninfo=owner, min_size=1, max_size=4))


async def work_procrastinate(_d: Deployment, _url: str, owner: str, drive: Drive, stop: asyncio.Event) -> None:
    app = procrastinate_app(owner)

    @app.task(name="drive")
    async def drive_task(tenant: str, run: str) -> None:
        await drive(tenant, run)

    async def rescue() -> None:
        while True:
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=SILENT_S):
                await app.job_manager.retry_job(job)
            await asyncio.sleep(1)

    async with app.open_async():
        worker = asyncio.ensure_future(
            app.run_worker_async(
                concurrency=AT_ONCE,
                fetch_job_polling_interval=1.0,
                delete_jobs="successful",
                install_signal_handlers=False,
                update_heartbeat_interval=SILENT_S / 3,
                stalled_worker_timeout=SILENT_S,
                shutdown_graceful_timeout=1,
            )
        )
        rescuing = asyncio.ensure_future(rescue())
        await stop.wait()
        rescuing.cancel()
        worker.cancel()
        await asyncio.gather(worker, rescuing, return_exceptions=True)


async def put_procrastinate(owner: str) -> Callable[[list[str]], Awaitable[Any]]:
    app = procrastinate_app(owner)
    await app.open_async()
    await app.schema_manager.apply_schema_async()

    async def put(runs: list[str]) -> None:
        await app.configure_task("drive").batch_defer_async(
            *(dict(zip(("tenant", "run"), run.split("/"), strict=True)) for run in runs)
        )

    return put


async def work_pgqueuer(_d: Deployment, _url: str, owner: str, drive: Drive, stop: asyncio.Event) -> None:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver

    connection = await asyncpg.connect(owner)
    queue = PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint("drive")
    async def drive_job(job: Any) -> None:
        tenant, run = job.payload.decode().split("/")
        await drive(tenant, run)

    async def stopped() -> None:
        await stop.wait()
        queue.shutdown.set()

    stopping = asyncio.ensure_future(stopped())
    await queue.run(
        dequeue_timeout=timedelta(seconds=1),
        batch_size=AT_ONCE // 2,
        max_concurrent_tasks=AT_ONCE,
        heartbeat_timeout=timedelta(seconds=SILENT_S),
    )
    await stopping
    await connection.close()


async def put_pgqueuer(owner: str) -> Callable[[list[str]], Awaitable[Any]]:
    import asyncpg
    from pgqueuer.queries import Queries

    queries = Queries.from_asyncpg_connection(await asyncpg.connect(owner))
    await queries.install()

    async def put(runs: list[str]) -> None:
        await queries.enqueue(["drive"] * len(runs), [run.encode() for run in runs], [0] * len(runs))

    return put


async def work_dbos(_d: Deployment, _url: str, owner: str, drive: Drive, stop: asyncio.Event) -> None:
    from dbos import DBOS

    loop = asyncio.get_running_loop()

    async def drive_workflow(tenant: str, run: str) -> str:
        async def called() -> str:
            return (await drive(tenant, run)).state

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(), loop))

    def launch() -> None:
        from dbos import DBOSPortableJSONSerializer

        DBOS(
            config={
                "name": "drives",
                "application_version": "1",
                "system_database_url": owner,
                "log_level": "ERROR",
                "serializer": DBOSPortableJSONSerializer(),
            }
        )
        DBOS.workflow(name="drive")(drive_workflow)
        DBOS.launch()
        DBOS.register_queue(
            "runs", worker_concurrency=AT_ONCE, partition_worker_concurrency=AT_ONCE, polling_interval_sec=0.05
        )

    await asyncio.to_thread(launch)
    await stop.wait()
    await asyncio.to_thread(DBOS.destroy)


async def put_dbos(owner: str) -> Callable[[list[str]], Awaitable[Any]]:
    from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer

    await asyncio.to_thread(DBOS.migrate, owner)
    client = DBOSClient(system_database_url=owner, serializer=DBOSPortableJSONSerializer(), application_name="drives")

    def enqueue(run: str) -> None:
        options: Any = {
            "workflow_name": "drive",
            "queue_name": "runs",
            "queue_partition_key": run.split("/")[0],
            "deduplication_id": run,
        }
        client.enqueue(options, *run.split("/"))

    async def put(runs: list[str]) -> None:
        for run in runs:
            await asyncio.to_thread(enqueue, run)

    return put


WORKERS = {"claims": work_claims, "procrastinate": work_procrastinate, "pgqueuer": work_pgqueuer, "dbos": work_dbos}
PUTS = {"procrastinate": put_procrastinate, "pgqueuer": put_pgqueuer, "dbos": put_dbos}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(ENGINES))
    parser.add_argument("--engine")
    parser.add_argument("--url")
    parser.add_argument("--owner")
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    if options.engine:
        asyncio.run(work(options.engine, options.url, options.owner, options.dir))
        return
    rows = []
    with folder() as name, own_server(fsync=True) as server:
        for engine in options.only.split(","):
            if engine != OURS and find_spec(engine) is None:
                note(engine, "is not installed: `pip install procrastinate pgqueuer dbos`")
                continue
            path = new_folder(Path(name), engine)
            runs, rounds = (100, 1) if options.quick else (300, 3)
            cells = awaited(measured(engine, server.database(), path, runs=runs, rounds=rounds))
            rows.append(f"| {' | '.join((engine, *cells))} |")
            note(engine, "measured")
    print(f"| | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
