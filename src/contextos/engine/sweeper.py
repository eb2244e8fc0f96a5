"""`Sweeper`: finds the runs that are due or lost their driver, and runs the periodic tasks of every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextos.engine.failure_tracker import HEARTBEAT, FailureTracker
from contextos.engine.fair_queue import RunKey
from contextos.operations.dead_letters import listed_run_ids

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

ListOrphans = Callable[[], AsyncIterator[RunKey]]
"""Yields runs whose driver is dead although they are not due yet. Reads every run that is due soon."""
PublishHeads = Callable[[], Awaitable[None]]
"""Publishes every head that moved to the witness."""
SendHeartbeats = Callable[[], Awaitable[None]]
"""Renews the heartbeats of the sessions that this process drives. It limits itself to the rate that is needed."""


class Interval:
    """A periodic task's interval. A clock that jumps back does not delay the task."""

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self._clock, self._interval_us = clock, interval_ms * 1000
        self._last_us: int | None = None

    def passed(self) -> bool:
        """Whether the interval has passed since this was last true. True on the first call."""
        now_us = self._clock.now_us()
        if self._last_us is not None and 0 <= now_us - self._last_us < self._interval_us:
            return False
        self._last_us = now_us
        return True


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """Limits of every engine."""

    max_conflicts: int = 8
    conflict_backoff_ms: int = 5
    sweep_interval_ms: int = 1000
    orphans_interval_ms: int = 30_000
    witness_interval_ms: int = 30_000
    sweep_page: int = 1000
    stop_grace_ms: int = 5000


class Sweeper:
    """Finds every run that must be driven: those that are due and, from time to time, those whose process died.

    Dead letters (runs that failed for good) are left out. A sweep reads the earliest page of due runs and, if that page
    is full, one more, which continues where the last sweep's ended, so no backlog hides a run for ever. Heartbeats and
    the publication to the witness run concurrently with the sweeps.
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
        self._stores, self._clock, self._heartbeat = stores, clock, heartbeat
        self._page = self._skip = limits.sweep_page
        self._heartbeat_interval_s = limits.sweep_interval_ms / 1000
        self._orphans, self._orphans_time = orphans, Interval(clock, limits.orphans_interval_ms)
        self._witness, self._witness_time = witness, Interval(clock, limits.witness_interval_ms)
        self._publishing: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None

    def begin(self, failures: FailureTracker) -> None:
        """Start to send heartbeats (signs of life of this process); the first ones come before the first sweep."""
        if self._heartbeat is not None:
            self._heartbeats = asyncio.ensure_future(self._send_heartbeats(self._heartbeat, failures))

    async def _send_heartbeats(self, heartbeat: SendHeartbeats, failures: FailureTracker) -> None:
        while True:
            (fault,) = await asyncio.gather(heartbeat(), return_exceptions=True)
            if fault is None:
                failures.forget(HEARTBEAT)
            else:
                failures.report(HEARTBEAT, fault)
            await asyncio.sleep(self._heartbeat_interval_s)

    async def find_runs(self) -> list[RunKey]:
        """Return (tenant, run) of the runs to drive now: at most two pages, and runs whose process died. Raises
        `Unavailable`.
        """
        now_us = self._clock.now_us()
        due = [run async for run in self._stores.due(now_us, limit=self._page)]
        if len(due) == self._page:
            more = [run async for run in self._stores.due(now_us, limit=self._page, skip=self._skip)]
            self._skip = self._skip + self._page if len(more) == self._page else self._page
            due += more
        if self._orphans is not None and self._orphans_time.passed():
            due += [run async for run in self._orphans()]
        dead = {tenant: await listed_run_ids(self._stores.tenant(tenant)) for tenant in {tenant for tenant, _ in due}}
        return [(tenant, run) for tenant, run in due if run not in dead[tenant]]

    def publish_heads(self, failed: Callable[[BaseException], None]) -> None:
        """Start to publish signed journal heads to the witness, if the interval has passed and no publication is
        running.
        """
        if self._witness is None or self._publishing is not None or not self._witness_time.passed():
            return

        def published(task: asyncio.Task[None]) -> None:
            self._publishing = None
            if not task.cancelled() and (fault := task.exception()) is not None:
                failed(fault)

        self._publishing = asyncio.ensure_future(self._witness())
        self._publishing.add_done_callback(published)

    async def stop(self) -> None:
        """Stop the heartbeats and the publication to the witness."""
        tasks = [task for task in (self._heartbeats, self._publishing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
