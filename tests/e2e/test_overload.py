"""Ten times more load than capacity: what is let in is bounded and ends once, a refused caller gets a retry time.

Nothing here asserts a time: how long a quiet tenant waits is measured in `benchmarks/overload.py`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment import deployment, lru
from contextos.deployment.acts.governance import activate_policies
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import Overloaded, Unavailable
from contextos.store.shared.clock import SystemClock
from contextos.store.witness.file import FileWitness
from contextos.trust.seal import seal
from contextos.workspace.engine.admission_controller import AdmissionController
from contextos.workspace.engines import publish_heads
from contextos_sim.ports import UnboundedAdmission
from tests.world import TENANT, ManualClock, TestWorld, example, open_world, request, run

pytestmark = pytest.mark.slow

QUIET = "tenant_quiet"
CAPACITY = 4
LIMITS = AdmissionLimits(max_callers=8, max_callers_per_tenant=CAPACITY, max_turns=2, max_turns_per_tenant=1)


def asked(tenant: str, amount: int) -> dict[str, Any]:
    """A request of its own: in this shop order and amount say which refund it is."""
    return {**request(amount, f"req_{amount}"), "tenant_id": tenant}


async def opened(path: Path, stores: str) -> tuple[TestWorld, AdmissionController]:
    """A world behind a gate. A second tenant has the same people and the same pack, many others have nobody."""
    world = await open_world(path, stores=stores, clock=SystemClock())
    gate = AdmissionController(LIMITS, world.clock)
    world.deployment.ports = replace(world.deployment.ports, admission=gate)
    where = path / "directory.json"
    known = json.loads(where.read_text("utf-8"))
    nobody: dict[str, list[Any]] = {"users": [], "agents": [], "approvers": []}
    empty = {f"{name}_{number}": nobody for name in ("tenant", "empty") for number in range(310)}
    where.write_text(json.dumps({**known, **empty, QUIET: known[TENANT]}), "utf-8")
    pack, graph = example("pack.json"), example("graph.json")
    pack["pack_meta"]["tenant"] = QUIET
    envelope = seal(PACK_TYPE, canonical(pack), world.keys, "pack")
    by = world.actor()
    ref = await world.publish(envelope, tenant_id=QUIET)
    await activate_policies(world.deployment, QUIET, (), expected=0, by=by)
    await world.pin_pack(ref, tenant_id=QUIET)
    await world.put_facts(graph["edges"], graph["nodes"], tenant_id=QUIET)
    return world, gate


@dataclass
class Seen:
    """The callers' results, and the largest number of runs at one time."""

    ended: dict[tuple[str, int], str] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    async def call(self, world: TestWorld, tenant: str, amount: int) -> None:
        """Ask until it is taken, as a client does; waiting less than the retry time makes the load worse."""
        while True:
            try:
                view = await world.invoke(asked(tenant, amount))
            except Overloaded as refusal:
                assert refusal.retry_after_ms > 0
                self.refused[tenant] += 1
                await asyncio.sleep(0.02)
            else:
                self.ended[tenant, amount] = view.state
                return

    async def watch(self, gate: AdmissionController) -> None:
        while True:
            for name, size in (("callers", gate.callers), ("driving", gate.driving)):
                self.most[name] = max(self.most[name], size)
            await asyncio.sleep(0.001)


async def storm(world: TestWorld, gate: AdmissionController, noisy: range, quiet: range) -> Seen:
    """All noisy callers at once; the quiet tenant asks one thing after the other."""
    seen = Seen()

    async def quietly() -> None:
        for amount in quiet:
            await seen.call(world, QUIET, amount)

    watching = asyncio.ensure_future(seen.watch(gate))
    await asyncio.gather(quietly(), *(seen.call(world, TENANT, amount) for amount in noisy))
    watching.cancel()
    return seen


async def check_nothing_is_lost_or_twice(world: TestWorld, seen: Seen, noisy: range, quiet: range) -> None:
    assert seen.ended == {(TENANT, one): "completed" for one in noisy} | {(QUIET, one): "completed" for one in quiet}
    assert sorted(one["amount_inr"] for one in world.refunds()) == sorted([*noisy, *quiet])
    for tenant, amounts in ((TENANT, noisy), (QUIET, quiet)):
        index = await world.stores.tenant(tenant).read(INDEX)
        kinds = Counter(line.kind for line in index)
        assert (kinds["run.indexed"], kinds["run.closed"]) == (len(amounts), len(amounts))


