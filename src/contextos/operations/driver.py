"""The driver: it takes a run's lease, drives its loop until the run ends or waits, and keeps the suspended loop.

One process drives a run at a time. Inside a process the drives of a run follow each other; between processes the lease
decides, whose version is the fencing token of every commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol

import orjson

from contextos.action.registry import Registry
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import LEASES, Lease
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import Entry, Parked, Rest, SignedHead
from contextos.contracts.ports.storage import Store
from contextos.errors import Conflict, NotFound, ReplayMismatch, Unavailable
from contextos.operations.leases import Heartbeats, is_held
from contextos.operations.ports import DeploymentConfig, Ports
from contextos.operations.suspended_runs import ResumableLoop, SuspendedRun, SuspendedRuns
from contextos.queries.run_view import RunView, run_view
from contextos.runtime import state_machine
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.loop import invoke_agent
from contextos.runtime.state_machine import transition
from contextos.trust.journal.chain import refuse_unknown_semantics, verify_chain
from contextos.trust.journal.ledger import LiveDriver, RunJournal
from contextos.trust.journal.signed_heads import read_signed, verify_heads

MAX_CONFLICTS: Final = 32


class DriverContext(Protocol):
    """What the driver needs of a deployment. It is read anew for each drive, because its parts can be replaced."""

    ports: Ports
    config: DeploymentConfig
    registry: Registry

    def environment(self, tenant_id: str, journal: RunJournal) -> RunEnvironment:
        """The environment of one run."""


class RunDriver:
    """Drives runs of one deployment. Safe to use from several threads, each with its own event loop."""

    def __init__(self, deployment: DriverContext) -> None:
        self._deployment = deployment
        self._driving: dict[tuple[str, str], object] = {}
        self._suspended_runs = SuspendedRuns()
        self._heartbeats = Heartbeats(deployment.config.heartbeat_ttl_us, deployment.config.lease_ttl_us)

    async def send_heartbeats(self) -> None:
        """Record that this process still drives its `long_running` runs. Raises `Unavailable`."""
        ports = self._deployment.ports
        await self._heartbeats.send(ports.stores, ports.owner, ports.clock.now_us())

    def close(self) -> None:
        """Release suspended loops; their runs are derived from their journals when they are driven again."""
        self._suspended_runs.clear()

    async def drive(self, tenant_id: str, run_id: str, fresh: tuple[InvokeRequest, str] | None) -> RunView:
        """Drive a run until it ends or waits; drives of one run follow each other. `fresh` is the request of a new run.

        Raises:
            Conflict: another process began the `fresh` run at the same moment.
            NotFound: no such run in this tenant.
            Unavailable: another process drives the run, or a dependency did not answer.
        """
        mine = object()
        for _ in range(MAX_CONFLICTS):
            pause_us = 2_000
            while self._driving.setdefault((tenant_id, run_id), mine) is not mine:
                await self._deployment.ports.pause(pause_us)
                # Many callers can wait for one drive; polling at full speed would slow it down.
                pause_us = min(2 * pause_us, 50_000)
            try:
                async with self._deployment.ports.admission.turn(tenant_id, run_id):
                    view = await self._drive_once(tenant_id, run_id, fresh)
            except Conflict:
                if fresh is not None:
                    raise
                continue
            finally:
                del self._driving[tenant_id, run_id]
            if view is not None:
                return view
            await self._deployment.ports.pause(20_000)
        raise Unavailable("run", f"`{run_id}` is driven by another process", retry_after_ms=1_000)

    async def _drive_once(self, tenant_id: str, run_id: str, fresh: tuple[InvokeRequest, str] | None) -> RunView | None:
        store = self._deployment.ports.stores.tenant(tenant_id)
        # The fencing token is read before the journal: a driver that takes over in between has a newer token.
        lease = None if fresh else await LEASES.one(store, run_id)
        entries, heads = ((), ()) if fresh else await read_signed(store, run_id)
        if not fresh and not entries:
            raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
        suspended = None if fresh else self._suspended_runs.take((tenant_id, run_id))
        if entries and entries[-1].kind == "run.ended":
            return run_view(tenant_id, run_id, entries)
        if lease and await self._held_by_another(store, lease):
            return None
        version = lease.version if lease else 0
        if not (
            suspended
            and suspended.inputs == self._inputs(tenant_id)
            and suspended.journal.goes_on(entries, heads, version)
        ):
            suspended = self._start(tenant_id, run_id, fresh, entries, heads, version)
        journal, wake_at_us = suspended.journal, None
        if suspended.sends_heartbeats:
            self._heartbeats.begins((tenant_id, run_id), self._deployment.ports.clock.now_us())
        try:
            rest = await suspended.drive
        except Parked as parked:
            rest = parked
        finally:
            self._heartbeats.ends((tenant_id, run_id))
        if isinstance(rest, Rest | Parked):
            wake_at_us = rest.wake_at_us
            await journal.commit(wake_at_us=wake_at_us)
        if isinstance(rest, Rest):
            self._suspended_runs.keep((tenant_id, run_id), suspended)
        return run_view(tenant_id, run_id, journal.entries, wake_at_us)

    def _start(
        self,
        tenant_id: str,
        run_id: str,
        fresh: tuple[InvokeRequest, str] | None,
        entries: Sequence[Entry],
        heads: Sequence[SignedHead],
        lease_version: int,
    ) -> SuspendedRun:
        """The loop of a run from its start, over the journal as it is in the store."""
        if fresh:
            request, mark = fresh
        else:
            verify_chain(tenant_id, run_id, entries)
            # The last signed head covers all entries before it; only entries of people can come after it.
            verify_heads(tenant_id, run_id, entries, heads[-1:], self._deployment.ports.keys)
            refuse_unknown_semantics(entries)
            if entries[0].body is None:
                raise ReplayMismatch(1, entries[0].kind, "its body was erased; the run cannot go on")
            received = orjson.loads(entries[0].body)["answer"]
            request, mark = parse(InvokeRequest, received["request"]), received["fingerprint"]
        sends_heartbeats = request.mode == "long_running"
        live = LiveDriver(
            store=self._deployment.ports.stores.tenant(tenant_id),
            clock=self._deployment.ports.clock,
            entropy=self._deployment.ports.entropy,
            keys=self._deployment.ports.keys,
            owner=self._deployment.ports.owner,
            lease_ttl_us=self._deployment.config.lease_ttl_us,
            lease_version=lease_version,
            can_suspend=True,
            signed=heads[-1] if heads else None,
            silence_us=self._silence_us if sends_heartbeats else None,
            make_way=partial(self._deployment.ports.admission.yield_to_others, tenant_id, run_id),
            concurrency=self._deployment.ports.concurrency,
        )
        journal = RunJournal(tenant_id, run_id, entries, transition, state_machine.START, live)
        loop = invoke_agent(request, mark, self._deployment.environment(tenant_id, journal))
        return SuspendedRun(ResumableLoop(loop), journal, self._inputs(tenant_id), sends_heartbeats)

    def _silence_us(self) -> int:
        return self._heartbeats.silence_us(self._deployment.ports.clock.now_us())

    def _inputs(self, tenant_id: str) -> tuple[Any, ...]:
        """What the loop of a run gets from the deployment. A suspended loop is resumed only if this is unchanged."""
        deployment = self._deployment
        return deployment.ports, deployment.ports.adapters(tenant_id), deployment.registry, deployment.config

    async def _held_by_another(self, store: Store, lease: StoredDocument[Lease]) -> bool:
        if lease.body.owner == self._deployment.ports.owner:
            return False
        return await is_held(store, lease, self._deployment.ports.alive, self._deployment.ports.clock.now_us())
