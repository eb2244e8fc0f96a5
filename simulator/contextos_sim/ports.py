"""The ports of a simulated process: in-memory store, directory and graph, with faults injected at each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

import orjson

from contextos.contracts.admission_limits import YieldedTurn
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.evidence import EdgeRow, GraphCommit
from contextos.contracts.envelopes.identity import Approver, HeldRoles, KnownDelegation, Principals
from contextos.contracts.envelopes.slots import SelectionAct
from contextos.contracts.journal import Batch, Document, Draft, Entry, Look, Sought, StoredRun, TermChange
from contextos.contracts.ports.concurrency import OutsideCall
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.ports.storage import ArtifactStore, Graph, Store
from contextos.errors import Conflict, Unavailable
from contextos_sim import example
from contextos_sim.faults import MAX_AHEAD_US, Faults
from contextos_sim.memory.stores import MemoryStores
from contextos_sim.scheduler import Scheduler, die, join_all, pause

_T = TypeVar("_T")


class UnboundedAdmission:
    """The `Admission` of a process without limits."""

    def caller(self, _tenant_id: str, _request_id: str = "") -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, _tenant_id: str) -> None: ...

    def turn(self, _tenant_id: str, _run_id: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def yield_turn(self, _tenant_id: str, _run_id: str) -> AbstractAsyncContextManager[YieldedTurn]:
        return nullcontext(YieldedTurn())

    async def yield_to_others(self, _tenant_id: str, _run_id: str) -> None: ...


class HostWorld(Protocol):
    """What a simulated process uses of the simulated world."""

    scheduler: Scheduler
    faults: Faults
    stores: MemoryStores
    people: People
    moments: Counter[str]

    def presume_dead(self, host: Host) -> None: ...

    def disk_is_full(self) -> bool: ...

    def dies_at(self, moment: str) -> bool: ...

    def committed(self, owner: str, batch: Batch) -> None: ...


@dataclass(slots=True)
class Host:
    """A simulated process. Its clock can be wrong. `believed_dead`: others take it for dead although it may still
    run.
    """

    owner: str
    world: HostWorld
    lag_us: int = 0
    up: bool = True
    believed_dead: bool = False

    def now_us(self) -> int:
        """Return the time of this process's clock, in Unix µs."""
        return self.world.scheduler.now_us - self.lag_us

    async def enter(self, port: str) -> None:
        """Begin a call of the named port. Other tasks run first; the process may crash, stall or be taken for dead
        here.
        """
        world, faults = self.world, self.world.faults
        world.scheduler.trace(self.owner, port)
        world.moments[port] += 1
        await pause(faults.between(1, 3_000))
        if faults.strikes("clock_back"):
            self.lag_us = faults.between(0, 5_000_000)
        if faults.strikes("clock_ahead"):
            self.lag_us = -faults.between(0, MAX_AHEAD_US)
        if faults.strikes("crash") or world.dies_at("port") or faults.strikes_at("crash at", port):
            await die()
        # A stall or a wrong belief around an effect can cost money.
        weight = 12 if port.startswith("payments") else 1
        if not self.believed_dead and faults.strikes("zombie", weight):
            world.presume_dead(self)
            await pause(faults.between(1, 400_000_000))
        if faults.strikes("stall", weight):
            us = faults.between(1_000_000, 400_000_000)
            world.scheduler.stall(self.owner, us)
            await pause(us)


@dataclass(slots=True)
class SimulatedStores:
    """The storage as one simulated process reaches it, with faults."""

    host: Host

    def tenant(self, tenant_id: str) -> SimulatedStore:
        return SimulatedStore(self.host, self.host.world.stores.tenant(tenant_id))

    @property
    def name(self) -> str:
        return self.host.world.stores.name

    def artifacts(self, tenant_id: str) -> ArtifactStore:
        return self.host.world.stores.artifacts(tenant_id)

    def close(self) -> None:
        """Do nothing: the stores outlive a simulated process."""

    def graph(self, tenant_id: str) -> SimulatedGraph:
        return SimulatedGraph(self.host, self.host.world.stores.graph(tenant_id))

    async def require_room(self) -> None:
        """Do nothing: a simulated disk has room."""

    async def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        await _read(self.host, "store.due")
        async for run in self.host.world.stores.due(before_us, limit=limit, skip=skip):
            yield run

    async def erase(self, tenant_id: str, run: str, seq: int, record: Draft, terms: TermChange | None = None) -> None:
        await _read(self.host, "store.erase")
        await self.host.world.stores.erase(tenant_id, run, seq, record, terms)


