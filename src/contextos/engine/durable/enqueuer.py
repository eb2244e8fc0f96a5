"""`Enqueuer`: puts runs that must be driven into the shared queue, unless a run is there already."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from contextos.engine.durable.dbos_queue import DbosQueue
from contextos.engine.durable.hints import Hint, Hints
from contextos.engine.durable.workflows import TICK_US, PendingWorkflow
from contextos.engine.fair_queue import RunKey
from contextos.errors import Unavailable

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock

SHORT_US: Final = 1000
"""A shorter delay is treated as none."""
FIRST_TRY_US: Final = 10_000
LAST_TRY_US: Final = 1_000_000
"""A hint whose run is being driven is tried again after `FIRST_TRY_US`, doubled each time, up to this."""


class Enqueuer:
    """Puts runs into the shared queue that were submitted in this process and are not in the queue yet.

    A run that is due sooner than DBOS's polling interval waits here. A later one is queued at once with a delay.
    """

    def __init__(self, queue: DbosQueue, clock: Clock, *, max_waiting: int, at_once: int) -> None:
        self._queue, self._clock, self._at_once = queue, clock, at_once
        self._hints = Hints(bound=max_waiting)
        self._hinted = asyncio.Event()
        self._in_progress: set[RunKey] = set()
        self._enqueued: set[RunKey] = set()

    def __len__(self) -> int:
        return len(self._hints) + len(self._in_progress)

    def begin_sweep(self) -> None:
        """Remember from now on which runs are queued: the sweep that begins now can miss them when it reads the
        queue.
        """
        self._enqueued.clear()

    def holds_back(self, run: RunKey) -> bool:
        """Return whether a sweep must skip this run: it was queued since the sweep began, or waits for a retry."""
        hint = self._hints.get(run)
        return run in self._in_progress or run in self._enqueued or (hint is not None and hint.retry)

    def put(self, run: RunKey, hint: Hint) -> None:
        """Queue the run of this hint when its time has come."""
        near = hint.wake_us - self._clock.now_us() <= TICK_US
        self._hints.put(run, replace(hint, post_us=max(hint.post_us, hint.wake_us if near else 0)))
        self._hinted.set()

    async def for_ever(self) -> None:
        """Queue runs as their time comes, `at_once` of them concurrently, until cancelled."""
        while True:
            self._hinted.clear()
            taken = self._hints.take(self._clock.now_us(), limit=self._at_once)
            if taken:
                self._in_progress.update(run for run, _ in taken)
                await asyncio.gather(*(self._enqueue(run, hint) for run, hint in taken))
                continue
            next_us = self._hints.next_us()
            wait_s = None if next_us is None else max(next_us - self._clock.now_us(), SHORT_US) / 1e6
            try:
                async with asyncio.timeout(wait_s):
                    await self._hinted.wait()
            except TimeoutError:
                continue

    async def _enqueue(self, run: RunKey, hint: Hint) -> None:
        try:
            delay_us = max(hint.wake_us - self._clock.now_us(), 0)
            delay_us = delay_us if delay_us > SHORT_US else 0
            pending = await self._queue.place(run, delay_us=delay_us, retry=hint.retry)
            self._enqueued.add(run)
            if pending is not None:
                await self._yield_to(run, hint, pending, delay_us)
        except Unavailable as fault:
            self._enqueue_later(run, hint, fault.retry_after_ms * 1000)
        finally:
            self._in_progress.discard(run)

    async def _yield_to(self, run: RunKey, hint: Hint, pending: PendingWorkflow, delay_us: int) -> None:
        """Handle a hint whose run has a workflow already."""
        if pending.status == "DELAYED":
            if (hint.weak and pending.is_retry) or pending.until_us <= self._clock.now_us() + delay_us:
                return
            await self._queue.bring_forward(pending, delay_us=delay_us)
            if delay_us <= TICK_US:
                self._enqueue_later(run, hint, 0)
        elif pending.status == "PENDING" and not hint.weak:
            # That drive can have read the journal already, so this wake needs another drive after it.
            self._enqueue_later(run, hint, min(FIRST_TRY_US << min(hint.tries, 10), LAST_TRY_US))

    def _enqueue_later(self, run: RunKey, hint: Hint, delay_us: int) -> None:
        self.put(run, replace(hint, tries=hint.tries + 1, post_us=self._clock.now_us() + delay_us))
