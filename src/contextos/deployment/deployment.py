"""A deployment: it accepts requests, gives each run its environment, and has its driver drive the run.

It awaits its ports and nothing else, so the simulator uses the same class that `workspace` opens on real ports.
Operator actions are in `deployment.operator`, audits in `audit`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from contextos.action.barrier import Barrier
from contextos.action.breaker import CircuitBreakers
from contextos.action.breaker_adapter import BreakerAdapters, OutboundPath, SharedYield
from contextos.action.foreign_code import ForeignCode
from contextos.action.registry import Registry
from contextos.action.secret_arguments import SecretValues
from contextos.contracts.acts import RecordedAct
from contextos.contracts.documents.runs import LEASES
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.memory import MemoryProposal, ReviewRefused
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import Advance, AgentMessage, Batch, Entry
from contextos.contracts.ports.concurrency import Sequential
from contextos.contracts.scope import CODE, PACKAGES, RUNTIME
from contextos.control.artifact_repository import ActiveSeal
from contextos.control.artifacts import ACTIVE_SET_TYPE, MODELS
from contextos.control.catalog import Catalog
from contextos.control.loading import LoadedArtifacts
from contextos.decision.planners.foreign import planner_name
from contextos.deployment.driver import MAX_CONFLICTS, DrivenState, FreshRun, RunDriver
from contextos.deployment.leases import held_until_us
from contextos.deployment.lru import RecentTenants, keep_recent
from contextos.deployment.ports import DeploymentConfig, Ports
from contextos.deployment.queries.run_names import MAX_REQUESTS_OF_AN_ID, claimed_run, was_refused
from contextos.deployment.queries.run_view import RunView, run_view
from contextos.errors import Conflict, InvalidArtifact, InvalidInput, InvalidSettings, NotFound, Problem, Unavailable
from contextos.intelligence.memory import StoreMemory
from contextos.intelligence.retrieval import GraphKnowledge
from contextos.runtime.admission import parsed_request, request_fingerprint
from contextos.runtime.environment import ContextSources, DeploymentFacts, RunArtifacts, RunEnvironment, RunPorts
from contextos.runtime.inputs.request_conflicts import Difference, conflict, request_differences
from contextos.runtime.memory_policy import promotion_refusal
from contextos.runtime.redaction import redacted_request
from contextos.runtime.wiring import prepare
from contextos.trust.approvals.acts import read_act
from contextos.trust.approvals.gate_approvals import CheckQuestion
from contextos.trust.approvals.people import signer
from contextos.trust.identity.hops import use_once, with_hop
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.recorded_time import recorded_now_us
from contextos.trust.rows.edges import ControlLines, ProvedFacts, ProvedGraph
from contextos.trust.rows.memories import reviewed_memories
from contextos.trust.rows.open_places import OpenPlacesOf
from contextos.trust.seal import open_sealed, seal

MAX_CATALOGS: Final = 1_024
"""Cache size in tenants. The catalog of a tenant that is not cached is read again."""
SOON_US: Final = 2_000_000
"""`invoke` also drives a run on after a pause that is shorter than this."""


@dataclass(slots=True)
class Deployment:
    """A running deployment: accepts requests, drives runs and shows them. Safe to use from several threads with event
    loops.

    `ports`, `config` and `breakers` can be replaced between calls; a drive of a run uses the current ones.
    """

    ports: Ports
    config: DeploymentConfig
    registry: Registry = field(default_factory=Registry)
    breakers: CircuitBreakers | None = None
    _prepared: RecentlyUsed[Any] = field(default_factory=partial(RecentlyUsed, 64))
    _catalogs: OrderedDict[str, Catalog] = field(default_factory=OrderedDict)
    _facts: RecentlyUsed[Any] = field(default_factory=ProvedFacts)
    _recent_tenants: RecentTenants = field(default_factory=RecentTenants)
    _driver: RunDriver = field(init=False)
    secret_values: SecretValues = field(init=False)

    def __post_init__(self) -> None:
        planner_name(self.ports.planner)
        if self.ports.planner and isinstance(self.ports.concurrency, Sequential):
            remedy = (
                "pass `concurrency=AsyncioConcurrency()`, or open the deployment with `contextos.open(…, planner=…)`"
            )
            detail = "a planner has a time limit, and `Sequential` cannot enforce one"
            raise InvalidSettings(Problem("/planner", "no_time_limit", detail, remedy))
        self._driver = RunDriver(self)
        self.secret_values = SecretValues(self.ports.entropy.take, self.ports.owner, self.ports.alive)

    async def invoke(
        self, raw: bytes | str | Mapping[str, Any], *, named: Callable[[str], None] | None = None
    ) -> RunView:
        """Accept a request and drive its run until it ends or waits, for example for a person. Returns the state of the
        run.

        The same `request_id` is the same run, unless that run was refused before it did anything: then a corrected
        request takes the id over. A `long_running` request is only stored durably, and an engine drives its run.
        `named` is called with the id of the run before the run is driven; nothing of a new run is stored at that
        moment. If another process begins the same request at the same moment, `named` is called again, with the id of
        the other process's run.

        Raises:
            InvalidInput: the request is malformed or holds a secret, or the directory does not know its tenant; nothing
                was stored.
            ConflictingRequest: the `request_id` was used with another body.
            Overloaded: too many callers, or the tenant's quota of new runs is used up.
            Unavailable: a dependency did not answer; send the same request again.
        """
        return await self.invoke_parsed(parsed_request(raw), named=named)

    async def invoke_parsed(self, request: InvokeRequest, *, named: Callable[[str], None] | None = None) -> RunView:
        """Do as `invoke`, for a request that `parsed_request` returned and nobody has changed since. Any other request
        object is not validated here: pass its JSON to `invoke`.
        """
        fields = request.to_json()
        self._refuse_oversized(request, fields)
        if not await self.ports.directory.knows_tenant(request.tenant_id):
            # Checked before the request takes a place: invented tenants must not hold up those that exist.
            detail = f"the directory knows no tenant `{request.tenant_id[:64]}`"
            raise InvalidInput(Problem("/tenant_id", "unknown_tenant", detail, "name a tenant of the directory"))
        with self.ports.admission.caller(request.tenant_id, request.request_id):
            request, fields = await self.redacted(request, fields)
            await use_once(self.ports.stores.tenant(request.tenant_id), request)
            return await self._invoke_admitted(request, fields, named)

    async def _invoke_admitted(
        self, request: InvokeRequest, fields: dict[str, Any], named: Callable[[str], None] | None
    ) -> RunView:
        """Drive the run of a request until it ends, waits, or pauses for `SOON_US` or longer. Returns its state."""
        is_counted, fingerprint = False, request_fingerprint(fields)
        for _ in range(MAX_CONFLICTS):
            earlier_id, correction = await self._earlier_run(request, fingerprint)
            if earlier_id and request.mode == "long_running":
                if named is not None:
                    named(earlier_id)
                return await self.view(request.tenant_id, earlier_id)
            if not (earlier_id or is_counted):
                self.ports.admission.begin(request.tenant_id)
                is_counted = True
            run_id = earlier_id or f"run_{self.ports.entropy.take(8).hex()}"
            if named is not None:
                named(run_id)
            try:
                new_run = None if earlier_id else FreshRun(request, fields, fingerprint, correction)
                state = await self._drive(request.tenant_id, run_id, new_run)
            except Conflict:
                continue
            return state.view if request.mode == "long_running" else (await self._drive_through_pauses(state)).view
        raise Unavailable("store", "too many processes change this run at the same time")

    async def _drive_through_pauses(self, state: DrivenState) -> DrivenState:
        """Drive a run on after each pause that is shorter than `SOON_US`."""
        for _ in range(MAX_CONFLICTS):
            view = state.view
            if not view.wake_at_us or view.ended or view.wake_at_us - self.ports.clock.now_us() >= SOON_US:
                break
            await self.ports.pause(max(view.wake_at_us - self.ports.clock.now_us(), 1_000))
            state = await self._drive(view.tenant_id, view.run_id, None)
        return state

    async def advance(self, tenant_id: str, run_id: str) -> Advance:
        """Continue a run from its journal until it ends or waits. An engine calls this for each run that is due."""
        view = (await self._drive(tenant_id, run_id, None)).view
        return Advance(view.state, None if view.ended else view.wake_at_us or 0)

    async def say(self, tenant_id: str, run_id: str, message: AgentMessage | None) -> DrivenState:
        """Record the next message of a session's agent, and drive the session until it waits or has ended. A pause that
        is shorter than `SOON_US` is waited for.

        A message whose kind and key are recorded already is not recorded again. With None the session goes on with the
        messages that were recorded before.
        """
        return await self._drive_through_pauses(await self._drive(tenant_id, run_id, None, message))

    async def send_heartbeats(self) -> None:
        """Record that this process still drives its `long_running` runs. An engine calls this often.

        Raises:
            Unavailable: the store does not answer; call it again.
        """
        await self._driver.send_heartbeats()

    def at_question(self, tenant_id: str, entries: Sequence[Entry]) -> CheckQuestion | None:
        """As `RunDriver.at_question`."""
        return self._driver.at_question(tenant_id, entries)

    def close(self) -> None:
        """Release the runs that wait in memory; each is rebuilt from its journal when it is driven again."""
        self._driver.close()

    async def view(self, tenant_id: str, run_id: str) -> RunView:
        """Return the current state of a run without driving it. Raises `NotFound`."""
        entries = await self.ports.stores.tenant(tenant_id).read(run_id)
        if not entries:
            raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs list`")
        return run_view(tenant_id, run_id, entries)

    def catalog(self, tenant_id: str) -> Catalog:
        """Return the catalog of a tenant: its published packs and policies."""
        catalog = self._catalogs.get(tenant_id) or Catalog(
            self.ports.stores.tenant(tenant_id),
            tenant_id=tenant_id,
            runtime_version=self.config.runtime_version,
            open_envelope=self._open_envelope,
            active_seal=ActiveSeal(self._seal_active, self._open_active, self._read_act, self.config.environment),
            allow_unsigned=self.config.allow_unsigned,
            check_pins=self._check_pins,
            egress=self.config.egress.get(tenant_id, ()),
            redaction=self.config.redaction.get(tenant_id, ()),
        )
        self._recent_tenants.note(tenant_id)
        return keep_recent(self._catalogs, tenant_id, catalog, MAX_CATALOGS)

    def graph(self, tenant_id: str, looked: ControlLines | None = None) -> ProvedGraph:
        """Return the graph of a tenant. It reads only the edges that a sealed act of their writer states."""
        graph, control_lines = self.ports.stores.graph(tenant_id), looked or self.ports.stores.tenant(tenant_id)
        return ProvedGraph(tenant_id, graph, control_lines, self.ports.keys, self._facts)

    async def promotion_refusal(self, tenant_id: str, proposal: MemoryProposal, reviewer: str) -> ReviewRefused | None:
        """Return why policy does not let `reviewer` promote a proposed memory now, or None."""
        entries = await self.ports.stores.tenant(tenant_id).read(proposal.run_id)
        definitions = {name: adapter.describe() for name, adapter in self.ports.adapters(tenant_id).items()}
        approver = await self.ports.directory.approver(tenant_id, reviewer)
        roles = approver.roles if approver else ()
        return await promotion_refusal(proposal, entries, self.catalog(tenant_id), definitions, roles)

    def tenants(self) -> tuple[str, ...]:
        """Return the tenants whose journal heads are due to be published: those served since the last publication.

        A head is the signed length of a stream and the hash of its last entry. The witness keeps heads outside this
        store, so that it shows which entries were cut off here.
        """
        return self._recent_tenants.names()

    def heads_published(self) -> None:
        """Record that the signed journal heads of all `tenants()` were published to the witness."""
        self._recent_tenants.heads_published()

    def _check_pins(self, loaded: LoadedArtifacts) -> None:
        """Check that the pinned policies compile together, and that an observing pack is allowed to observe here.

        Raises `InvalidArtifact`, which refuses the run.
        """
        prepare(loaded, self.registry)
        meta = loaded.pack.pack_meta
        if (
            meta.mode == "observe"
            and self.config.profile == "service"
            and meta.pack_id not in self.config.observed_packs
        ):
            detail = f"`{meta.pack_id}` observes and stops no call, and this deployment is a service"
            remedy = "list the pack in the setting `observed_packs`, or publish it with `mode: enforce`"
            raise InvalidArtifact(Problem("/pack_meta/mode", "observe_not_stated", detail, remedy))

    def _open_envelope(self, envelope: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the media type and the verified bytes of a published artifact."""
        return str(envelope["payloadType"]), open_sealed(envelope, self.ports.keys, "pack", MODELS)

    async def refuse_retired(self, tenant_id: str, envelope: Mapping[str, Any]) -> None:
        """Check that the key of an artifact that is published now is not retired. Raises `SignatureInvalid`.

        An artifact that was published before stays readable, whatever becomes of its key.
        """
        if envelope["signatures"]:
            now_us = await recorded_now_us(self.ports, tenant_id)
            open_sealed(dict(envelope), self.ports.keys, "pack", MODELS, at_us=now_us)

    def _seal_active(self, content: bytes) -> dict[str, Any]:
        """Return the active set of a tenant in an envelope that the runtime signed."""
        return seal(ACTIVE_SET_TYPE, content, self.ports.keys, "active")

    def _open_active(self, envelope: Mapping[str, Any]) -> bytes:
        return open_sealed(dict(envelope), self.ports.keys, "active", {ACTIVE_SET_TYPE})

    def _read_act(self, entry: Entry) -> RecordedAct:
        return read_act(entry, self.ports.keys)

    def environment(self, tenant_id: str, journal: RunJournal) -> RunEnvironment:
        """Build the environment of one run: the external systems, and the packs and policies of its tenant."""
        ports, store, pressure = self.ports, self.ports.stores.tenant(tenant_id), self.config.pressure
        turn = SharedYield(partial(ports.admission.yield_turn, tenant_id, journal.run_id))
        adapters = ports.adapters(tenant_id)
        code = {CODE + name: ports.code.adapter(adapter) for name, adapter in adapters.items()}
        packages = {PACKAGES + name: ports.code.packages(adapter) for name, adapter in adapters.items()}
        foreign, catalog = ForeignCode(ports.concurrency, ports.report_fault), self.catalog(tenant_id)
        barrier = Barrier(store, journal.run_id, catalog.repository.active_sought)
        outbound = OutboundPath(tenant_id, store, ports.clock, ports.owner, self.breakers, turn, foreign)
        return RunEnvironment(
            journal=journal,
            ports=RunPorts(
                store=store,
                clock=ports.clock,
                keys=ports.keys,
                directory=ports.directory,
                signer=partial(signer, ports, tenant_id, looked=barrier.lines),
                adapters=BreakerAdapters(adapters, outbound),
                code={RUNTIME: ports.code.runtime(), **code},
                packages={name: source for name, source in packages.items() if source is not None},
                credentials=ports.credentials,
                concurrency=ports.concurrency,
                models=ports.models,
                turn=turn,
            ),
            sources=ContextSources(
                knowledge=GraphKnowledge(self.graph(tenant_id, barrier)),
                memory=StoreMemory(store, lambda: journal.time_us, partial(reviewed_memories, store, ports.keys)),
                slots=ports.slots(tenant_id) if ports.slots else None,
                attachments=ports.attachments,
            ),
            artifacts=RunArtifacts(catalog, self.registry, self._prepared, ports.estimator),
            deployment=DeploymentFacts(
                limits=self.config.limits,
                runtime_version=self.config.runtime_version,
                profile=self.config.profile,
                environment=self.config.environment,
                unsafe=self.config.unsafe,
                unsafe_now=self.config.unsafe,
                unsafe_stated_by=self.config.unsafe_stated_by,
                address=self.config.address,
            ),
            barrier=barrier,
            planner=ports.planner,
            secret_values=self.secret_values,
            places=OpenPlacesOf(store, pressure.max_open_questions_per_role, pressure.max_open_sessions_per_agent),
        )

    def _refuse_oversized(self, request: InvokeRequest, fields: Mapping[str, Any]) -> None:
        limit = self.config.limits.max_payload_bytes
        allowed = min(limit, request.runtime.max_payload_bytes or limit)
        if len(canonical(fields)) > allowed:
            detail = f"the request is larger than {allowed} bytes"
            raise InvalidInput(Problem("", "too_large", detail, "send less, or set a larger `max_payload_bytes`"))

    async def redacted(self, request: InvokeRequest, fields: dict[str, Any]) -> tuple[InvokeRequest, dict[str, Any]]:
        """Return a request and its wire form as a run records them: redacted, and with the proved content of a
        partner's claim in place of the claim. Raises `InvalidInput` and `Unavailable`.
        """
        request, fields = await with_hop(request, fields, self.ports.partners, self.ports.clock)
        return await redacted_request(request, fields, self.catalog(request.tenant_id), self.ports.directory)

    async def _earlier_run(self, request: InvokeRequest, fingerprint: str) -> tuple[str | None, int]:
        """Return the id of the run that this request made before, or None, and the count of requests with its id up to
        this one: a refused request can be sent again, corrected.
        """
        store = self.ports.stores.tenant(request.tenant_id)
        claim, uses = await claimed_run(store, request.request_id, fingerprint)
        if claim is None:
            return None, 1
        if claim.fingerprint != fingerprint:
            if (refused := await was_refused(store, claim.run_id)) and uses < MAX_REQUESTS_OF_AN_ID:
                return None, uses + 1
            hint = f"this id had its {uses} requests: use a new one" if refused else "send that again, or use a new id"
            changes = await self._differences(request, claim.run_id)
            raise conflict("/request_id", f"`{request.request_id}` was used last", changes, hint)
        return claim.run_id, uses

    async def differing(self, raw: Mapping[str, Any]) -> list[Difference]:
        """Return how a request differs from the last request with the same id; an empty list if that one was erased."""
        request = parsed_request(raw)
        request, _ = await self.redacted(request, request.to_json())
        claim, _ = await claimed_run(self.ports.stores.tenant(request.tenant_id), request.request_id)
        return await self._differences(request, claim.run_id) if claim else []

    async def _differences(self, request: InvokeRequest, run_id: str) -> list[Difference]:
        entries = await self.ports.stores.tenant(request.tenant_id).read(run_id, limit=1)
        recorded = read_body(entries[0]) if entries else None
        return request_differences(recorded["request"], request.to_json()) if recorded else []

    async def _drive(
        self, tenant_id: str, run_id: str, new_run: FreshRun | None, message: AgentMessage | None = None
    ) -> DrivenState:
        try:
            return await self._driver.drive(tenant_id, run_id, new_run, message)
        finally:
            # A run that was driven for long moved its stream heads only now.
            self._recent_tenants.note(tenant_id)