@pytest.mark.requirement("R-OVERLOADED", "R-FAIR")
@pytest.mark.parametrize("stores", [pytest.param("sqlite", marks=pytest.mark.soak), "postgres"])
def test_ten_times_the_load_is_bounded_and_a_quiet_tenant_is_never_refused(
    tmp_path: Path, stores: str, request: pytest.FixtureRequest
) -> None:
    kept = request.getfixturevalue("database").app if stores == "postgres" else stores
    noisy, quiet = range(1, 1 + 10 * CAPACITY), range(100, 104)

    async def act() -> None:
        world, gate = await opened(tmp_path, kept)
        seen = await storm(world, gate, noisy, quiet)
        assert seen.refused[TENANT] >= 9 * CAPACITY
        assert seen.refused[QUIET] == 0
        assert seen.most["callers"] <= CAPACITY + 1
        assert seen.most["driving"] <= 2
        assert (gate.callers, gate.driving) == (0, 0)
        await check_nothing_is_lost_or_twice(world, seen, noisy, quiet)
        world.close()

    run(act())


@pytest.mark.requirement("R-OVERLOADED")
def test_a_refused_request_leaves_nothing_behind_and_may_be_sent_again(tmp_path: Path) -> None:
    async def act() -> None:
        world, gate = await opened(tmp_path, "memory")
        with ExitStack() as full:
            for _ in range(CAPACITY):
                full.enter_context(gate.caller(TENANT))
            with pytest.raises(Overloaded) as refused:
                await world.invoke(asked(TENANT, 1))
        store = world.stores.tenant(TENANT)
        await asyncio.sleep(refused.value.retry_after_ms / 1_000)
        assert (await store.read(INDEX), await store.scan("requests")) == ([], [])
        assert (await world.invoke(asked(TENANT, 1))).state == "completed"

    run(act())


@pytest.mark.requirement("R-OVERLOADED")
def test_a_flood_of_refusals_takes_no_memory(tmp_path: Path) -> None:
    async def flood(world: TestWorld, count: int) -> None:
        for number in range(count):
            with pytest.raises(Overloaded):
                await world.invoke(asked(f"tenant_{number}", 1))

    async def act() -> None:
        world, gate = await opened(tmp_path, "memory")
        with ExitStack() as full:
            for number in range(LIMITS.max_callers):
                full.enter_context(gate.caller(f"other_{number}"))
            await flood(world, 10)
            tracemalloc.start()
            try:
                await flood(world, 300)
                gc.collect()
                left_bytes = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
        assert left_bytes < 300 * 300
        assert set(world.deployment.tenants()) <= {TENANT, QUIET}

    run(act())


def test_runs_of_empty_tenants_take_no_memory_and_no_tenant_that_works_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "MAX_CATALOGS", 8)
    monkeypatch.setattr(lru, "MAX_RECENT_TENANTS", 16)

    async def act() -> None:
        world, _ = await opened(tmp_path, "memory")
        kept = world.deployment.catalog(TENANT)
        for number in range(40):
            assert (await world.invoke(asked(f"empty_{number}", 1))).state == "refused"
            if number % 5 == 0:
                assert (await world.invoke(asked(TENANT, 1 + number))).state == "completed"
        assert world.deployment.catalog(TENANT) is kept
        assert len(world.deployment._catalogs) == 8
        assert (TENANT in world.deployment.tenants(), len(world.deployment.tenants())) == (True, 16)
        assert (await world.invoke(asked(QUIET, 1))).state == "completed", "what was forgotten is read again"
        assert QUIET in world.deployment.tenants()

    run(act())


def test_the_heads_of_a_tenant_are_published_while_it_is_driven_and_a_few_times_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world, _ = await opened(tmp_path, "memory")
        published: list[tuple[str, ...]] = []

        class Noted(WitnessPublisher):
            async def publish(self, tenants: Iterable[str]) -> int:
                published.append(tuple(tenants))
                return await super().publish(published[-1])

        witness = FileWitness(tmp_path / "witness.jsonl")
        telling = Noted(world.stores, witness, world.keys, world.clock)
        for number in range(20):
            assert (await world.invoke(asked(f"empty_{number}", 1))).state == "refused"
        for number in range(lru.PUBLICATIONS + 1):
            assert (await world.invoke(asked(TENANT, 1 + number))).state == "completed"
            await publish_heads(telling, world.deployment)
        assert published[lru.PUBLICATIONS - 1] == (*sorted(f"empty_{number}" for number in range(20)), TENANT, QUIET)
        assert published[lru.PUBLICATIONS] == (TENANT,)
        assert (await world.invoke(asked("empty_7", 2))).state == "refused"
        monkeypatch.setattr(witness, "path", tmp_path)
        for _ in range(2 * lru.PUBLICATIONS):
            with pytest.raises(Unavailable):
                await publish_heads(telling, world.deployment)
        monkeypatch.setattr(witness, "path", tmp_path / "witness.jsonl")
        await publish_heads(telling, world.deployment)
        assert [one.seq for one in await witness.heads("empty_7")] == [2, 4], "no name is lost while nobody hears it"

    run(act())


