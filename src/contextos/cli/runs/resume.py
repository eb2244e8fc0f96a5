"""Drive what was left: runs that are due, and runs whose driver is dead although its lease has not run out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from contextos.cli.command_context import CommandContext
from contextos.errors import Unavailable
from contextos.operations.dead_letters import listed_run_ids
from contextos.operations.deployment import due_runs

PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class DrivenRun:
    """A run that was driven, how far it is now, and what stopped it."""

    tenant_id: str
    run_id: str
    state: str
    error: BaseException | None


async def resume_due(session: CommandContext, *, patience_s: float = PATIENCE_S) -> list[DrivenRun]:
    """Drive everything that is due or orphaned and not on the dead-letter list, and say how far it came.

    A run that is still held up after `patience_s` comes back with `Unavailable`.
    """
    app, stores = session.app, session.app.deployment.ports.stores
    found = [run async for run in due_runs(app.deployment)]
    rests = {tenant: await listed_run_ids(stores.tenant(tenant)) for tenant in {tenant for tenant, _ in found}}
    runs = [(tenant, run) for tenant, run in found if run not in rests[tenant]]
    await app.engine.start()
    try:
        for tenant_id, run_id in runs:
            app.engine.submit(tenant_id, run_id)
        await _idle(app.engine, patience_s)
    finally:
        await app.engine.stop()
    failures = app.engine.failures
    driven = []
    for tenant_id, run_id in runs:
        view = await app.deployment.view(tenant_id, run_id)
        error = failures.get((tenant_id, run_id))
        if error is None and not (view.ended or (view.waiting and view.waiting["for"] != "engine")):
            error = Unavailable("run", f"`{run_id}` is held up or driven by another process")
        driven.append(DrivenRun(tenant_id, run_id, view.state, error))
    return driven


async def _idle(engine: Any, patience_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(engine.idle(), patience_s)
