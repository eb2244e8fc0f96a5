"""Workers on one PostgreSQL database that are killed and stopped at random, while their clocks are set and the server
crashes; the people who tend their runs, and what an auditor counts when it is quiet.

The seed decides who is killed when; what the machine makes of it differs from run to run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.contracts.documents.runs import REQUESTS
from contextos.contracts.entries.reading import read_body
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ApprovalRefused, Conflict, NotFound, ReplayMismatch, Unavailable
from contextos.store.shared.clock import SystemClock
from tests.e2e.storm_payments import PAYMENTS, WildPayments
from tests.postgres import Server, own_server
from tests.processes import whole_lines
from tests.world import TENANT, TestWorld, open_world

ROOT = Path(__file__).resolve().parents[2]
FATES = ("free", "approved", "denied", "expired", "away", "lossy")
"""What becomes of a request: no gate, or what a person says (or nobody), or what the payments do."""
AMOUNTS = {"approved": 4200, "denied": 4200, "expired": 60_000}
ENDS = {"free": "completed", "approved": "completed", "denied": "rejected", "expired": "escalated"}
FOR_EVER_US = 2**62
LOOKED_AT_S = 2.0
"""A run that somebody looked at is left alone for this long."""


@dataclass(frozen=True)
class Weather:
    """What a storm is: how many runs and workers, and how long and how often something happens to them.

    The pauses are in seconds, least and greatest. Clocks of workers are up to `clocks_apart_s` apart. `repeated` is the
    share of known requests that a worker sends once more.
    """

    runs: int
    workers: int = 3
    engine: str = "shared"
    mode: str | None = None
    rage_s: float = 6
    patience_s: float = 120
    kills_s: tuple[float, float] = (0.5, 2.5)
    crashes_s: tuple[float, float] = (2, 5)
    clocks_apart_s: float = 0
    repeated: float = 0.5


@dataclass
class Storm:
    """The workers, the server and the people; `counts` is what happened."""

    folder: Path
    server: Server
    weather: Weather
    plan: dict[str, Any]
    chance: random.Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def start_worker(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        seed = str(self.chance.randrange(2**32))
        plan = str(self.folder / "plan.json")
        with (self.folder / "said.log").open("ab") as said:
            self.workers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.e2e.storm_worker", plan, seed],
                    cwd=ROOT,
                    env=environment,
                    stdout=said,
                    stderr=said,
                )
            )

    def kill_worker(self) -> None:
        worker = self.workers.pop(self.chance.randrange(len(self.workers)))
        assert worker.poll() is None, (self.folder / "said.log").read_text()[-4000:]
        worker.kill()
        worker.wait()
        self.counts["workers killed"] += 1

    async def rage(self, calm: asyncio.Event) -> None:
        """Kill workers and crash the server, for a while or until it is `calm`."""
        weather, until = self.weather, time.monotonic() + self.weather.rage_s
        next_crash = time.monotonic() + self.chance.uniform(*weather.crashes_s)
        while time.monotonic() < until and not calm.is_set():
            await asyncio.sleep(self.chance.uniform(*weather.kills_s))
            if time.monotonic() > next_crash:
                await asyncio.to_thread(self.server.crash)
                await asyncio.sleep(self.chance.uniform(0, 0.5))
                await asyncio.to_thread(self.server.start)
                self.counts["server crashes"] += 1
                next_crash = time.monotonic() + self.chance.uniform(*weather.crashes_s)
            await self.pause_worker()
            self.kill_worker()
            self.start_worker()

    async def pause_worker(self) -> None:
        """Stop a worker for longer than it takes to count as dead, sometimes, and continue it."""
        if self.chance.random() < 0.4:
            worker = self.chance.choice(self.workers)
            worker.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self.chance.uniform(0.5, 5))
            worker.send_signal(signal.SIGCONT)
            self.counts["workers stopped"] += 1


@contextmanager
def storm(folder: Path, weather: Weather, seed: int) -> Iterator[Storm]:
    with own_server() as server:
        stores = server.database()
        (folder / "workspace").mkdir()
        plan = {
            "workspace": str(folder / "workspace"),
            "stores": stores.app,
            "engine": weather.engine,
            "mode": weather.mode,
            "clocks_apart_s": weather.clocks_apart_s,
            "repeated": weather.repeated,
            "requests": [planned(number) for number in range(weather.runs)],
        }
        (folder / "plan.json").write_text(json.dumps(plan), "utf-8")
        made = Storm(folder, server, weather, plan, random.Random(seed))
        try:
            yield made
        finally:
            for worker in made.workers:
                worker.kill()
                worker.wait()


def planned(number: int) -> dict[str, Any]:
    fate = FATES[number % len(FATES)]
    order_id = f"ord_{fate}_{number}"
    return {"request_id": f"req_{number}", "order_id": order_id, "fate": fate, "amount": AMOUNTS.get(fate, 900)}


def quick_gate(body: dict[str, Any]) -> None:
    """Above INR 50,000 the gate waits for seconds only, and a service that is away is asked again for seconds only."""
    body["tooling_layer"]["max_retry_s"] = 3
    layer = body["policy_layer"]
    layer["approval_gates"].append({**layer["approval_gates"][0], "gate_id": "GATE_QUICK_APPROVAL", "timeout_s": 3})
    rules = layer["policy_bundles"][0]["policy_dsl"]["rules"]
    high = next(rule for rule in rules if rule["rule_id"] == "R_HIGH_VALUE_REQUIRES_APPROVAL")
    quick = json.loads(json.dumps(high))
    quick["rule_id"], quick["then"]["requires_approval_gate"] = "R_QUICK_APPROVAL", "GATE_QUICK_APPROVAL"
    quick["if"] = {">": [{"var": "args.amount_inr"}, 50_000]}
    high["if"] = {"and": [high["if"], {"<=": [{"var": "args.amount_inr"}, 50_000]}]}
    rules.append(quick)


async def publish(plan: dict[str, Any]) -> TestWorld:
    """The people's own look at the deployment: an order, a customer and their identity for every request."""
    path = Path(plan["workspace"])
    world = await open_world(path, stores=plan["stores"], clock=SystemClock(), pack=quick_gate)
    orders = [one["order_id"] for one in plan["requests"]]
    for first in range(0, len(orders), 250):
        await world.stock(*orders[first : first + 250])
    world.adapters[PAYMENTS] = WildPayments(world.adapters[PAYMENTS], random.Random(0))  # type: ignore[assignment]
    return world


