"""Find the runs that can be driven now: those that are due, and those whose driver is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextos.contracts.documents.runs import LEASES
from contextos.operations.heartbeats import is_held

if TYPE_CHECKING:
    from contextos.operations.deployment import Deployment


@dataclass(frozen=True, slots=True)
class DrivenRun:
    """A run that was driven: its state now, and the error that stopped it, if one did."""

    tenant_id: str
    run_id: str
    state: str
    error: BaseException | None


async def due_runs(deployment: Deployment, *, limit: int = 1000) -> AsyncIterator[tuple[str, str]]:
    """(tenant, run) of each run that can be driven now: it is due, or the owner of its lease is dead or silent.

    A lease wakes its run when it expires, so a run of a dead owner is due at most one lease from now.
    """
    ports, now_us = deployment.ports, deployment.ports.clock.now_us()
    due = {run async for run in ports.stores.due(now_us, limit=limit)}
    async for tenant_id, run_id in ports.stores.due(now_us + deployment.lease_ttl_us, limit=limit):
        store = ports.stores.tenant(tenant_id)
        lease = await LEASES.one(store, run_id)
        if lease and await is_held(store, lease, ports.alive, now_us):
            continue
        # The lease was neither released nor is it held. A heartbeat can have moved its wake past the owner's silence.
        orphaned = lease is not None and lease.body.until_us > 0
        if orphaned or (tenant_id, run_id) in due:
            yield tenant_id, run_id
