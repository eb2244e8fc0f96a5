"""`contextos runs resume`: drive each run that is due, one time, as after a crash or a restart.

A run is due if it waits for no person and its time to continue has come.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from contextos.deployment.dead_letters import listed_run_ids
from contextos.deployment.deployment import DrivenRun, due_runs
from contextos.errors import Unavailable

if TYPE_CHECKING:
    from contextos.deployment.deployment import Deployment
    from contextos.workspace.engine.local import LocalEngine

PATIENCE_S: Final = 60.0


async def drive_due_runs(
    deployment: Deployment, engine: LocalEngine, *, patience_s: float = PATIENCE_S
) -> list[DrivenRun]:
    """Drive every due run that is not a dead letter, and return one result for each.

    Starts and stops `engine`. A run that still cannot go on after `patience_s` seconds has `Unavailable` as the error
    of its result.
    """
    stores = deployment.ports.stores
    due = [run async for run in due_runs(deployment)]
    tenant_ids = {tenant_id for tenant_id, _ in due}
    dead = {tenant_id: await listed_run_ids(stores.tenant(tenant_id)) for tenant_id in tenant_ids}
    runs = [(tenant_id, run_id) for tenant_id, run_id in due if run_id not in dead[tenant_id]]
    await engine.start()
    try:
        for tenant_id, run_id in runs:
            engine.submit(tenant_id, run_id)
        with suppress(TimeoutError):
            await asyncio.wait_for(engine.idle(), patience_s)
    finally:
        await engine.stop()
    results = []
    for tenant_id, run_id in runs:
        view = await deployment.view(tenant_id, run_id)
        error = engine.failures.get((tenant_id, run_id))
        if error is None and not (view.ended or (view.waiting and view.waiting["for"] != "engine")):
            error = Unavailable("run", f"`{run_id}` is held up or driven by another process")
        results.append(DrivenRun(tenant_id, run_id, view.state, error))
    return results