@pytest.mark.requirement("R-QUOTA")
def test_past_its_quota_a_tenant_begins_no_run_and_still_gets_the_answers_of_those_it_has(tmp_path: Path) -> None:
    async def act() -> None:
        world, gate = await opened(tmp_path, "memory")
        gate = AdmissionController(replace(LIMITS, max_new_runs_per_minute_per_tenant=1), world.clock)
        world.deployment.ports = replace(world.deployment.ports, admission=gate)
        first = await world.invoke(asked(TENANT, 1))
        with pytest.raises(Overloaded) as raised:
            await world.invoke(asked(TENANT, 2))
        assert 0 < raised.value.retry_after_ms <= 60_000
        assert (await world.invoke(asked(TENANT, 1))).run_id == first.run_id
        assert (await world.invoke(asked(QUIET, 3))).state == "completed"
        assert len(await world.stores.tenant(TENANT).scan("requests")) == 1

    run(act())


@pytest.mark.requirement("R-TURN-BACK")
@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed"])
def test_waiting_for_a_turn_costs_a_run_none_of_its_wall_clock(tmp_path: Path, fails: bool) -> None:
    """While the first read is asked another tenant takes the only turn, and keeps it for an hour."""

    class Busy:
        def __init__(self, adapter: Any, gate: AdmissionController, clock: ManualClock) -> None:
            self.adapter, self.gate, self.clock = adapter, gate, clock
            self.others: list[asyncio.Task[None]] = []

        def describe(self) -> Any:
            return self.adapter.describe()

        async def call(self, capability: str, args: Any, context: Any) -> Any:
            if not self.others:
                taken = asyncio.Event()
                self.others.append(asyncio.ensure_future(self.other(taken)))
                await taken.wait()
                if fails:
                    raise Unavailable("adp_orders", "it is away")
            return await self.adapter.call(capability, args, context)

        async def other(self, taken: asyncio.Event) -> None:
            async with self.gate.turn("other", "run_other"):
                taken.set()
                while not len(self.gate._queue):  # noqa: ASYNC110 - the runtime puts it there
                    await asyncio.sleep(0)
                self.clock.at_us += 3_600_000_000

    async def act() -> None:
        world = await open_world(tmp_path)
        gate = AdmissionController(replace(LIMITS, max_turns=1), world.clock)
        world.deployment.ports = replace(world.deployment.ports, admission=gate)
        orders: Any = Busy(world.adapters["adp_orders"], gate, world.clock)
        world.adapters["adp_orders"] = orders
        began_us = world.clock.at_us
        view = await world.invoke(asked(TENANT, 900))
        assert orders.others
        assert world.clock.at_us - began_us > 3_600_000_000
        assert view.record is not None
        assert (view.state, view.record["budget_usage"]["wall_clock_ms"] < 1_000) == ("completed", True)
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        answer = next(json.loads(one.body or b"")["answer"] for one in entries if one.kind == "tool.returned")
        assert (answer["waited_us"] >= 3_600_000_000, answer["envelope"]["latency_ms"] < 1_000) == (True, True)
        again = await replay(world.deployment, TENANT, view.run_id)
        assert again.record_hash == view.record["record_hash"]
        world.close()

    run(act())


@pytest.mark.requirement("R-FAIR")
def test_others_may_go_first_after_a_commit_but_not_before_a_call_is_sent_nor_at_the_end(tmp_path: Path) -> None:
    durable = list[int]()

    class Looking(UnboundedAdmission):
        async def yield_to_others(self, tenant_id: str, run_id: str) -> None:
            durable.append(len(await world.stores.tenant(tenant_id).read(run_id)))

    async def act() -> None:
        view = await world.invoke(asked(TENANT, 900))
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        # After an effect without a key, with its outcome durable. Between what says that it is sent and the sending
        # nobody waits.
        assert [entries[at - 1].kind for at in durable] == ["tool.returned"]
        assert "tool.dispatching" in [entry.kind for entry in entries]
        assert (view.state, entries[-1].kind) == ("completed", "run.ended")
        world.close()

    world = run(open_world(tmp_path, payments="none"))
    world.deployment.ports = replace(world.deployment.ports, admission=Looking())
    run(act())