async def found(world: TestWorld, one: dict[str, Any]) -> RunView | None:
    claims = await world.stores.tenant(TENANT).scan("requests", key=one["request_id"])
    if not claims:
        return None
    return await world.deployment.view(TENANT, json.loads(claims[0].body)["run_id"])


async def people(world: TestWorld, plan: dict[str, Any]) -> None:
    """Answer what is asked and settle what is uncertain, until everything has ended. The server may be away."""
    store, by_id = world.stores.tenant(TENANT), {one["request_id"]: one for one in plan["requests"]}
    next_look: dict[str, float] = {}
    while True:
        try:
            waiting = [run_id for _, run_id in await store.waiting()]
            for run_id in waiting:
                if next_look.get(run_id, 0.0) < time.monotonic():
                    await tend(world, by_id, run_id)
                    next_look[run_id] = time.monotonic() + LOOKED_AT_S
            if not waiting and not await open_runs(world) and await known_requests(world) == len(by_id):
                return
        except (Unavailable, Conflict, ApprovalRefused):
            continue  # looked at again
        finally:
            await asyncio.sleep(0.1)


async def open_runs(world: TestWorld) -> list[str]:
    """The runs, at most twenty, that have a time at which they go on."""
    return [run_id async for _, run_id in world.stores.due(FOR_EVER_US, limit=20)]


async def known_requests(world: TestWorld) -> int:
    return len([key async for key in REQUESTS.keys(world.stores.tenant(TENANT))])


