"""A deployment: it gives each run a journal and a world, calls `invoke_agent`, and says how far the run came.

It awaits its ports and nothing else, so the simulator drives the same class that `app` opens on real ones. What
operators do stands in `desk`, what auditors do in `audit`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from contextos.action.breaker import CircuitBreakers
from contextos.action.breaker_adapter import BreakerAdapters, OutboundPath, SharedYield
from contextos.action.registry import Registry
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import LEASES, REQUESTS, Lease
from contextos.contracts.encoding.codec import MAX_BYTES, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import Advance, Entry, Parked, Rest, SignedHead
from contextos.contracts.ports.storage import Store
from contextos.control.artifacts import MODELS
from contextos.control.catalog import Catalog, LoadedArtifacts
from contextos.decision.planners.foreign import planner_name
from contextos.errors import Conflict, ConflictingRequest, InvalidInput, NotFound, Problem, ReplayMismatch, Unavailable
from contextos.intelligence.memory import StoreMemory
from contextos.intelligence.retrieval import GraphKnowledge
from contextos.operations.heartbeats import Heartbeats, is_held
from contextos.operations.lru import RecentTenants, keep_recent
from contextos.operations.ports import Ports
from contextos.operations.suspended_runs import ResumableLoop, SuspendedRun, SuspendedRuns
from contextos.queries.run_view import RunView, run_view
from contextos.runtime import state_machine
from contextos.runtime.admission import request_fingerprint
from contextos.runtime.loop import invoke_agent
from contextos.runtime.state_machine import transition
from contextos.runtime.wiring import RunEnvironment, RunLimits, compile_pinned_policy
from contextos.trust.journal.chain import refuse_unknown_semantics, verify_chain
from contextos.trust.journal.ledger import LiveDriver, RunJournal
from contextos.trust.journal.signed_heads import read_signed, verify_heads
from contextos.trust.policy.policy_set import PolicySet
from contextos.trust.seal import open_sealed

MAX_CONFLICTS: Final = 32
MAX_CATALOGS: Final = 1_024
"""Of so many tenants what was read is kept; any caller may name another."""
SOON_US: Final = 2_000_000
"""A run that parks for less than this is driven on by who invoked it."""


@dataclass(slots=True)
class Deployment:
    """Invoke, advance, look. Safe to use from several threads, each with its own event loop."""

    ports: Ports
    limits: RunLimits
    runtime_version: str
    profile: str = "embedded"
    unsafe: tuple[str, ...] = ()
    allow_unsigned: bool = False
    lease_ttl_us: int = 180_000_000
    heartbeat_ttl_us: int = 60_000_000
    registry: Registry = field(default_factory=Registry)
    breakers: CircuitBreakers | None = None
    _policies: dict[str, PolicySet] = field(default_factory=dict)
    _catalogs: OrderedDict[str, Catalog] = field(default_factory=OrderedDict)
    _lately: RecentTenants = field(default_factory=RecentTenants)
    _driving: dict[tuple[str, str], object] = field(default_factory=dict)
    _resting: SuspendedRuns = field(default_factory=SuspendedRuns)
    _heart: Heartbeats = field(init=False)

    def __post_init__(self) -> None:
        planner_name(self.ports.planner)
        self._heart = Heartbeats(self.heartbeat_ttl_us, self.lease_ttl_us)

    async def invoke(self, raw: bytes | str | Mapping[str, Any]) -> RunView:
        """Take a request to its end or to where it waits. The same request again is the same run.

        A `long_running` one is only received: when this returns it is durable, and an engine drives it.

        Raises:
            InvalidInput: the request is malformed; nothing was stored.
            ConflictingRequest: its `request_id` was used with another body.
            Overloaded: there is no room for another caller, or the tenant's quota of new runs is used up.
            Unavailable: a dependency did not answer; send the same request again.
        """
        sent = raw if isinstance(raw, bytes | str) else canonical(dict(raw))
        request = parse(InvokeRequest, sent, max_bytes=MAX_BYTES)
        self._fits(request)
        with self.ports.admission.caller(request.tenant_id):
            return await self._taken(request, request_fingerprint(request))

    async def _taken(self, request: InvokeRequest, mark: str) -> RunView:
        """The run of a request, driven until it ends, waits, or parks for long."""
        counted = False
        for _ in range(MAX_CONFLICTS):
            known = await self._known(request, mark)
            if known and request.mode == "long_running":
                return await self.view(request.tenant_id, known)
            if not (known or counted):
                self.ports.admission.begin(request.tenant_id)
                counted = True
            run_id = known or f"run_{self.ports.entropy.take(8).hex()}"
            try:
                view = await self._drive(request.tenant_id, run_id, None if known else (request, mark))
            except Conflict:
                continue
            if request.mode == "long_running":
                return view
            for _ in range(MAX_CONFLICTS):
                if not view.wake_at_us or view.ended or view.wake_at_us - self.ports.clock.now_us() >= SOON_US:
                    break
                await self.ports.pause(max(view.wake_at_us - self.ports.clock.now_us(), 1_000))
                view = await self._drive(request.tenant_id, run_id, None)
            return view
        raise Unavailable("store", "too many others change this run at the same time")

    async def advance(self, tenant_id: str, run_id: str) -> Advance:
        """Drive a run from its journal until it ends or waits. What an engine calls."""
        view = await self._drive(tenant_id, run_id, None)
        return Advance(view.state, None if view.ended else view.wake_at_us or 0)

    async def beat(self) -> None:
        """Say of the `long_running` runs that are driven here that their driver lives. An engine calls it often.

        Raises:
            Unavailable: the store does not answer; call it again.
        """
        await self._heart.beat(self.ports.stores, self.ports.owner, self.ports.clock.now_us())

    def close(self) -> None:
        """Let go of loops that rest; their runs are derived from the journal when somebody drives them."""
        self._resting.clear()

    async def view(self, tenant_id: str, run_id: str) -> RunView:
        """A run as it stands, without driving it. Raises `NotFound`."""
        entries = await self.ports.stores.tenant(tenant_id).read(run_id)
        if not entries:
            raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
        return run_view(tenant_id, run_id, entries)

    def catalog(self, tenant_id: str) -> Catalog:
        """The governed artifacts of a tenant."""
        catalog = self._catalogs.get(tenant_id) or Catalog(
            self.ports.stores.tenant(tenant_id),
            tenant_id=tenant_id,
            runtime_version=self.runtime_version,
            open_envelope=self._open,
            allow_unsigned=self.allow_unsigned,
            check_pins=self._judge,
        )
        self._lately.note(tenant_id)
        return keep_recent(self._catalogs, tenant_id, catalog, MAX_CATALOGS)

    def tenants(self) -> tuple[str, ...]:
        """The tenants that this deployment has had to do with of late."""
        return self._lately.names()

    def told(self) -> None:
        """The witness was told of all `tenants`."""
        self._lately.told()

    def _judge(self, loaded: LoadedArtifacts) -> None:
        """Whether the rules of what was just pinned compile together. Raises `InvalidArtifact`: the run is refused."""
        compile_pinned_policy(loaded, self.registry)

    def _open(self, envelope: Mapping[str, Any]) -> tuple[str, bytes]:
        """The type and the verified bytes of a published artifact."""
        return str(envelope["payloadType"]), open_sealed(envelope, self.ports.keys, "pack", MODELS)

    def world(self, tenant_id: str, journal: RunJournal) -> RunEnvironment:
        """The live outside of one run."""
        ports, store = self.ports, self.ports.stores.tenant(tenant_id)
        aside = SharedYield(partial(ports.admission.aside, tenant_id, journal.run_id))
        way = OutboundPath(tenant_id, store, ports.clock, ports.owner, self.breakers, aside)
        return RunEnvironment(
            journal=journal,
            store=store,
            clock=ports.clock,
            keys=ports.keys,
            directory=ports.directory,
            catalog=self.catalog(tenant_id),
            knowledge=GraphKnowledge(ports.graph(tenant_id)),
            memory=StoreMemory(store, ports.clock),
            slots=ports.slots(tenant_id) if ports.slots else None,
            adapters=BreakerAdapters(ports.adapters(tenant_id), way),
            registry=self.registry,
            policies=self._policies,
            estimator=ports.estimator,
            limits=self.limits,
            runtime_version=self.runtime_version,
            profile=self.profile,
            unsafe=self.unsafe,
            unsafe_now=self.unsafe,
            planner=ports.planner,
            concurrency=ports.concurrency,
        )

    def _fits(self, request: InvokeRequest) -> None:
        allowed = min(self.limits.max_payload_bytes, request.runtime.max_payload_bytes or self.limits.max_payload_bytes)
        if len(canonical(request.to_json())) > allowed:
            detail = f"the request is larger than {allowed} bytes"
            raise InvalidInput(Problem("", "too_large", detail, "send less, or ask for a larger `max_payload_bytes`"))

    async def _known(self, request: InvokeRequest, mark: str) -> str | None:
        """The run that this request already is, if it is one."""
        claim = await REQUESTS.one(self.ports.stores.tenant(request.tenant_id), request.request_id)
        if claim is None:
            return None
        if claim.body.fingerprint != mark:
            detail = f"`{request.request_id}` was used before with another body"
            raise ConflictingRequest(Problem("/request_id", "conflicting_request", detail, "use a new request id"))
        return claim.body.run_id

    async def _drive(self, tenant_id: str, run_id: str, fresh: tuple[InvokeRequest, str] | None) -> RunView:
        """One drive here, or the view of a run that somebody else is driving once they let it go."""
        mine = object()
        for _ in range(MAX_CONFLICTS):
            pause_us = 2_000
            while self._driving.setdefault((tenant_id, run_id), mine) is not mine:
                await self.ports.pause(pause_us)
                # Many wait for one; if all of them looked all the time, the one would not get on.
                pause_us = min(2 * pause_us, 50_000)
            try:
                async with self.ports.admission.turn(tenant_id, run_id):
                    view = await self._drive_once(tenant_id, run_id, fresh)
            except Conflict:
                if fresh is not None:
                    raise
                continue
            finally:
                del self._driving[tenant_id, run_id]
                # Once more: what was driven for long moved its heads only now.
                self._lately.note(tenant_id)
            if view is not None:
                return view
            await self.ports.pause(20_000)
        raise Unavailable("run", f"`{run_id}` is driven by another process", retry_after_ms=1_000)

    async def _drive_once(self, tenant_id: str, run_id: str, fresh: tuple[InvokeRequest, str] | None) -> RunView | None:
        store = self.ports.stores.tenant(tenant_id)
        # The fencing token is read first: whoever drives on meanwhile has a newer one.
        lease = None if fresh else await LEASES.one(store, run_id)
        entries, heads = ((), ()) if fresh else await read_signed(store, run_id)
        if not fresh and not entries:
            raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
        resting = None if fresh else self._resting.take((tenant_id, run_id))
        if entries and entries[-1].kind == "run.ended":
            return run_view(tenant_id, run_id, entries)
        if lease and await self._held_by_another(store, lease):
            return None
        version = lease.version if lease else 0
        if not (
            resting and resting.outside == self._outside(tenant_id) and resting.journal.goes_on(entries, heads, version)
        ):
            resting = self._begin(tenant_id, run_id, fresh, entries, heads, version)
        journal, wake_at_us = resting.journal, None
        if resting.beats:
            self._heart.begins((tenant_id, run_id), self.ports.clock.now_us())
        try:
            rest = await resting.drive
        except Parked as parked:
            rest = parked
        finally:
            self._heart.ends((tenant_id, run_id))
        if isinstance(rest, Rest | Parked):
            wake_at_us = rest.wake_at_us
            await journal.commit(wake_at_us=wake_at_us)
        if isinstance(rest, Rest):
            self._resting.keep((tenant_id, run_id), resting)
        return run_view(tenant_id, run_id, journal.entries, wake_at_us)

    def _begin(
        self,
        tenant_id: str,
        run_id: str,
        fresh: tuple[InvokeRequest, str] | None,
        entries: Sequence[Entry],
        heads: Sequence[SignedHead],
        lease_version: int,
    ) -> SuspendedRun:
        """The loop of a run at its start, over the journal as it is in the store."""
        if fresh:
            request, mark = fresh
        else:
            verify_chain(tenant_id, run_id, entries)
            # The last signed head covers all before it; nothing but what people say may come after.
            verify_heads(tenant_id, run_id, entries, heads[-1:], self.ports.keys)
            refuse_unknown_semantics(entries)
            if entries[0].body is None:
                raise ReplayMismatch(1, entries[0].kind, "its body was erased; the run cannot go on")
            received = orjson.loads(entries[0].body)["answer"]
            request, mark = parse(InvokeRequest, received["request"]), received["fingerprint"]
        beats = request.mode == "long_running"
        live = LiveDriver(
            store=self.ports.stores.tenant(tenant_id),
            clock=self.ports.clock,
            entropy=self.ports.entropy,
            keys=self.ports.keys,
            owner=self.ports.owner,
            lease_ttl_us=self.lease_ttl_us,
            lease_version=lease_version,
            takes_rests=True,
            signed=heads[-1] if heads else None,
            silence_us=self._silence_us if beats else None,
            make_way=partial(self.ports.admission.make_way, tenant_id, run_id),
            concurrency=self.ports.concurrency,
        )
        journal = RunJournal(tenant_id, run_id, entries, transition, state_machine.START, live)
        loop = invoke_agent(request, mark, self.world(tenant_id, journal))
        return SuspendedRun(ResumableLoop(loop), journal, self._outside(tenant_id), beats)

    def _silence_us(self) -> int:
        return self._heart.silence_us(self.ports.clock.now_us())

    def _outside(self, tenant_id: str) -> tuple[Any, ...]:
        """Everything of this deployment that a loop was given, to tell whether it would be given the same again."""
        return (
            self.ports,
            self.ports.adapters(tenant_id),
            self.registry,
            self.limits,
            self.runtime_version,
            self.profile,
            self.unsafe,
            self.allow_unsigned,
            self.lease_ttl_us,
        )

    async def _held_by_another(self, store: Store, lease: StoredDocument[Lease]) -> bool:
        if lease.body.owner == self.ports.owner:
            return False
        return await is_held(store, lease, self.ports.alive, self.ports.clock.now_us())


__all__ = ["Deployment", "Ports", "request_fingerprint", "transition"]
