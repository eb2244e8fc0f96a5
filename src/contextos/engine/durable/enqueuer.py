"""From hints to workflows: places each hint in the queue, and makes way for the workflow that its run has already."""

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
"""A delay that is not worth one."""
FIRST_TRY_US: Final = 10_000
LAST_TRY_US: Final = 1_000_000
"""A hint that meets a drive elsewhere is placed again after so long, twice as long each time, at most this."""


class Enqueuer:
    """The hints of this process on their way into the queue.

    A wake that is nearer than DBOS looks is kept here until its time; a later one becomes a delayed workflow at once.
    """

    def __init__(self, queue: DbosQueue, clock: Clock, *, max_waiting: int, at_once: int) -> None:
        self._queue, self._clock, self._at_once = queue, clock, at_once
        self._hints = Hints(bound=max_waiting)
        self._hinted = asyncio.Event()
        self._in_progress: set[RunKey] = set()
        self._placed: set[RunKey] = set()

    def __len__(self) -> int:
        return len(self._hints) + len(self._in_progress)

    def sweep_begins(self) -> None:
        """What is placed from now on, the sweep may not find in the queue any more."""
        self._placed.clear()

    def holds_back(self, run: RunKey) -> bool:
        """Whether a sweep shall leave this run alone: it was placed since it began, or waits to be tried again."""
        hint = self._hints.get(run)
        return run in self._in_progress or run in self._placed or (hint is not None and hint.retry)

    def put(self, run: RunKey, hint: Hint) -> None:
        """Place this hint when its time has come."""
        near = hint.wake_us - self._clock.now_us() <= TICK_US
        self._hints.put(run, replace(hint, post_us=max(hint.post_us, hint.wake_us if near else 0)))
        self._hinted.set()

    async def for_ever(self) -> None:
        """Place hints as their time comes, `at_once` at a time."""
        while True:
            self._hinted.clear()
            taken = self._hints.take(self._clock.now_us(), limit=self._at_once)
            if taken:
                self._in_progress.update(run for run, _ in taken)
                await asyncio.gather(*(self._place(run, hint) for run, hint in taken))
                continue
            next_us = self._hints.next_us()
            wait_s = None if next_us is None else max(next_us - self._clock.now_us(), SHORT_US) / 1e6
            try:
                async with asyncio.timeout(wait_s):
                    await self._hinted.wait()
            except TimeoutError:
                continue

    async def _place(self, run: RunKey, hint: Hint) -> None:
        try:
            delay_us = max(hint.wake_us - self._clock.now_us(), 0)
            delay_us = delay_us if delay_us > SHORT_US else 0
            standing = await self._queue.place(run, delay_us=delay_us, retry=hint.retry)
            self._placed.add(run)
            if standing is not None:
                await self._give_way(run, hint, standing, delay_us)
        except Unavailable as fault:
            self._place_later(run, hint, fault.retry_after_ms * 1000)
        finally:
            self._in_progress.discard(run)

    async def _give_way(self, run: RunKey, hint: Hint, standing: PendingWorkflow, delay_us: int) -> None:
        """What becomes of a hint whose run has a workflow already."""
        if standing.status == "DELAYED":
            if (hint.weak and standing.is_retry) or standing.until_us <= self._clock.now_us() + delay_us:
                return
            await self._queue.bring_forward(standing, delay_us=delay_us)
            if delay_us <= TICK_US:
                self._place_later(run, hint, 0)
        elif standing.status == "PENDING" and not hint.weak:
            # It may have looked already: this wake is for another drive after it.
            self._place_later(run, hint, min(FIRST_TRY_US << min(hint.tries, 10), LAST_TRY_US))

    def _place_later(self, run: RunKey, hint: Hint, delay_us: int) -> None:
        self.put(run, replace(hint, tries=hint.tries + 1, post_us=self._clock.now_us() + delay_us))
