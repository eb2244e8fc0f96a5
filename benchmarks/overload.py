"""A quiet tenant beside one that asks for ten times what it may: `python -m benchmarks.overload`.

The quiet tenant asks one refund after the other, alone and under the noisy tenant's load in turns, short enough that
a neighbour on the machine falls upon both. The noisy one has
ten times as many callers as `max_callers_per_tenant`, each of which comes again when it was told. One process, SQLite,
the defaults of `[pressure]`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
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
from benchmarks.bars import folder, is_quick, judge, note
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.engine.admission_controller import AdmissionController
from contextos.errors import Overloaded
from contextos.operations.deployment import Deployment
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import KeyRing, seal

NOISY, QUIET = refund_pack.TENANT, "tenant_quiet"
LOAD = 10
NUMBERS = count()


async def open_for_two(path: Path, limits: AdmissionLimits) -> tuple[Deployment, outside.Shop]:
    """The refund for two tenants of the same pack and people, behind a gate."""
    shop = outside.Shop(path, keyed=True)
    deployment = await refund_pack.open_deployment(path, refund_pack.Tools(shop, "", keyed=True), 0)
    directory = path / "directory.json"
    known = json.loads(directory.read_text("utf-8"))
    directory.write_text(json.dumps({**known, QUIET: known[NOISY]}), "utf-8")
    body = refund_pack.pack(0)
    body["pack_meta"]["tenant"] = QUIET
    envelope = seal(PACK_TYPE, canonical(body), KeyRing.from_seed(b"b" * 32), "pack")
    catalog = deployment.catalog(QUIET)
    await catalog.publish(envelope, by="bench", at_us=deployment.ports.clock.now_us(), salt=os.urandom)
    graph = json.loads((refund_pack.EXAMPLE / "graph.json").read_text("utf-8"))
    await deployment.ports.graph(QUIET).put(graph["nodes"], graph["edges"])
    deployment.ports = replace(deployment.ports, admission=AdmissionController(limits, SystemClock()))
    return deployment, shop


def asked(tenant: str) -> dict[str, Any]:
    return {**outside.request(next(NUMBERS), 900), "tenant_id": tenant}


class Taken(NamedTuple):
    """Milliseconds from request to answer: on the wall, and CPU of the event loop, whoever it worked for."""

    wall: float
    cpu: float


async def quiet_runs(deployment: Deployment, runs: int) -> list[Taken]:
    """What each of `runs` requests took, one after the other."""
    taken = []
    for _ in range(runs):
        body, start, cpu = asked(QUIET), time.perf_counter(), time.thread_time()
        view = await deployment.invoke(body)
        taken.append(Taken((time.perf_counter() - start) * 1e3, (time.thread_time() - cpu) * 1e3))
        assert view.state == "completed", view
        await asyncio.sleep(0.01)
    return taken


@asynccontextmanager
async def load(deployment: Deployment, callers: int, told: Counter[str]) -> AsyncIterator[None]:
    """The noisy tenant's callers, from before the first line inside to the end of it."""
    stopped = asyncio.Event()

    async def call(place: int) -> None:
        await asyncio.sleep(place / callers / 2)
        while not stopped.is_set():
            retry_after_ms = 0
            try:
                await deployment.invoke(asked(NOISY))
                told["taken"] += 1
            except Overloaded as refusal:
                told["refused"] += 1
                retry_after_ms = refusal.retry_after_ms
            # No two come at the same moment: clients that retry add a part of their own. One waits where it is, and
            # not in this process: what it was refused with is let go.
            await asyncio.sleep(retry_after_ms / 1e3 * (1 + place / callers / 2))

    noisy = [asyncio.ensure_future(call(place)) for place in range(callers)]
    await asyncio.sleep(0.6)
    try:
        yield
    finally:
        stopped.set()
        await asyncio.gather(*noisy)


def p99(taken: Iterable[float]) -> float:
    whole = sorted(taken)
    return whole[int(0.99 * len(whole))]


async def measure(path: Path, limits: AdmissionLimits, rounds: int, runs: int) -> None:
    deployment, shop = await open_for_two(path, limits)
    await quiet_runs(deployment, 10)
    # As `contextos worker` does, and docs/operating.md tells who embeds the runtime.
    gc.collect()
    gc.freeze()
    callers = LOAD * limits.max_callers_per_tenant
    idle: list[Taken] = []
    loaded: list[Taken] = []
    told: Counter[str] = Counter()
    for _ in range(rounds):
        idle += await quiet_runs(deployment, runs)
        async with load(deployment, callers, told):
            loaded += await quiet_runs(deployment, runs)
    wall, idle_wall = [one.wall for one in loaded], [one.wall for one in idle]
    cpu, idle_cpu = [one.cpu for one in loaded], [one.cpu for one in idle]
    label = f"a quiet tenant beside {LOAD} times the load, p99 / its idle p99"
    judge(label, p99(wall) / p99(idle_wall), 2, best=min(wall) / min(idle_wall), against=idle_wall)
    note("its p50, loaded and idle", f"{median(wall):9.2f} ms, {median(idle_wall):.2f} ms")
    note("its p99, loaded and idle", f"{p99(wall):9.2f} ms, {p99(idle_wall):.2f} ms")
    # A neighbour takes more from a process that computes all the time than from one that mostly sleeps.
    note("the same in CPU time of the event loop, p99 / idle p99", f"{p99(cpu) / p99(idle_cpu):9.2f}")
    note("p50 / idle p50", f"{median(cpu) / median(idle_cpu):9.2f}")
    note(f"{callers} noisy callers", f"{told['taken']:6} taken, {told['refused']} refused with a retry time")
    outside.close(deployment)
    shop.close()


def main() -> None:
    rounds, runs = (6, 20) if is_quick() else (20, 30)
    with folder() as name:
        asyncio.run(measure(Path(name), AdmissionLimits(max_new_runs_per_minute_per_tenant=60_000), rounds, runs))


if __name__ == "__main__":
    main()
