"""`LocalEngine`: drives runs as asyncio tasks of this process.

A submit or a timer is a hint that can be lost: the sweep of due runs finds every run again. It also finds the runs of a
process that was killed, at once if `orphans` yields them, else when their lease expires. This process never drives a
run twice at once. A wake during a drive is followed by another drive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.journal import Advance
from contextos.errors import Conflict, Unavailable
from contextos.workspace.engine.failure_tracker import SWEEP, FailureTracker, OnFailure
from contextos.workspace.engine.fair_queue import FairQueue, RunKey
from contextos.workspace.engine.sweeper import ListOrphans, PublishHeads, SendHeartbeats, Sweeper, SweepLimits

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

_LOG: Final = logging.getLogger("contextos.workspace.engine")


@dataclass(frozen=True, slots=True)
class EngineLimits(SweepLimits):
    """Limits of a local engine. At most `max_waiting` runs wait to be driven, as many have a timer, and as many wait
    for a retry. A run beyond these numbers, or due in more than `timer_horizon_ms`, is not kept: a later sweep of the
    store finds it. With 0 for `max_drives` nothing is driven or kept.
    """

    max_drives: int = 32
    max_drives_per_tenant: int = 8
    max_waiting: int = 10_000
    timer_horizon_ms: int = 60_000
    wake_floor_ms: int = 1


class LocalEngine:
    """The `Engine` port in one process. All methods belong to the event loop that ran `start`.

    To drive a run is to execute its next steps. After `Conflict` a run is driven again, at most `max_conflicts` times
    in a row; after `Unavailable`, at the time that the error states. Any other failure is kept in `failures` and passed
    to `on_failure`. A run that fails again without having recorded anything new becomes a dead letter: it is not driven
    until it is submitted or retried.
    """

    def __init__(
        self,
        advance: Callable[[str, str], Awaitable[Advance]],
        stores: Stores,
        clock: Clock,
        *,
        orphans: ListOrphans | None = None,
        witness: PublishHeads | None = None,
        heartbeat: SendHeartbeats | None = None,
        limits: EngineLimits | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._failures = FailureTracker(stores, clock, on_failure)
        self.failures = self._failures.failures
        self._advance, self._stores, self._clock = advance, stores, clock
        self._limits = limits if limits is not None else EngineLimits()
        self._sweeper = Sweeper(stores, clock, self._limits, heartbeat=heartbeat, orphans=orphans, witness=witness)
        self._waiting = FairQueue(per_tenant=self._limits.max_drives_per_tenant)
        self._drives: dict[RunKey, asyncio.Task[Advance]] = {}
        self._redrive: set[RunKey] = set()
        self._timers: dict[RunKey, tuple[int, asyncio.TimerHandle]] = {}
        self._retries: dict[RunKey, asyncio.TimerHandle] = {}
        self._decisions: dict[RunKey, asyncio.Task[int | None]] = {}
        self._conflicts: Counter[RunKey] = Counter()
        self._sweep_task: asyncio.Task[None] | None = None
        self._next_sweep: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._running = False

    async def start(self) -> None:
        """Start driving: first the runs that are due, such as those that a killed process left."""
        assert not self._running, "an engine is started once"
        self._running = True
        self._sweeper.begin(self._failures)
        _LOG.info("worker started")
        self._start_sweep()
        self._start_drives()

    async def stop(self) -> None:
        """Start no new drive, wait `stop_grace_ms` for those in progress, then cancel them. Nothing is lost by that."""
        self._running = False
        for handle in [*self._retries.values(), *(handle for _, handle in self._timers.values())]:
            handle.cancel()
        self._retries.clear()
        self._timers.clear()
        if self._next_sweep is not None:
            self._next_sweep.cancel()
        await self._sweeper.stop()
        tasks: list[asyncio.Task[Any]] = [*self._drives.values(), *self._decisions.values()]
        if self._sweep_task is not None:
            tasks.append(self._sweep_task)
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=self._limits.stop_grace_ms / 1000)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        _LOG.info("worker stopped")

    async def idle(self) -> None:
        """Return when no run is driven, waits to be driven, or waits for a retry. Timers can still be set."""
        while not self._is_idle():
            self._idle.clear()
            await self._idle.wait()

    def submit(self, tenant_id: str, run_id: str) -> None:
        """Ask to drive this run soon, once more if it is being driven. Clears earlier failures of the run."""
        run = (tenant_id, run_id)
        self._failures.forget(run)
        if (retry := self._retries.pop(run, None)) is not None:
            retry.cancel()
        if run in self._drives:
            self._redrive.add(run)
        else:
            self._enqueue(run)

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None:
        """Ask to drive this run at `when_us` (Unix µs). A time past the timer horizon is left to a sweep."""
        run = (tenant_id, run_id)
        delay_us = max(when_us - self._clock.now_us(), 0)
        timer = self._timers.get(run)
        if not self._running or delay_us > self._limits.timer_horizon_ms * 1000:
            return
        if timer is not None:
            if timer[0] <= when_us:
                return
            timer[1].cancel()
        elif len(self._timers) >= self._limits.max_waiting:
            return
        handle = asyncio.get_running_loop().call_later(delay_us / 1e6, self._on_timer, run)
        self._timers[run] = (when_us, handle)

    def _on_timer(self, run: RunKey) -> None:
        del self._timers[run]
        if run in self._drives:
            self._redrive.add(run)
        elif run not in self._retries:
            self._enqueue(run)

    def _enqueue(self, run: RunKey) -> None:
        if len(self._waiting) < self._limits.max_waiting and self._limits.max_drives:
            self._waiting.put(run)
            self._start_drives()

    def _start_drives(self) -> None:
        """Start drives up to `max_drives`."""
        while self._running and len(self._drives) < self._limits.max_drives:
            run = self._waiting.take()
            if run is None:
                return
            if (timer := self._timers.pop(run, None)) is not None:
                timer[1].cancel()
            task = asyncio.ensure_future(self._advance(*run))
            self._drives[run] = task
            task.add_done_callback(partial(self._finish_drive, run))

    def _finish_drive(self, run: RunKey, task: asyncio.Task[Advance]) -> None:
        del self._drives[run]
        self._waiting.done(run)
        again = run in self._redrive
        self._redrive.discard(run)
        if task.cancelled():
            fault: BaseException | None = asyncio.CancelledError("its drive was cancelled")
        else:
            fault = task.exception()
        if self._running:
            if fault is None:
                self._follow_up(run, task.result(), again=again)
            else:
                self._handle_failure(run, fault, again=again)
        self._start_drives()
        if self._is_idle():
            self._idle.set()

    def _follow_up(self, run: RunKey, result: Advance, *, again: bool) -> None:
        self._conflicts.pop(run, None)
        self._failures.forget(run)
        if again:
            self._enqueue(run)
        elif result.wake_at_us:
            # A wake in the past must not turn the loop into a treadmill.
            self.at(*run, max(result.wake_at_us, self._clock.now_us() + self._limits.wake_floor_ms * 1000))

    def _handle_failure(self, run: RunKey, fault: BaseException, *, again: bool) -> None:
        if isinstance(fault, Unavailable):
            self._schedule_retry(run, fault.retry_after_ms)
        elif isinstance(fault, Conflict) and self._conflicts[run] < self._limits.max_conflicts:
            self._conflicts[run] += 1
            self._schedule_retry(run, self._limits.conflict_backoff_ms * self._conflicts[run])
        else:
            self._conflicts.pop(run, None)
            self._failures.report(run, fault)
            if again:
                self.submit(*run)
            elif not isinstance(fault, Conflict):
                self._decisions[run] = asyncio.ensure_future(self._failures.retry_delay_ms(run, fault))
                self._decisions[run].add_done_callback(partial(self._finish_decision, run))

    def _finish_decision(self, run: RunKey, task: asyncio.Task[int | None]) -> None:
        del self._decisions[run]
        if task.cancelled() or not self._running:
            return
        fault = task.exception()
        if isinstance(fault, Unavailable):
            self._schedule_retry(run, fault.retry_after_ms)
        elif fault is not None:
            self._failures.report(run, fault)
        elif (delay_ms := task.result()) is not None and run not in self._drives:
            self._schedule_retry(run, delay_ms)
        if self._is_idle():
            self._idle.set()

    def _schedule_retry(self, run: RunKey, delay_ms: int) -> None:
        if (timer := self._retries.pop(run, None)) is not None:
            timer.cancel()
        if len(self._retries) < self._limits.max_waiting:
            self._retries[run] = asyncio.get_running_loop().call_later(delay_ms / 1000, self._retry_now, run)

    def _retry_now(self, run: RunKey) -> None:
        del self._retries[run]
        self._enqueue(run)

    def _is_idle(self) -> bool:
        busy = self._drives or self._retries or self._decisions or self._sweep_task
        return not (busy or (self._running and len(self._waiting)))

    def _start_sweep(self) -> None:
        self._next_sweep = None
        self._sweep_task = asyncio.ensure_future(self._enqueue_due())
        self._sweep_task.add_done_callback(self._finish_sweep)

    async def _enqueue_due(self) -> None:
        for run in await self._sweeper.find_runs() if self._limits.max_drives else ():
            if not (run in self._drives or run in self._retries or run in self._decisions):
                self._enqueue(run)

    def _finish_sweep(self, task: asyncio.Task[None]) -> None:
        self._sweep_task = None
        if self._is_idle():
            self._idle.set()
        if not self._running or task.cancelled():
            return
        delay_ms = self._limits.sweep_interval_ms
        fault = task.exception()
        if fault is None:
            self.failures.pop(SWEEP, None)
        else:
            self._failures.report(SWEEP, fault)
        if isinstance(fault, Unavailable):
            delay_ms = max(delay_ms, fault.retry_after_ms)
        self._next_sweep = asyncio.get_running_loop().call_later(delay_ms / 1000, self._start_sweep)
