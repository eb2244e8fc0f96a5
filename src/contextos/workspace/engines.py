"""Makes the engines of a deployment, publishes its heads to the witness, and asks the witness about tenants."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from contextos.contracts.ports.claims import ClaimLimits
from contextos.deployment.deployment import Deployment, due_runs, wake_orphans
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import Unavailable
from contextos.telemetry.logs import error_fields
from contextos.workspace.engine.failure_tracker import OnFailure
from contextos.workspace.engine.lease_owner import LeasedOwner, Owner
from contextos.workspace.engine.local import EngineLimits, LocalEngine
from contextos.workspace.engine.sweeper import PublishHeads
from contextos.workspace.settings import Settings

if TYPE_CHECKING:
    from contextos.workspace.engine.shared import SharedEngine

_LOG: Final = logging.getLogger("contextos.workspace")


def worker_engine(
    deployment: Deployment,
    settings: Settings,
    owner: Owner | LeasedOwner,
    witness_publisher: WitnessPublisher | None,
    on_failure: OnFailure | None,
    *,
    drives: bool,
) -> LocalEngine | SharedEngine:
    """Return the engine of a worker process. Without `drives` it takes no run."""
    driving, ports = settings.driving, deployment.ports
    max_drives = driving.max_drives if drives else 0
    if isinstance(owner, Owner):
        limits_here = EngineLimits(max_drives=max_drives, max_drives_per_tenant=driving.max_drives_per_tenant)
        return local_engine(deployment, witness_publisher, limits_here, on_failure)
    from contextos.store.postgres.claims import PostgresClaims
    from contextos.workspace.engine.shared import SharedEngine, SharedLimits

    limits = ClaimLimits(
        per_tenant=driving.max_drives_per_tenant,
        per_tenant_in_all=driving.max_drives_per_tenant_in_all,
        rate_per_tenant=driving.rate_per_tenant,
        rate_period_ms=driving.rate_period_ms,
    )
    return SharedEngine(
        deployment.advance,
        ports.stores,
        ports.clock,
        PostgresClaims(settings.store, owner.id, ports.clock, limits),
        on_dead=owner.set_dead,
        wake_orphans=partial(wake_orphans, deployment),
        witness=_publisher(deployment, witness_publisher),
        heartbeat=deployment.send_heartbeats,
        limits=SharedLimits(max_drives=max_drives, claims=limits),
        on_failure=on_failure,
    )


def local_engine(
    deployment: Deployment,
    witness_publisher: WitnessPublisher | None,
    limits: EngineLimits | None = None,
    on_failure: OnFailure | None = None,
) -> LocalEngine:
    """Return an engine that drives the due runs of a deployment in this process."""
    return LocalEngine(
        deployment.advance,
        deployment.ports.stores,
        deployment.ports.clock,
        orphans=partial(due_runs, deployment),
        witness=_publisher(deployment, witness_publisher),
        heartbeat=deployment.send_heartbeats,
        limits=limits,
        on_failure=on_failure,
    )


def _publisher(deployment: Deployment, witness_publisher: WitnessPublisher | None) -> PublishHeads | None:
    return partial(publish_heads, witness_publisher, deployment) if witness_publisher else None


async def publish_heads(witness_publisher: WitnessPublisher, deployment: Deployment) -> None:
    """Publish the heads of the tenants that were active lately to the witness. Raises as `WitnessPublisher.publish`."""
    await witness_publisher.publish(deployment.tenants())
    deployment.heads_published()


async def ask_witness(witness_publisher: WitnessPublisher, tenant_id: str) -> None:
    """Ask the witness about a tenant that this process uses for the first time. If it does not answer, that is logged.

    Raises:
        Integrity: the streams of the tenant lack entries that were witnessed, as after a backup was put back.
    """
    try:
        await witness_publisher.check_once(tenant_id)
    except Unavailable as error:
        _LOG.warning("witness not asked", extra=error_fields(error))