@dataclass(frozen=True, slots=True)
class DrivenRun:
    """The result of driving a run: its state now, and the error that stopped it, or None."""

    tenant_id: str
    run_id: str
    state: str
    error: BaseException | None


async def due_runs(deployment: Deployment, *, limit: int = 1000) -> AsyncIterator[tuple[str, str]]:
    """Yield (tenant, run) of each run that can be driven now: it is due, or the process that drove it is dead or
    silent.

    A lease wakes its run when it expires, so a run of a dead process is due at most one lease from now.
    """
    ports, now_us = deployment.ports, deployment.ports.clock.now_us()
    due_keys = {key async for key in ports.stores.due(now_us, limit=limit)}
    async for tenant_id, run_id in ports.stores.due(now_us + deployment.config.lease_ttl_us, limit=limit):
        store = ports.stores.tenant(tenant_id)
        lease = await LEASES.one(store, run_id)
        if lease and await held_until_us(store, lease, ports.alive, now_us) > now_us:
            continue
        # The lease was not released, and nobody holds it. A heartbeat can have moved its wake past the owner's silence.
        orphaned = lease is not None and lease.body.until_us > 0
        if orphaned or (tenant_id, run_id) in due_keys:
            yield tenant_id, run_id


async def wake_orphans(deployment: Deployment) -> None:
    """Make each run due whose driver is dead, for example the runs that a killed server was answering. The workers then
    share these runs like any others. Raises `Unavailable`.
    """
    ports = deployment.ports
    async for tenant_id, run_id in due_runs(deployment):
        store = ports.stores.tenant(tenant_id)
        lease = await LEASES.one(store, run_id)
        if lease and lease.body.until_us > 0 and not ports.alive(lease.body.owner):
            # A conflict is a commit of the run's driver, so the driver lives after all.
            with suppress(Conflict):
                fence = LEASES.check(run_id, lease.version)
                await store.commit(Batch(run=run_id, writes=(fence,), wake_at_us=ports.clock.now_us()))


__all__ = ["Deployment", "DeploymentConfig", "DrivenRun", "Ports", "due_runs", "wake_orphans"]
