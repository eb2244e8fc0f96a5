"""`SharedEngine`: drives the runs that this worker claimed in the store, in any number of worker processes.

The store gives each due run to one worker and each tenant its share, and says when the next run is due. A claim is a
hint: the lease of a run decides who can append to it, so a worker that wrongly counts as dead does no harm. A run whose
drive failed is given back until its next try, so any worker can make that try.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from contextos.contracts.journal import CLOCK_MARGIN_US, Advance
from contextos.contracts.ports.claims import ClaimLimits
from contextos.deployment.dead_letters import listed_run_ids
from contextos.errors import ClockOff, Conflict, ContextOSError, Unavailable, UnknownSemantics
from contextos.workspace.engine.failure_tracker import SWEEP, FailureTracker, OnFailure
from contextos.workspace.engine.fair_queue import RunKey
from contextos.workspace.engine.sweeper import PublishHeads, SendHeartbeats, Sweeper, SweepLimits

if TYPE_CHECKING:
    from contextos.contracts.ports.claims import Claims
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

NOTIFICATIONS: Final[RunKey] = ("", "notifications")
"""The key in `failures` for a database whose notifications do not arrive."""
NOTIFIED_WITHIN_S: Final = 5.0
BUSY_INTERVAL_S: Final = 0.02
"""Shortest time, in seconds, between two exchanges of a worker that drives runs: one exchange serves several runs."""
DEAD_LETTERS_KEPT_S: Final = 1.0
DEAD_LETTER_PAUSE_US: Final = 60_000_000
"""How long, in microseconds, a dead letter is given back. A commit that wakes the run ends this time."""
REPEATED_PAUSE_US: Final = 1_000_000
"""How long, in microseconds, a run is given back that is due again at once after a drive with the same result."""
MAX_PAUSE_MS: Final = 3_600_000
"""A run that waits for a dependency is tried again after at most this many milliseconds, whatever it says."""
MAX_RESULTS: Final = 10_000
MAX_TENANTS: Final = 1024
_LOG: Final = logging.getLogger("contextos.workspace.engine")


@dataclass(frozen=True, slots=True)
class SharedLimits(SweepLimits):
    """Limits of a shared engine. It exchanges claims at least every `sweep_interval_ms` milliseconds. With 0 for
    `max_drives` it drives nothing, and only shows that it lives.
    """

    max_drives: int = 32
    claims: ClaimLimits = field(default_factory=ClaimLimits)


class SharedEngine:
    """The `Engine` port over several processes. All methods belong to the event loop that ran `start`.

    After `Conflict` a run is driven again, at most `max_conflicts` times in a row; after `Unavailable`, when the error
    says so. Any other failure is kept in `failures` and passed to `on_failure`; a run that fails again over
    the same journal becomes a dead letter. `on_dead` gets the ids of the workers that count as dead. `wake_orphans` is
    called when one more worker is dead: the runs that a killed server was answering are claimed by no worker.
    """

    def __init__(
        self,
        advance: Callable[[str, str], Awaitable[Advance]],
        stores: Stores,
        clock: Clock,
        claims: Claims,
        *,
        on_dead: Callable[[frozenset[str]], None],
        wake_orphans: Callable[[], Awaitable[None]],
        witness: PublishHeads | None = None,
        heartbeat: SendHeartbeats | None = None,
        limits: SharedLimits | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._failures = FailureTracker(stores, clock, on_failure)
        self.failures = self._failures.failures
        self._advance, self._stores, self._clock, self._claims = advance, stores, clock, claims
        self._limits = limits if limits is not None else SharedLimits()
        self._on_dead, self._wake_orphans = on_dead, wake_orphans
        self._dead = frozenset[str]()
        self._sweeper = Sweeper(stores, clock, self._limits, heartbeat=heartbeat, orphans=None, witness=witness)
        self._drives: dict[RunKey, asyncio.Task[int | None]] = {}
        self._returned_runs: dict[RunKey, int | None] = {}
        self._conflicts: Counter[RunKey] = Counter()
        self._results: dict[RunKey, tuple[float, Advance]] = {}
        self._dead_letters: dict[str, tuple[float, set[str]]] = {}
        self._wake_event = asyncio.Event()
        self._exchange_task: asyncio.Task[None] | None = None
        self._running = False

    async def start(self) -> None:
        """Start driving: first the runs that are due, such as those that a dead worker left."""
        assert not self._running, "an engine is started once"
        self._running = True
        if self._limits.max_drives:
            self._claims.listen(self._wake_event.set)
        self._sweeper.begin(self._failures)
        self._exchange_task = asyncio.ensure_future(self._exchange_forever())
        _LOG.info("worker started")

    async def stop(self) -> None:
        """Start no new drive, wait `stop_grace_ms` for those in progress, then cancel them; other workers go on."""
        if not self._running or self._exchange_task is None:
            return
        self._running = False
        self._exchange_task.cancel()
        await asyncio.gather(self._exchange_task, return_exceptions=True)
        await self._sweeper.stop()
        if self._drives:
            tasks = list(self._drives.values())
            _, unfinished = await asyncio.wait(tasks, timeout=self._limits.stop_grace_ms / 1000)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._claims.leave(self._returned_runs)
        except ContextOSError as fault:
            # If this message is lost, other workers take this one for dead a little later.
            self._failures.report(SWEEP, fault)
        _LOG.info("worker stopped")

    def submit(self, tenant_id: str, run_id: str) -> None:
        """Look for due runs soon, and clear the earlier failures of this one."""
        self._failures.forget((tenant_id, run_id))
        self._wake_event.set()

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None:  # noqa: ARG002 - the store knows the run
        """Look for due runs at `when_us` (Unix µs), if that is sooner than the next exchange."""
        delay_us = max(when_us - self._clock.now_us(), 0)
        if delay_us < self._limits.sweep_interval_ms * 1000:
            asyncio.get_running_loop().call_later(delay_us / 1e6, self._wake_event.set)

    async def _exchange_forever(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            self._wake_event.clear()
            exchanged_s = loop.time()
            wait_s = self._limits.sweep_interval_ms / 1000
            # A worker that stopped asking would drive nothing, so it goes on after any fault.
            (result,) = await asyncio.gather(self._exchange(), return_exceptions=True)
            if isinstance(result, BaseException):
                self._failures.report(SWEEP, result)
                retry_ms = result.retry_after_ms if isinstance(result, Unavailable) else 0
                wait_s = max(wait_s, retry_ms / 1000)
            else:
                wait_s = min(wait_s, result)
                if loop.time() - began_s > NOTIFIED_WITHIN_S:
                    self._check_notifications()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake_event.wait()
            except TimeoutError:
                pass
            if self._drives:
                await asyncio.sleep(exchanged_s + BUSY_INTERVAL_S - loop.time())

    async def _exchange(self) -> float:
        """Give runs back and take others. Return the number of seconds until another run is due."""
        returned = dict(self._returned_runs)
        capacity = max(self._limits.max_drives - len(self._drives), 0)
        exchange = await self._claims.exchange(returned, list(self._drives), free=capacity)
        for run in returned.keys() - set(exchange.kept):
            del self._returned_runs[run]
        self._on_dead(exchange.dead)
        for run in exchange.taken:
            if run in self._drives:
                # The store took this worker for dead meanwhile, and gave it the run again. The first drive goes on.
                continue
            task = asyncio.ensure_future(self._drive(run))
            self._drives[run] = task
            task.add_done_callback(partial(self._finish_drive, run))
        if abs(exchange.clock_off_us) > CLOCK_MARGIN_US:
            self._failures.report(SWEEP, ClockOff(exchange.clock_off_us, CLOCK_MARGIN_US))
        else:
            self.failures.pop(SWEEP, None)
        if not self._limits.max_drives:
            return float("inf")
        if exchange.dead - self._dead:
            await self._wake_orphans()
            self._dead = exchange.dead
            return BUSY_INTERVAL_S
        if exchange.next_in_us is None:
            return float("inf")
        return max(exchange.next_in_us / 1e6, BUSY_INTERVAL_S)

    def _check_notifications(self) -> None:
        if self._claims.is_notified:
            self.failures.pop(NOTIFICATIONS, None)
        else:
            every_s = self._limits.sweep_interval_ms / 1000
            detail = f"they do not arrive, as behind a pooler, so this worker asks for due runs every {every_s:g} s"
            self._failures.report(NOTIFICATIONS, Unavailable("notifications", detail), what="no notifications")

    async def _drive(self, run: RunKey) -> int | None:
        """Drive a run once. Return for how many microseconds it is given back; None means until its wake time."""
        if await self._is_dead_letter(run):
            return DEAD_LETTER_PAUSE_US
        drive = asyncio.ensure_future(self._advance(*run))
        try:
            await asyncio.wait([drive])
        finally:
            drive.cancel()
        fault = asyncio.CancelledError("its drive was cancelled") if drive.cancelled() else drive.exception()
        if fault is not None:
            return await self._failure_pause_us(run, fault)
        self._conflicts.pop(run, None)
        self._failures.forget(run)
        return self._repeated_pause_us(run, drive.result())

    async def _failure_pause_us(self, run: RunKey, fault: BaseException) -> int:
        if isinstance(fault, ClockOff):
            # This worker gives the run back until its clock is right. Other workers can take it.
            return REPEATED_PAUSE_US
        if isinstance(fault, Unavailable):
            # Foreign code can state any number.
            return int(min(max(fault.retry_after_ms, 0), MAX_PAUSE_MS)) * 1000
        if isinstance(fault, Conflict) and self._conflicts[run] < self._limits.max_conflicts:
            self._conflicts[run] += 1
            return self._limits.conflict_backoff_ms * self._conflicts[run] * 1000
        self._conflicts.pop(run, None)
        self._failures.report(run, fault)
        if isinstance(fault, Conflict | UnknownSemantics):
            # A worker of the version that began the run can drive it.
            return REPEATED_PAUSE_US
        delay_ms = await self._failures.retry_delay_ms(run, fault)
        if delay_ms is None:
            self._dead_letters.pop(run[0], None)
            return DEAD_LETTER_PAUSE_US
        return delay_ms * 1000

    def _repeated_pause_us(self, run: RunKey, result: Advance) -> int | None:
        """Return a pause in microseconds if the run had the same result a moment ago, so that a wake at once does not
        become a busy loop; else None.
        """
        now_s = asyncio.get_running_loop().time()
        last_s, last_result = self._results.pop(run, (0.0, None))
        if result.wake_at_us is not None:
            self._results[run] = (now_s, result)
            if len(self._results) > MAX_RESULTS:
                del self._results[next(iter(self._results))]
        return REPEATED_PAUSE_US if result == last_result and (now_s - last_s) * 1e6 < REPEATED_PAUSE_US else None

    def _finish_drive(self, run: RunKey, drive: asyncio.Task[int | None]) -> None:
        del self._drives[run]
        # The wake time of a run in the middle of a drive is when its lease is over.
        self._returned_runs[run] = 0
        if not drive.cancelled():
            fault = drive.exception()
            if fault is None:
                self._returned_runs[run] = drive.result()
            else:
                # The store does not answer, or this code has a bug; the run is as due as before.
                self._failures.report(run, fault)
                self._returned_runs[run] = REPEATED_PAUSE_US
        self._wake_event.set()

    async def _is_dead_letter(self, run: RunKey) -> bool:
        tenant_id, run_id = run
        now_s = asyncio.get_running_loop().time()
        read_s, run_ids = self._dead_letters.get(tenant_id, (float("-inf"), set[str]()))
        if now_s - read_s > DEAD_LETTERS_KEPT_S or run_id in run_ids:
            run_ids = await listed_run_ids(self._stores.tenant(tenant_id))
            self._dead_letters[tenant_id] = (now_s, run_ids)
            if len(self._dead_letters) > MAX_TENANTS:
                del self._dead_letters[next(iter(self._dead_letters))]
        return run_id in run_ids