@dataclass(slots=True)
class SimulatedStore:
    """One tenant's store with faults. An acknowledged commit is durable; one that failed can be durable too."""

    host: Host
    inner: Store

    async def commit(self, batch: Batch) -> None:
        world, faults = self.host.world, self.host.world.faults
        strikes, place = faults.strikes, place_of(batch)
        await self.host.enter("store.commit")
        if world.dies_at("before_commit") or faults.strikes_at("crash before", place):
            await die()
        if world.disk_is_full() or strikes("store_unavailable"):
            raise Unavailable("store", "the simulated disk is full or away")
        if strikes("store_conflict"):
            raise Conflict(batch.run)
        await self.inner.commit(batch)
        world.committed(self.host.owner, batch)
        if world.dies_at("after_commit") or faults.strikes_at("crash after", place):
            await die()
        if strikes("store_unknown"):
            raise Unavailable("store", "the simulated store did not say whether it happened")

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        await _read(self.host, "store.read")
        return await self.inner.read(stream, after=after, limit=limit)

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        await _read(self.host, f"store.scan.{collection}")
        return await self.inner.scan(collection, key=key, prefix=prefix, after=after, limit=limit)

    async def look(self, places: Sequence[tuple[str, str]], **more: Any) -> Look:
        await _read(self.host, "store.look")
        return await self.inner.look(places, **more)

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        await _read(self.host, "store.lines")
        return await self.inner.lines(stream, *keys)

    async def read_run(self, run: str) -> StoredRun:
        await _read(self.host, "store.read_run")
        return await self.inner.read_run(run)

    async def length(self, stream: str) -> int:
        await _read(self.host, "store.length")
        return await self.inner.length(stream)

    async def lengths(self, runs: Sequence[str]) -> Mapping[str, int]:
        await _read(self.host, "store.lengths")
        return await self.inner.lengths(runs)

    async def latest_us(self) -> int:
        await _read(self.host, "store.latest_us")
        return await self.inner.latest_us()

    async def selected_runs(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        await _read(self.host, "store.selected_runs")
        return await self.inner.selected_runs(after=after, limit=limit)

    async def selections(self, run: str) -> Sequence[SelectionAct]:
        await _read(self.host, "store.selections")
        return await self.inner.selections(run)

    async def waiting(self, *, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str]]:
        await _read(self.host, "store.waiting")
        return await self.inner.waiting(after=after, limit=limit)

    async def found(self, sought: Sought, *, limit: int = 1000) -> Sequence[int]:
        await _read(self.host, "store.found")
        return await self.inner.found(sought, limit=limit)

    async def terms(self, first: int, last: int) -> Sequence[tuple[int, int, int]]:
        await _read(self.host, "store.terms")
        return await self.inner.terms(first, last)


@dataclass(frozen=True, slots=True)
class SimulatedConcurrency:
    """Concurrent calls as tasks of the simulated process. The seed decides how they interleave."""

    host: Host

    async def gather(self, calls: Sequence[OutsideCall[None]]) -> None:
        scheduler = self.host.world.scheduler
        await join_all([scheduler.spawn("call", _awaited(call), host=self.host.owner) for call in calls])

    async def within(self, _timeout_ms: int, call: OutsideCall[_T]) -> _T:
        return await call()


async def _awaited(call: OutsideCall[None]) -> None:
    await call()


def place_of(batch: Batch) -> str:
    """Return the name of the place (a key of `CRASH_RATES`) that a run reaches when it commits this batch."""
    if not batch.entries:
        return batch.shared[-1][1].kind if batch.shared else ""
    last = batch.entries[-1]
    if last.kind not in ("tool.dispatching", "tool.returned"):
        return last.kind
    body = orjson.loads(last.body or b"")
    if last.kind == "tool.returned":
        return f"{last.kind} {body['answer']['outcome']}"
    if body["envelope"].get("idempotency_key") is None:
        return f"{last.kind} read"
    return f"{last.kind} {body['mode']}" + ("" if last.key.endswith("/1") else " again")


