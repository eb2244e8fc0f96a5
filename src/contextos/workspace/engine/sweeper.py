"""`Sweeper`: finds the runs that are due or lost their driver, and runs the periodic tasks of every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextos.deployment.dead_letters import listed_run_ids
from contextos.workspace.engine.failure_tracker import HEARTBEAT, WITNESS, FailureTracker
from contextos.workspace.engine.fair_queue import RunKey

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

ListOrphans = Callable[[], AsyncIterator[RunKey]]
"""Yields the runs that are not due yet and whose driver is dead. Reads every run that is due soon."""
PublishHeads = Callable[[], Awaitable[None]]
"""Publishes to the witness every head that moved."""
SendHeartbeats = Callable[[], Awaitable[None]]
"""Renews the heartbeats of the sessions that this process drives. It limits itself to the rate that is needed."""


class Interval:
    """A periodic task's interval. A clock that jumps back does not delay the task."""

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self._clock, self._interval_us = clock, interval_ms * 1000
        self._last_at_us: int | None = None

    def passed(self) -> bool:
        """Return whether the interval has passed since this method last returned true. True on the first call."""
        now_us = self._clock.now_us()
        if self._last_at_us is not None and 0 <= now_us - self._last_at_us < self._interval_us:
            return False
        self._last_at_us = now_us
        return True


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """Limits of every engine."""

    max_conflicts: int = 8
    conflict_backoff_ms: int = 5
    sweep_interval_ms: int = 1000
    orphans_interval_ms: int = 30_000
    witness_interval_ms: int = 1000
    sweep_page: int = 1000
    stop_grace_ms: int = 5000


class Sweeper:
    """Finds every run that must be driven: the runs that are due and, from time to time, the runs whose process died.

    Dead letters (runs that failed for good) are left out. A sweep reads the earliest page of due runs. If that page is
    full, it reads one more page, which starts where the page of the last sweep ended, so no backlog hides a run for
    ever. Heartbeats and the publication to the witness run concurrently with the sweeps.
    """

    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        limits: SweepLimits,
        *,
        heartbeat: SendHeartbeats | None,
        orphans: ListOrphans | None,
        witness: PublishHeads | None,
    ) -> None:
        self._stores, self._clock, self._limits = stores, clock, limits
        self._heartbeat, self._witness = heartbeat, witness
        self._page = self._skip = limits.sweep_page
        self._orphans, self._orphans_time = orphans, Interval(clock, limits.orphans_interval_ms)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, failures: FailureTracker) -> None:
        """Start to send heartbeats (signs of life of this process) and to publish signed heads to the witness. The
        first heartbeats come before the first sweep.
        """
        periodic_tasks = (
            (self._heartbeat, HEARTBEAT, self._limits.sweep_interval_ms),
            (self._witness, WITNESS, self._limits.witness_interval_ms),
        )
        for act, key, interval_ms in periodic_tasks:
            if act is not None:
                self._tasks.append(asyncio.ensure_future(_repeat(act, key, interval_ms / 1000, failures)))

    async def find_runs(self) -> list[RunKey]:
        """Return (tenant, run) of the runs to drive now: at most two pages, and runs whose process died. Raises
        `Unavailable`.
        """
        now_us = self._clock.now_us()
        runs = [run async for run in self._stores.due(now_us, limit=self._page)]
        if len(runs) == self._page:
            next_page = [run async for run in self._stores.due(now_us, limit=self._page, skip=self._skip)]
            self._skip = self._skip + self._page if len(next_page) == self._page else self._page
            runs += next_page
        if self._orphans is not None and self._orphans_time.passed():
            runs += [run async for run in self._orphans()]
        tenant_ids = {tenant_id for tenant_id, _ in runs}
        dead = {tenant_id: await listed_run_ids(self._stores.tenant(tenant_id)) for tenant_id in tenant_ids}
        return [(tenant_id, run_id) for tenant_id, run_id in runs if run_id not in dead[tenant_id]]

    async def stop(self) -> None:
        """Stop the heartbeats and the publication to the witness."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _repeat(act: Callable[[], Awaitable[None]], key: RunKey, interval_s: float, failures: FailureTracker) -> None:
    """Start `act` every `interval_s` seconds, or at once after an act that took longer."""
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        (fault,) = await asyncio.gather(act(), return_exceptions=True)
        if fault is None:
            failures.forget(key)
        else:
            failures.report(key, fault)
        await asyncio.sleep(began_s + interval_s - loop.time())
