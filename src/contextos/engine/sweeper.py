"""What an engine asks at every sweep, whoever drives: which runs are due, and which lost their driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextos.engine.failure_tracker import BEAT, FailureTracker
from contextos.engine.fair_queue import RunKey
from contextos.operations.dead_letters import listed_run_ids

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

ListOrphans = Callable[[], AsyncIterator[RunKey]]
"""Runs whose driver is dead although they are not due yet. Asking costs a look at each that comes due soon."""
PublishHeads = Callable[[], Awaitable[None]]
"""Tells the witness of every head that moved."""
SendHeartbeats = Callable[[], Awaitable[None]]
"""Says that this process still drives the sessions that it drives; it knows itself how often that is needed."""


class Interval:
    """Something that is done now and then. A clock that jumps back does not put it off."""

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self._clock, self._interval_us = clock, interval_ms * 1000
        self._last_us: int | None = None

    def passed(self) -> bool:
        """Whether it is time, once for each interval."""
        now_us = self._clock.now_us()
        if self._last_us is not None and 0 <= now_us - self._last_us < self._interval_us:
            return False
        self._last_us = now_us
        return True


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """What every engine is bound by. Past `max_waiting` a hint is dropped, and the sweep finds the run later.

    A wake beyond `timer_horizon_ms` is left to the sweep.
    """

    max_waiting: int = 10_000
    max_conflicts: int = 8
    conflict_backoff_ms: int = 5
    sweep_interval_ms: int = 1000
    orphans_interval_ms: int = 30_000
    witness_interval_ms: int = 30_000
    sweep_page: int = 1000
    timer_horizon_ms: int = 60_000
    wake_floor_ms: int = 1
    stop_grace_ms: int = 5000


class Sweeper:
    """The truth behind the hints: what `due` names and does not rest, and now and then orphans.

    A sweep looks at the earliest page, and where that is full at one more, which goes on where the last one ended. So
    no backlog hides a run for ever, whoever it belongs to. Beats, and what the witness is told, go beside the sweeps:
    none of them holds up another.
    """

    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        limits: SweepLimits,
        *,
        beat: SendHeartbeats | None,
        orphans: ListOrphans | None,
        witness: PublishHeads | None,
    ) -> None:
        self._stores, self._clock, self._beat = stores, clock, beat
        self._page = self._skip = limits.sweep_page
        self._beat_interval_s = limits.sweep_interval_ms / 1000
        self._orphans, self._orphans_time = orphans, Interval(clock, limits.orphans_interval_ms)
        self._witness, self._witness_time = witness, Interval(clock, limits.witness_interval_ms)
        self._telling: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    def begin(self, failing: FailureTracker) -> None:
        """Beat from now on, first of all before the first sweep."""
        if self._beat is not None:
            self._beating = asyncio.ensure_future(self._beat_for_ever(self._beat, failing))

    async def _beat_for_ever(self, beat: SendHeartbeats, failing: FailureTracker) -> None:
        while True:
            (fault,) = await asyncio.gather(beat(), return_exceptions=True)
            if fault is None:
                failing.forget(BEAT)
            else:
                failing.report(BEAT, fault)
            await asyncio.sleep(self._beat_interval_s)

    async def found(self) -> list[RunKey]:
        """Every run that should be driven now, as far as two pages go. Raises `Unavailable`."""
        now_us = self._clock.now_us()
        due = [run async for run in self._stores.due(now_us, limit=self._page)]
        if len(due) == self._page:
            more = [run async for run in self._stores.due(now_us, limit=self._page, skip=self._skip)]
            self._skip = self._skip + self._page if len(more) == self._page else self._page
            due += more
        if self._orphans is not None and self._orphans_time.passed():
            due += [run async for run in self._orphans()]
        rests = {tenant: await listed_run_ids(self._stores.tenant(tenant)) for tenant in {tenant for tenant, _ in due}}
        return [(tenant, run) for tenant, run in due if run not in rests[tenant]]

    def tell(self, failed: Callable[[BaseException], None]) -> None:
        """Have the witness told, if it is time and it is not being told."""
        if self._witness is None or self._telling is not None or not self._witness_time.passed():
            return

        def told(task: asyncio.Task[None]) -> None:
            self._telling = None
            if not task.cancelled() and (fault := task.exception()) is not None:
                failed(fault)

        self._telling = asyncio.ensure_future(self._witness())
        self._telling.add_done_callback(told)

    async def stop(self) -> None:
        """Beat no more, and tell nobody any more."""
        tasks = [task for task in (self._beating, self._telling) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
