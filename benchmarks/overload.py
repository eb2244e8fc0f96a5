"""A quiet tenant beside busy ones: `python -m benchmarks.overload`.

The quiet tenant sends one refund after the other, alone and beside the busy tenants' load in turns. The turns are
short, so that other load on the machine affects both. Measured twice: beside one tenant with ten times as many clients
as `max_callers_per_tenant`, and beside five tenants with 128 clients each. A client sends one request after the other
and retries after the time that a refusal names. One process, SQLite, the defaults of `[pressure]`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, note, report_bar
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.deployment import Deployment
from contextos.errors import Overloaded
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import KeyRing, seal
from contextos.workspace.engine.admission_controller import AdmissionController

NOISY, QUIET = refund_pack.TENANT, "tenant_quiet"
LOAD = 10
TENANTS, CLIENTS = 5, 128
NUMBERS = count()


class Crowd(NamedTuple):
    """Busy tenants, each with as many clients at a time."""

    tenants: tuple[str, ...]
    clients: int
    label: str


async def open_for(path: Path, limits: AdmissionLimits, crowd: Crowd) -> tuple[Deployment, outside.Shop]:
    """Return a deployment with admission control for the crowd and a quiet tenant, with the same pack and people."""
    shop = outside.Shop(path, keyed=True)
    deployment = await refund_pack.open_deployment(path, refund_pack.Tools(shop, "", keyed=True), 0)
    directory = path / "directory.json"
    known = json.loads(directory.read_text("utf-8"))
    others = [QUIET, *(tenant for tenant in crowd.tenants if tenant != NOISY)]
    directory.write_text(json.dumps({**known, **dict.fromkeys(others, known[NOISY])}), "utf-8")
    for tenant in others:
        body = refund_pack.pack(0)
        body["pack_meta"]["tenant"] = tenant
        envelope = seal(PACK_TYPE, canonical(body), KeyRing.from_seed(b"b" * 32), "pack")
        await refund_pack.put_in_force(deployment, tenant, envelope)
    deployment.ports = replace(deployment.ports, admission=AdmissionController(limits, SystemClock()))
    return deployment, shop


def request_of(tenant: str) -> dict[str, Any]:
    return {**outside.request(next(NUMBERS), 900), "tenant_id": tenant}


class RequestTime(NamedTuple):
    """Milliseconds from request to answer: wall time, and CPU time of the event loop for all tenants."""

    wall: float
    cpu: float


async def quiet_runs(deployment: Deployment, runs: int) -> list[RequestTime]:
    """Measure `runs` requests, one after the other."""
    times = []
    for _ in range(runs):
        body, start, cpu = request_of(QUIET), time.perf_counter(), time.thread_time()
        view = await deployment.invoke(body)
        times.append(RequestTime((time.perf_counter() - start) * 1e3, (time.thread_time() - cpu) * 1e3))
        assert view.state == "completed", view
        await asyncio.sleep(0.01)
    return times


@asynccontextmanager
async def load(deployment: Deployment, crowd: Crowd, outcomes: Counter[str]) -> AsyncIterator[None]:
    """Run the clients of the busy tenants for the duration of the `with` block."""
    stopped = asyncio.Event()
    callers = crowd.clients * len(crowd.tenants)

    async def call(place: int) -> None:
        await asyncio.sleep(place / callers / 2)
        body = request_of(crowd.tenants[place % len(crowd.tenants)])
        while not stopped.is_set():
            retry_after_ms = 0
            try:
                view = await deployment.invoke(body)
                assert view.state == "completed", view
                outcomes["accepted"] += 1
                body = request_of(body["tenant_id"])
            except Overloaded as refusal:
                outcomes["refused"] += 1
                retry_after_ms = refusal.retry_after_ms
            # Callers retry at different moments, as clients with jitter do. A caller waits where it is,
            # and not in this process: a refused request is released.
            await asyncio.sleep(retry_after_ms / 1e3 * (1 + place / callers / 2))

    noisy = [asyncio.ensure_future(call(place)) for place in range(callers)]
    await asyncio.sleep(0.6)
    try:
        yield
    finally:
        stopped.set()
        await asyncio.gather(*noisy)


def p99(times: Iterable[float]) -> float:
    whole = sorted(times)
    return whole[int(0.99 * len(whole))]


async def measure(path: Path, limits: AdmissionLimits, rounds: int, runs: int, crowd: Crowd) -> None:
    deployment, shop = await open_for(path, limits, crowd)
    await quiet_runs(deployment, 10)
    # As `contextos worker` does, and as docs/operating.md advises an embedding application.
    gc.collect()
    gc.freeze()
    idle: list[RequestTime] = []
    loaded: list[RequestTime] = []
    outcomes: Counter[str] = Counter()
    for _ in range(rounds):
        idle += await quiet_runs(deployment, runs)
        async with load(deployment, crowd, outcomes):
            loaded += await quiet_runs(deployment, runs)
    wall, idle_wall = [one.wall for one in loaded], [one.wall for one in idle]
    cpu, idle_cpu = [one.cpu for one in loaded], [one.cpu for one in idle]
    label = f"a quiet tenant beside {crowd.label}, p99 / its idle p99"
    report_bar(label, p99(wall) / p99(idle_wall), 2, best=min(wall) / min(idle_wall), against=idle_wall)
    note("its p50, loaded and idle", f"{median(wall):9.2f} ms, {median(idle_wall):.2f} ms")
    note("its p99, loaded and idle", f"{p99(wall):9.2f} ms, {p99(idle_wall):.2f} ms")
    # Other load slows a process that computes all the time more than one that mostly sleeps.
    note("the same in CPU time of the event loop, p99 / idle p99", f"{p99(cpu) / p99(idle_cpu):9.2f}")
    note("p50 / idle p50", f"{median(cpu) / median(idle_cpu):9.2f}")
    note(
        f"{crowd.clients * len(crowd.tenants)} busy clients",
        f"{outcomes['accepted']:6} accepted, {outcomes['refused']} refused with a retry time",
    )
    outside.close(deployment)
    shop.close()


def crowds(limits: AdmissionLimits) -> tuple[Crowd, Crowd]:
    """Return the two loads that are measured."""
    one = Crowd((NOISY,), LOAD * limits.max_callers_per_tenant, f"{LOAD} times the load")
    busy = (NOISY, *(f"tenant_busy_{number}" for number in range(1, TENANTS)))
    return one, Crowd(busy, CLIENTS, f"{TENANTS} tenants x {CLIENTS} clients")


def main() -> None:
    rounds, runs = (6, 20) if is_quick() else (20, 30)
    limits = AdmissionLimits(max_new_runs_per_minute_per_tenant=60_000)
    for crowd in crowds(limits):
        with folder() as name:
            asyncio.run(measure(Path(name), limits, rounds, runs, crowd))


if __name__ == "__main__":
    main()
