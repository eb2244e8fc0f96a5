"""Drive what was left: runs that are due, and runs whose driver is dead although its lease has not run out."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from contextos.cli.opening import Session
from contextos.cli.terminal import remark
from contextos.errors import Unavailable

PAGE: Final = 1000
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Driven:
    """A run that was driven, how far it is now, and what stopped it."""

    tenant_id: str
    run_id: str
    state: str
    error: BaseException | None


async def resume_due(session: Session, *, wait: bool, patience_s: float = PATIENCE_S) -> list[Driven]:
    """Drive everything that is due or orphaned, and say how far it came; with `wait` until interrupted.

    A run that is still held up after `patience_s` comes back with `Unavailable`.
    """
    app = session.app
    runs = await _due(session)
    await app.engine.start()
    try:
        for tenant_id, run_id in runs:
            app.engine.submit(tenant_id, run_id)
        if wait:
            await _interrupted()
        else:
            await _idle(app.engine, patience_s)
    finally:
        await app.engine.stop()
    failures = app.engine.failures
    driven = []
    for tenant_id, run_id in runs:
        view = await app.deployment.view(tenant_id, run_id)
        error = failures.get((tenant_id, run_id))
        if error is None and not (view.ended or view.waiting):
            error = Unavailable("run", f"`{run_id}` is held up or driven by another process")
        driven.append(Driven(tenant_id, run_id, view.state, error))
    return driven


async def _due(session: Session) -> list[tuple[str, str]]:
    """Runs that are due now, and those under the lease of an owner that no longer lives."""
    ports = session.app.deployment.ports
    now_us = ports.clock.now_us()
    due = {run async for run in ports.stores.due(now_us, limit=PAGE)}
    found = []
    async for tenant_id, run_id in ports.stores.due(now_us + session.app.deployment.lease_ttl_us, limit=PAGE):
        leases = await ports.stores.tenant(tenant_id).scan("leases", key=run_id)
        held: dict[str, Any] = orjson.loads(leases[0].body) if leases else {"until_us": 0}
        orphaned = held["until_us"] > now_us and not ports.alive(held["owner"])
        if orphaned or ((tenant_id, run_id) in due and held["until_us"] <= now_us):
            found.append((tenant_id, run_id))
    return found


async def _idle(engine: Any, patience_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(engine.idle(), patience_s)


async def _interrupted() -> None:
    """Return at SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    remark("driving what comes due; interrupt to stop")
    await stop.wait()
