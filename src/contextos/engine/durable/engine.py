"""`DurableEngine`: drives runs as DBOS workflows on PostgreSQL, in any number of worker processes.

DBOS owns the queue, its limits, its timers and the recovery of what a killed worker held. A workflow is one call of
`advance` and nothing else, because the journal holds the steps. A submit is a hint that can be lost; every worker
sweeps the due runs and finds each again. A run that waits for a person has no workflow; the answer submits it. In the
whole deployment there is at most one workflow of a run, so the queue never drives a run twice at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from contextos.contracts.journal import Advance
from contextos.engine.durable.dbos_queue import DbosQueue
from contextos.engine.durable.enqueuer import Enqueuer
from contextos.engine.durable.hints import Hint
from contextos.engine.durable.workflows import QueueLimits
from contextos.engine.failure_tracker import SWEEP, FailureTracker, OnFailure, log_dead_letter
from contextos.engine.fair_queue import RunKey
from contextos.engine.sweeper import Interval, ListOrphans, PublishHeads, SendHeartbeats, Sweeper, SweepLimits
from contextos.errors import Conflict, Integrity, Unavailable
from contextos.operations.dead_letters import WORKER_LOST, add, failure_cause, has_lost_driver, journal_length

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

IDLE_POLL_S: Final = 0.01
"""How often `idle` polls."""
_LOG: Final = logging.getLogger("contextos.engine")


@dataclass(frozen=True, slots=True)
class DurableLimits(SweepLimits):
    """Limits of a durable engine. A run that is due later than the timer horizon is found by a sweep and not queued
    before.

    `confirm_dead_ms` is how long a silent worker can still come back before others recover what it held.
    """

    queue: QueueLimits = field(default_factory=QueueLimits)
    tidy_interval_ms: int = 60_000
    confirm_dead_ms: int = 5000


class DurableEngine:
    """The `Engine` port over several processes. All methods belong to the event loop that ran `start`.

    After `Conflict` a run is driven again, at most `max_conflicts` times in a row; after `Unavailable` when the
    error says so. Any other failure is kept in `failures` and passed to `on_failure`; a run that fails again
    over the same journal becomes a dead letter, and no worker drives it until it is submitted or retried. A run that
    lost more than `max_recoveries` workers is driven alone, and becomes a dead letter if it loses as many again. One
    engine per process, because there is one DBOS per process.
    """

    def __init__(
        self,
        advance: Callable[[str, str], Awaitable[Advance]],
        stores: Stores,
        clock: Clock,
        *,
        url: str,
        schema: str = "dbos",
        orphans: ListOrphans | None = None,
        witness: PublishHeads | None = None,
        heartbeat: SendHeartbeats | None = None,
        limits: DurableLimits | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._failures = FailureTracker(stores, clock, on_failure)
        self.failures = self._failures.failures
        self._advance, self._stores, self._clock = advance, stores, clock
        self._limits = limits if limits is not None else DurableLimits()
        self._queue = DbosQueue(url, self._limits.queue, schema=schema)
        self._sweeper = Sweeper(stores, clock, self._limits, heartbeat=heartbeat, orphans=orphans, witness=witness)
        self._tidy_time = Interval(clock, self._limits.tidy_interval_ms)
        self._enqueuer = Enqueuer(
            self._queue, clock, max_waiting=self._limits.max_waiting, at_once=self._limits.queue.threads
        )
        self._driving: dict[RunKey, asyncio.Task[Advance]] = {}
        self._again: set[RunKey] = set()
        self._left: set[RunKey] = set()
        self._driven_since_sweep: set[RunKey] = set()
        self._deciding: set[RunKey] = set()
        self._sweeping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._running = False

    async def start(self) -> None:
        """Start driving, first the runs that are due. If it raises, nothing was started.

        Raises:
            InvalidSettings: the URL, the database or the rights of its role are not usable; the message has the remedy.
            Unavailable: the server does not answer.
        """
        assert not self._running, "an engine is started once"
        self._running = True
        opened = False
        try:
            await self._queue.open(self._drive, self._recover_worker)
            opened = True
        finally:
            self._running = opened
        _LOG.info("worker started")
        self._sweeper.begin(self._failures)
        for_ever = (self._enqueuer.for_ever(), self._watch_for_ever(), self._sweep_for_ever())
        self._tasks = [asyncio.ensure_future(one) for one in for_ever]

    async def stop(self) -> None:
        """Start no new drive, wait `stop_grace_ms` for those in progress, then cancel them; others go on."""
        if not self._running:
            return
        self._running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sweeper.stop()
        grace_s = self._limits.stop_grace_ms / 1000
        closing = asyncio.ensure_future(self._queue.close(grace_s=int(grace_s) + 2, hand_back=self._left))
        if self._driving:
            _, late = await asyncio.wait(list(self._driving.values()), timeout=grace_s)
            for task_late in late:
                task_late.cancel()
        await closing
        _LOG.info("worker stopped")

    async def idle(self) -> None:
        """Return when no run of the deployment is being driven, queued or about to be retried. Timers can still be
        set.
        """
        while not await self._is_idle():  # noqa: ASYNC110 - other processes end drives too
            await asyncio.sleep(IDLE_POLL_S)

    async def _is_idle(self) -> bool:
        if self._driving or self._sweeping or len(self._enqueuer):
            return False
        if not self._running:
            return True
        return all(one.is_timer for one in (await self._queue.live()).values())

    def submit(self, tenant_id: str, run_id: str) -> None:
        """Schedule the run to be driven soon, and clear its earlier failures.

        A run that is being driven now is driven once more afterwards."""
        run = (tenant_id, run_id)
        self._failures.forget(run)
        if run in self._driving:
            self._again.add(run)
        else:
            self._enqueuer.put(run, Hint())

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None:
        """Ask to drive this run at `when_us` (Unix µs), up to 1 s later. A time past the timer horizon is left to a
        sweep.
        """
        now_us = self._clock.now_us()
        if when_us - now_us <= self._limits.timer_horizon_ms * 1000:
            self._enqueuer.put((tenant_id, run_id), Hint(wake_us=max(when_us, now_us)))

    async def _drive(self, tenant_id: str, run_id: str) -> str:
        """The body of a workflow: `advance`, again after a wake or a conflict. Returns what the workflow records."""
        run = (tenant_id, run_id)
        if run in self._driving:
            # Recovered from this worker itself, which was silent for too long but lives.
            self._again.add(run)
            return "driven_here"
        for conflicts in range(self._limits.max_conflicts + 1):
            result = await self._advanced(run)
            while self._running and run in self._again and isinstance(result, Advance):
                result = await self._advanced(run)
            if not self._running and isinstance(result, asyncio.CancelledError | None):
                self._left.add(run)
                return "left"
            if not isinstance(result, Conflict):
                break
            if conflicts < self._limits.max_conflicts:
                await asyncio.sleep(self._limits.conflict_backoff_ms * (conflicts + 1) / 1000)
        assert result is not None, "only an engine that stops does not advance"
        return await self._follow_up(run, result)

    async def _advanced(self, run: RunKey) -> Advance | BaseException | None:
        """Return what one `advance` returned or raised; None if the engine stops."""
        if not self._running:
            return None
        self._again.discard(run)
        task = asyncio.ensure_future(self._advance(*run))
        self._driving[run] = task
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            del self._driving[run]
        if task.cancelled():
            return asyncio.CancelledError("its drive was cancelled")
        return task.exception() or task.result()

    async def _follow_up(self, run: RunKey, result: Advance | BaseException) -> str:
        """Handle the result of a drive. Returns what the finished workflow records."""
        now_us, again = self._clock.now_us(), run in self._again
        self._again.discard(run)
        self._driven_since_sweep.add(run)
        if isinstance(result, Unavailable):
            self._enqueuer.put(
                run, Hint(wake_us=0 if again else now_us + result.retry_after_ms * 1000, retry=not again)
            )
            return "unavailable"
        if again:
            self._enqueuer.put(run, Hint())
        if isinstance(result, Advance):
            self._failures.forget(run)
            if result.wake_at_us:
                # A wake in the past must not turn the queue into a treadmill.
                self.at(*run, max(result.wake_at_us, now_us + self._limits.wake_floor_ms * 1000))
            return result.state
        self._failures.report(run, result)
        if not again and not isinstance(result, Conflict):
            await self._retry_or_give_up(run, result)
        return failure_cause(result)[0]

    async def _retry_or_give_up(self, run: RunKey, fault: BaseException) -> None:
        self._deciding.add(run)
        try:
            delay_ms = await self._failures.retry_delay_ms(run, fault)
        except Unavailable as gone:
            delay_ms = gone.retry_after_ms
        finally:
            self._deciding.discard(run)
            # A sweep that read the due runs before this one became a dead letter must not queue it.
            self._driven_since_sweep.add(run)
        if delay_ms is not None:
            self._enqueuer.put(run, Hint(wake_us=self._clock.now_us() + delay_ms * 1000, retry=True))

    async def _recover_worker(self, worker_id: str) -> str:
        """The body of an expired watch: recover what its worker held, if that worker is dead."""
        await asyncio.sleep(self._limits.confirm_dead_ms / 1000)
        return str(await self._queue.recover(worker_id))

    async def _watch_for_ever(self) -> None:
        """Keep this worker's watch from expiring, however long anything else takes."""
        while True:
            try:
                await self._queue.watch()
            except Unavailable as fault:
                self._failures.report(SWEEP, fault, what="watch failed")
            await asyncio.sleep(self._limits.queue.dead_after_ms / 4000)

    async def _sweep_for_ever(self) -> None:
        while True:
            delay_ms = self._limits.sweep_interval_ms
            self._sweeper.publish_heads(partial(self._failures.report, SWEEP, what="witness publish failed"))
            sweep = asyncio.ensure_future(self._sweep())
            self._sweeping = True
            try:
                await asyncio.wait([sweep])
            finally:
                self._sweeping = False
                sweep.cancel()
            fault = sweep.exception()
            if fault is None:
                self.failures.pop(SWEEP, None)
            else:
                self._failures.report(SWEEP, fault)
            if isinstance(fault, Unavailable):
                delay_ms = max(delay_ms, fault.retry_after_ms)
            await asyncio.sleep(delay_ms / 1000)

    async def _sweep(self) -> None:
        """Enqueue every run that is due and has no workflow."""
        now_us = self._clock.now_us()
        self._driven_since_sweep.clear()
        self._enqueuer.begin_sweep()
        found = await self._sweeper.find_runs()
        queued = await self._queue.live() if found else {}
        # Read after `live`: a run that loses its last worker meanwhile is in one of the two.
        lost = await self._handle_lost(set(found), now_us)
        for run in found:
            pending = queued.get(run)
            if not self._is_known(run) and run not in lost and (pending is None or pending.is_timer):
                self._enqueuer.put(run, Hint(weak=True))
        if self._tidy_time.passed():
            await self._queue.tidy(now_us)

    def _is_known(self, run: RunKey) -> bool:
        # A run that was due when the sweep began can have been driven since; the next sweep finds it if not.
        driven = run in self._driving or run in self._deciding or run in self._driven_since_sweep
        return driven or self._enqueuer.holds_back(run)

    async def _handle_lost(self, due: set[RunKey], now_us: int) -> set[RunKey]:
        """Drive alone the runs that lost too many workers, and make dead letters of those that were driven alone.

        A queue row alone is not trusted: a run that waits for a person does not become a dead letter.
        """
        lost = await self._queue.lost()
        for workflow_id, (run, alone) in lost.items():
            if run is None:
                self._failures.report(
                    SWEEP,
                    Integrity(f"the queue held `{workflow_id[:80]}`, which names no run"),
                    what="unknown workflow",
                )
            elif not alone:
                await self._queue.place(run, alone=True)
            else:
                await self._add_lost(run, now_us, due=run in due)
        if lost:
            await self._queue.forget(list(lost))
        return {run for run, _ in lost.values() if run is not None}

    async def _add_lost(self, run: RunKey, now_us: int, *, due: bool) -> None:
        tenant_id, run_id = run
        store = self._stores.tenant(tenant_id)
        try:
            if not due and not await has_lost_driver(store, run_id):
                return
            if await add(store, run_id, WORKER_LOST, now_us, seen=await journal_length(store, run_id)):
                log_dead_letter(run)
        except Integrity as fault:
            self._failures.report(run, fault)
