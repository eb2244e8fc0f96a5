"""One of several worker processes in a storm: it asks for every run of the plan, and its engine drives what is due.

`python -m tests.e2e.storm_worker PLAN.json SEED`. It appends each result of a run to `seen.jsonl` beside the plan:
that is promised. It may be killed anywhere; the test beside it starts the next one. Its clock may be set wrong and
right again; what it says of that goes to `clocks.jsonl`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from contextos.contracts.ports.claims import ClaimLimits
from contextos.deployment.deployment import wake_orphans
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ClockOff, Unavailable
from contextos.store.postgres.claims import PostgresClaims
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.local import EngineLimits, LocalEngine
from contextos.workspace.engine.shared import SharedEngine, SharedLimits
from tests.e2e.storm_payments import PAYMENTS, WildPayments
from tests.world import TENANT, TestWorld, open_world, request

LEASE_TTL_US = 3_000_000
AT_ONCE = 6


class WanderingClock(SystemClock):
    """The clock of a machine that somebody sets wrong, and right again; two of them are at most `apart_s` apart."""

    def __init__(self, apart_s: float, chance: random.Random) -> None:
        self._apart_s, self._chance = apart_s, chance
        self._off_us, self._until_s = 0, 0.0

    def now_us(self) -> int:
        if time.monotonic() > self._until_s:
            is_right = self._chance.random() < 0.7
            off_s = self._chance.uniform(-2, 2) if is_right else self._chance.uniform(-0.5, 0.5) * self._apart_s
            self._off_us, self._until_s = round(off_s * 1e6), time.monotonic() + self._chance.uniform(3, 15)
        return super().now_us() + self._off_us


def body_of(one: Mapping[str, Any], mode: str | None) -> dict[str, Any]:
    body = request(one["amount"], one["request_id"], order_id=one["order_id"])
    return body if mode is None else body | {"mode": mode}


def promise(file: int, view: RunView, request_id: str) -> None:
    said = {
        "request_id": request_id,
        "run_id": view.run_id,
        "state": view.state,
        "ended": view.ended,
        "record_hash": (view.record or {}).get("record_hash"),
    }
    os.write(file, json.dumps(said).encode() + b"\n")


async def ask_for_all(world: TestWorld, plan: dict[str, Any], results: int, chance: random.Random) -> None:
    """Every request of the plan in an order of this worker's own, each until there is an answer.

    Most of those that somebody asked for before are left to the engines.
    """
    bodies = [body_of(one, plan["mode"]) for one in plan["requests"]]
    chance.shuffle(bodies)
    room, store = asyncio.Semaphore(AT_ONCE), world.stores.tenant(TENANT)

    async def ask(body: dict[str, Any]) -> None:
        async with room:
            leaves_it = chance.random() >= plan["repeated"]
            while True:
                try:
                    if leaves_it and await store.scan("requests", key=body["request_id"]):
                        return
                    view = await world.invoke(body)
                except Unavailable as error:
                    await asyncio.sleep(error.retry_after_ms / 1e3)
                    continue
                promise(results, view, body["request_id"])
                return

    await asyncio.gather(*map(ask, bodies))


def engine_of(world: TestWorld, plan: dict[str, Any], failed: int, clocks: int) -> Any:
    def on_failure(_tenant: str, run_id: str, fault: BaseException) -> None:
        if isinstance(fault, ClockOff):
            os.write(clocks, json.dumps({"said": str(fault)}).encode() + b"\n")
        if isinstance(fault, Unavailable):
            return  # the server is away, and is asked again
        os.write(failed, json.dumps({"run_id": run_id, "fault": repr(fault)}).encode() + b"\n")

    advance, clock = world.deployment.advance, world.clock
    if plan["engine"] == "local":
        limits = EngineLimits(sweep_interval_ms=300)
        return LocalEngine(advance, world.stores, clock, limits=limits, on_failure=on_failure)
    shared = SharedLimits(max_drives=AT_ONCE, sweep_interval_ms=300, claims=ClaimLimits(alive_ms=3000))
    claims = PostgresClaims(plan["stores"], world.owner.id, clock, shared.claims)
    return SharedEngine(
        advance,
        world.stores,
        clock,
        claims,
        on_dead=world.owner.set_dead,
        wake_orphans=partial(wake_orphans, world.deployment),
        limits=shared,
        on_failure=on_failure,
    )


async def work(folder: Path, plan: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    clock: Any = SystemClock()
    if plan["clocks_apart_s"]:
        clock = WanderingClock(plan["clocks_apart_s"], chance)
    while True:
        try:
            world = await open_world(Path(plan["workspace"]), stores=plan["stores"], clock=clock)
            break
        except Unavailable as error:
            await asyncio.sleep(error.retry_after_ms / 1e3)
    world.deployment.config = replace(world.deployment.config, lease_ttl_us=LEASE_TTL_US)
    world.adapters[PAYMENTS] = WildPayments(world.adapters[PAYMENTS], chance)
    names, mode = ("seen.jsonl", "failed.jsonl", "clocks.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND
    seen, failed, clocks = (os.open(folder / name, mode) for name in names)
    engine = engine_of(world, plan, failed, clocks)
    await engine.start()
    await ask_for_all(world, plan, seen, chance)
    await asyncio.Event().wait()


if __name__ == "__main__":
    path = Path(sys.argv[1])
    asyncio.run(work(path.parent, json.loads(path.read_text("utf-8")), int(sys.argv[2])))