async def _read(host: Host, port: str) -> None:
    await host.enter(port)
    if host.world.faults.strikes("store_read"):
        raise Unavailable("store", "the simulated store cannot be read")


@dataclass(slots=True)
class SimulatedGraph:
    """The knowledge graph, with faults injected at each call."""

    host: Host
    inner: Graph

    async def head(self) -> int:
        await self._enter("graph.head")
        return await self.inner.head()

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        await self._enter("graph.neighbourhood")
        return await self.inner.neighbourhood(seeds, at=at, hops=hops, fan_out=fan_out, limit=limit)

    async def step(
        self,
        sources: Sequence[str],
        predicate: str | None,
        *,
        at: int,
        limit: int,
        after: str = "",
        ended: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        await self._enter("graph.step")
        return await self.inner.step(sources, predicate, at=at, limit=limit, after=after, ended=ended)

    async def rows(self, *, after: str = "", limit: int = 1000) -> Sequence[EdgeRow]:
        await self._enter("graph.rows")
        return await self.inner.rows(after=after, limit=limit)

    async def plan(self, nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> GraphCommit:
        await self._enter("graph.plan")
        return await self.inner.plan(nodes, edges)

    async def put(
        self,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]],
        *,
        acts: Sequence[Draft] = (),
        expect: int | None = None,
    ) -> int:
        await self._enter("graph.put")
        return await self.inner.put(nodes, edges, acts=acts, expect=expect)

    async def _enter(self, port: str) -> None:
        await self.host.enter(port)
        if self.host.world.faults.strikes("graph"):
            raise Unavailable("graph", "the simulated graph is away")


@dataclass(slots=True)
class People:
    """The approvers and their current roles."""

    approvers: dict[str, Approver] = field(default_factory=lambda: dict(example.people()[2]))

    def revoke(self, approver_id: str) -> None:
        """Remove every role of an approver."""
        self.approvers[approver_id] = self.approvers[approver_id].model_copy(update={"roles": ()})


@dataclass(slots=True)
class SimulatedDirectory:
    """The directory of users, agents and approvers, with faults injected at each call."""

    host: Host
    steady: bool = False

    async def knows_tenant(self, tenant_id: str) -> bool:
        await self._enter("directory.knows_tenant")
        return tenant_id == example.EXAMPLE_TENANT

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Principals | None:
        await self._enter("directory.resolve")
        users, agents, _ = example.people()
        if tenant_id != example.EXAMPLE_TENANT or user_id not in users or agent_id not in agents:
            return None
        return Principals(user=users[user_id], agent=agents[agent_id])

    async def delegation(self, tenant_id: str, token_ref: str) -> KnownDelegation | None:
        await self._enter("directory.delegation")
        return example.delegations().get(token_ref) if tenant_id == example.EXAMPLE_TENANT else None

    async def approver(self, tenant_id: str, approver_id: str) -> Approver | None:
        await self._enter("directory.approver")
        return self.host.world.people.approvers.get(approver_id) if tenant_id == example.EXAMPLE_TENANT else None

    async def held_roles(self, tenant_id: str) -> HeldRoles:
        await self._enter("directory.held_roles")
        if tenant_id != example.EXAMPLE_TENANT:
            return HeldRoles()
        users, _, _ = example.people()
        approvers = {role for one in self.host.world.people.approvers.values() for role in one.roles}
        return HeldRoles(users=tuple(sorted(one.role for one in users.values())), approvers=tuple(sorted(approvers)))

    async def _enter(self, port: str) -> None:
        if self.steady:
            return
        await self.host.enter(port)
        if self.host.world.faults.strikes("directory"):
            raise Unavailable("directory", "the simulated directory is away")


class SimulatedCode:
    """The same digests in every process and for every source, so that a seed makes the same journals."""

    def runtime(self) -> str:
        return content_address("runtime")

    def adapter(self, adapter: Adapter) -> str:
        return content_address(adapter.describe().adapter_id)

    def packages(self, _adapter: Adapter) -> None:
        """The simulated adapters import nothing."""


@dataclass(slots=True)
class SeededEntropy:
    """Random bytes that are determined by the seed."""

    rng: Random

    def take(self, count: int) -> bytes:
        return self.rng.randbytes(count)