async def tend(world: TestWorld, by_id: dict[str, dict[str, Any]], run_id: str) -> None:
    (received,) = await world.stores.tenant(TENANT).read(run_id, limit=1)
    one, view = by_id[read_body(received)["request"]["request_id"]], await world.deployment.view(TENANT, run_id)
    if view.waiting is None:
        return
    if view.waiting["for"] == "settlement":
        await world.settle(run_id, world.by_the_books(one["order_id"]), drive=False)
    elif one["fate"] in ("approved", "denied"):
        await world.answer(view.run_id, one["fate"])


async def audited(world: TestWorld, plan: dict[str, Any], results: list[dict[str, Any]]) -> Counter[str]:
    """What an auditor counts when it is quiet."""
    counts: Counter[str] = Counter()
    refunds = Counter(refund["order_id"] for refund in world.refunds())
    counts["duplicate effects"] = sum(number - 1 for number in refunds.values())
    views = {one["request_id"]: await found(world, one) for one in plan["requests"]}
    for promised in results:
        view = views[promised["request_id"]]
        kept = (
            view is not None
            and view.run_id == promised["run_id"]
            and (not promised["ended"] or (view.record or {}).get("record_hash") == promised["record_hash"])
        )
        counts["promises broken"] += not kept
    store = world.stores.tenant(TENANT)
    streams = {one.stream: one for one in await verify.verify_tenant(store, TENANT, world.keys)}
    for one in plan["requests"]:
        view = views[one["request_id"]]
        if view is None:
            counts["lost"] += 1
            continue
        counts["stuck"] += not view.ended
        counts["not verified"] += view.run_id not in streams
        counts[f"{one['fate']}: {view.state}"] += 1
        paid = refunds[one["order_id"]]
        counts["wrong ends"] += view.state != ENDS.get(one["fate"], view.state) or paid != (view.state == "completed")
        try:
            replayed = await replay(world.deployment, TENANT, view.run_id)
            counts["not replayed equal"] += replayed.record_hash != (view.record or {}).get("record_hash")
        except (ReplayMismatch, NotFound):
            counts["not replayed equal"] += 1
        kinds = Counter(entry.kind for entry in await store.read(view.run_id))
        counts["dispatches without one outcome"] += kinds["tool.dispatching"] != kinds["tool.returned"]
    counts["runs"] = len(plan["requests"])
    counts["runs besides"] = sum(name.startswith("run_") for name in streams) - len(plan["requests"])
    return counts


async def raged(made: Storm) -> Counter[str]:
    """Let the storm rage, wait until every run has ended, and count."""
    world = await publish(made.plan)
    calm, began_s = asyncio.Event(), time.monotonic()
    tended = asyncio.ensure_future(people(world, made.plan))
    tended.add_done_callback(lambda _: calm.set())
    for _ in range(made.weather.workers):
        made.start_worker()
    await made.rage(calm)
    done, _ = await asyncio.wait([tended], timeout=made.weather.patience_s)
    if not done:
        tended.cancel()
        print("still open:", await open_runs(world))
    else:
        tended.result()
    print(f"{made.weather.runs} runs in {time.monotonic() - began_s:.0f} s")
    for worker in made.workers:
        assert worker.poll() is None, (made.folder / "said.log").read_text()[-4000:]
        worker.kill()
        worker.wait()
    results, failed = lines_of(made.folder / "seen.jsonl"), lines_of(made.folder / "failed.jsonl")
    made.counts["promises"] = len(results)
    made.counts["failed drives"] = len(failed)
    made.counts["clocks refused"] = len(lines_of(made.folder / "clocks.jsonl"))
    print("\n".join(sorted({str(one["fault"]) for one in failed})))
    made.counts += await audited(world, made.plan, results)
    await world.aclose()
    return made.counts


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that were written to their end."""
    return [json.loads(line) for line in whole_lines(path)]


def check(counts: Counter[str]) -> None:
    print(dict(counts))
    for wrong in (
        "lost",
        "stuck",
        "duplicate effects",
        "promises broken",
        "not verified",
        "wrong ends",
        "not replayed equal",
        "runs besides",
        "dispatches without one outcome",
        "failed drives",
    ):
        assert counts[wrong] == 0, counts
