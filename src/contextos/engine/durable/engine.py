"""`DurableEngine`: drives runs as DBOS workflows on PostgreSQL, in any number of worker processes.

DBOS owns the queue, its bounds, timers and the recovery of what a killed worker held; a workflow is one call of
`advance` and nothing else, for the journal is the truth about steps. Submitting is a hint; the sweep of `due`, which
every worker makes, is the truth. A run that waits for a person is no workflow at all: an answer submits it.
In the whole deployment at most one workflow of a run exists, so no run is driven twice at once by the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from contextos.contracts.journal import Advance
from contextos.engine.durable.dbos_queue import DbosQueue
from contextos.engine.durable.enqueuer import Enqueuer
from contextos.engine.durable.hints import Hint
from contextos.engine.durable.workflows import WORKER_LOST, QueueLimits
from contextos.engine.failure_tracker import SWEEP, FailureTracker, OnFailure
from contextos.engine.fair_queue import RunKey
from contextos.engine.sweeper import Interval, ListOrphans, PublishHeads, SendHeartbeats, Sweeper, SweepLimits
from contextos.errors import Conflict, Integrity, Unavailable
from contextos.operations.dead_letters import add, failure_cause, has_lost_driver, journal_length

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

LOOK_S: Final = 0.01
"""How often `idle` looks."""


@dataclass(frozen=True, slots=True)
class DurableLimits(SweepLimits):
    """Bounds of a durable engine. Runs that wait beyond the horizon of timers are no workflows.

    `confirm_dead_ms` is how long a silent worker may still set up a new watch before others take what it held.
    """

    queue: QueueLimits = field(default_factory=QueueLimits)
    tidy_interval_ms: int = 60_000
    confirm_dead_ms: int = 5000


class DurableEngine:
    """The `Engine` port over several processes. All methods belong to the event loop that ran `start`.

    After `Conflict` a run is driven again, at most `max_conflicts` times in a row; after `Unavailable` when the
    error says so. Any other failure is kept in `failures` and handed to `on_failure`; where it comes again the run
    goes onto the dead-letter list and rests in every worker until it is submitted or retried. What took its worker
    with it more than `max_recoveries` times is driven alone, and goes onto that list if it does it again. One engine
    per process, because DBOS is one per process.
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
        beat: SendHeartbeats | None = None,
        limits: DurableLimits | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._failing = FailureTracker(stores, clock, on_failure)
        self.failures = self._failing.failures
        self._advance, self._stores, self._clock = advance, stores, clock
        self._limits = limits if limits is not None else DurableLimits()
        self._queue = DbosQueue(url, self._limits.queue, schema=schema)
        self._rounds = Sweeper(stores, clock, self._limits, beat=beat, orphans=orphans, witness=witness)
        self._tidy_time = Interval(clock, self._limits.tidy_interval_ms)
        self._placing = Enqueuer(
            self._queue, clock, max_waiting=self._limits.max_waiting, at_once=self._limits.queue.threads
        )
        self._driving: dict[RunKey, asyncio.Task[Advance]] = {}
        self._again: set[RunKey] = set()
        self._left: set[RunKey] = set()
        self._driven_since_sweep: set[RunKey] = set()
        self._judging: set[RunKey] = set()
        self._sweeping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._running = False

    async def start(self) -> None:
        """Start driving, first of all whatever is due. It starts whole or not at all.

        Raises:
            InvalidSettings: the URL, the database or the rights of its role do not do; the mend is in the message.
            Unavailable: the server does not answer.
        """
        assert not self._running, "an engine is started once"
        self._running = True
        opened = False
        try:
            await self._queue.open(self._drive, self._bury)
            opened = True
        finally:
            self._running = opened
        self._rounds.begin(self._failing)
        for_ever = (self._placing.for_ever(), self._watch_for_ever(), self._sweep_for_ever())
        self._tasks = [asyncio.ensure_future(one) for one in for_ever]

    async def stop(self) -> None:
        """Start nothing new, give drives `stop_grace_ms` to end, then cancel them; others drive on what is left."""
        if not self._running:
            return
        self._running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._rounds.stop()
        grace_s = self._limits.stop_grace_ms / 1000
        closing = asyncio.ensure_future(self._queue.close(grace_s=int(grace_s) + 2, hand_back=self._left))
        if self._driving:
            _, late = await asyncio.wait(list(self._driving.values()), timeout=grace_s)
            for task_late in late:
                task_late.cancel()
        await closing

    async def idle(self) -> None:
        """Return when no run of the deployment is driven, queued or about to be tried again; timers may be set."""
        while not await self._is_idle():  # noqa: ASYNC110 - other processes end drives too
            await asyncio.sleep(LOOK_S)

    async def _is_idle(self) -> bool:
        if self._driving or self._sweeping or len(self._placing):
            return False
        if not self._running:
            return True
        return all(one.is_timer for one in (await self._queue.live()).values())

    def submit(self, tenant_id: str, run_id: str) -> None:
        """Drive this run soon, once more if it is being driven; forgets an earlier failure of it."""
        run = (tenant_id, run_id)
        self._failing.forget(run)
        if run in self._driving:
            self._again.add(run)
        else:
            self._placing.put(run, Hint())

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None:
        """Drive this run at `when_us`, at most DBOS's tick of 1 s later. Beyond the horizon the sweep does it."""
        now_us = self._clock.now_us()
        if when_us - now_us <= self._limits.timer_horizon_ms * 1000:
            self._placing.put((tenant_id, run_id), Hint(wake_us=max(when_us, now_us)))

    async def _drive(self, tenant_id: str, run_id: str) -> str:
        """The body of a workflow: `advance`, again after a wake or a lost race. Says what came of it."""
        run = (tenant_id, run_id)
        if run in self._driving:
            # Recovered from this very worker, which was silent too long but lives.
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
        return await self._rest(run, result)

    async def _advanced(self, run: RunKey) -> Advance | BaseException | None:
        """What one `advance` gave or raised; None if the engine stops."""
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

    async def _rest(self, run: RunKey, result: Advance | BaseException) -> str:
        """What follows a drive. Returns what the finished workflow says of it."""
        now_us, again = self._clock.now_us(), run in self._again
        self._again.discard(run)
        self._driven_since_sweep.add(run)
        if isinstance(result, Unavailable):
            self._placing.put(run, Hint(wake_us=0 if again else now_us + result.retry_after_ms * 1000, retry=not again))
            return "unavailable"
        if again:
            self._placing.put(run, Hint())
        if isinstance(result, Advance):
            self._failing.forget(run)
            if result.wake_at_us:
                # A wake that is past already must not turn the queue into a treadmill.
                self.at(*run, max(result.wake_at_us, now_us + self._limits.wake_floor_ms * 1000))
            return result.state
        self._failing.report(run, result)
        if not again and not isinstance(result, Conflict):
            await self._judge(run, result)
        return failure_cause(result)[0]

    async def _judge(self, run: RunKey, fault: BaseException) -> None:
        self._judging.add(run)
        try:
            delay_ms = await self._failing.judge(run, fault)
        except Unavailable as gone:
            delay_ms = gone.retry_after_ms
        finally:
            self._judging.discard(run)
            # A sweep that asked what is due before it rested must not have it driven again.
            self._driven_since_sweep.add(run)
        if delay_ms is not None:
            self._placing.put(run, Hint(wake_us=self._clock.now_us() + delay_ms * 1000, retry=True))

    async def _bury(self, worker_id: str) -> str:
        """The body of a watch that ran out: recover what its worker held, if it is dead."""
        await asyncio.sleep(self._limits.confirm_dead_ms / 1000)
        return str(await self._queue.recover(worker_id))

    async def _watch_for_ever(self) -> None:
        """Say that this worker lives, whatever else takes its time."""
        while True:
            try:
                await self._queue.watch()
            except Unavailable as fault:
                self._failing.report(SWEEP, fault)
            await asyncio.sleep(self._limits.queue.dead_after_ms / 4000)

    async def _sweep_for_ever(self) -> None:
        while True:
            delay_ms = self._limits.sweep_interval_ms
            self._rounds.tell(partial(self._failing.report, SWEEP))
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
                self._failing.report(SWEEP, fault)
            if isinstance(fault, Unavailable):
                delay_ms = max(delay_ms, fault.retry_after_ms)
            await asyncio.sleep(delay_ms / 1000)

    async def _sweep(self) -> None:
        """Hint at whatever is due and not queued."""
        now_us = self._clock.now_us()
        self._driven_since_sweep.clear()
        self._placing.sweep_begins()
        found = await self._rounds.found()
        queued = await self._queue.live() if found else {}
        # After what is queued: a run that took its last worker with it meanwhile is in one of the two.
        lost = await self._look_at_lost(set(found), now_us)
        for run in found:
            standing = queued.get(run)
            if not self._is_known(run) and run not in lost and (standing is None or standing.is_timer):
                self._placing.put(run, Hint(weak=True))
        if self._tidy_time.passed():
            await self._queue.tidy(now_us)

    def _is_known(self, run: RunKey) -> bool:
        # What was due when a sweep asked may have been driven since; the next sweep sees.
        driven = run in self._driving or run in self._judging or run in self._driven_since_sweep
        return driven or self._placing.holds_back(run)

    async def _look_at_lost(self, due: set[RunKey], now_us: int) -> set[RunKey]:
        """What took too many workers with it is driven alone; what does so alone is put on the list.

        The queue is believed no further than the store: it cannot have a run rest that waits for a person.
        """
        lost = await self._queue.lost()
        for workflow_id, (run, alone) in lost.items():
            if run is None:
                self._failing.report(SWEEP, Integrity(f"the queue held `{workflow_id[:80]}`, which names no run"))
            elif not alone:
                await self._queue.place(run, alone=True)
            else:
                await self._bury_lost(run, now_us, due=run in due)
        if lost:
            await self._queue.forget(list(lost))
        return {run for run, _ in lost.values() if run is not None}

    async def _bury_lost(self, run: RunKey, now_us: int, *, due: bool) -> None:
        tenant_id, run_id = run
        store = self._stores.tenant(tenant_id)
        try:
            if due or await has_lost_driver(store, run_id):
                await add(store, run_id, WORKER_LOST, now_us, seen=await journal_length(store, run_id))
        except Integrity as fault:
            self._failing.report(run, fault)
