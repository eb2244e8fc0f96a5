"""`AdmissionController`: limits how many callers and driven runs this process takes at once, in total and per tenant.

A caller past a limit is refused at once, before anything is stored. Runs of admitted callers wait for a turn. Tenants
take turns, so that one tenant cannot starve another. A run that yielded its turn and has its answer goes before runs of
its tenant that have not begun. A tenant that is alone has all turns; if another tenant had a run lately, it is limited
to its share, so that the other finds a free turn. New runs count against a quota per minute.

A turn is many steps, each from one commit or answer to the next, and all turns share one event loop or a few. Before
each step, a run whose tenant has runs waiting lets a run of another tenant go first, if that tenant has none waiting
and used less lately (see `FairQueue`). So one request after the other is answered as on an idle process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from contextos.contracts.admission_limits import MinuteQuota, YieldedTurn
from contextos.errors import Overloaded
from contextos.workspace.engine.fair_queue import FairQueue, RunKey

if TYPE_CHECKING:
    from contextos.contracts.admission_limits import AdmissionLimits
    from contextos.contracts.ports.outside import Clock

KeyT = TypeVar("KeyT")

RETRY_AFTER_MS: Final = (100, 60_000)
"""Least and greatest `retry_after_ms` of a refusal, in milliseconds."""
FIRST_CALL_US: Final = 1_000_000
"""Assumed duration of a call, in microseconds, until the first call has ended."""
ALL_TENANTS: Final = ""
"""Key for all tenants together. No tenant has this name."""
QUIET_SHARE: Final = 4
"""One in this many places is kept for tenants that have fewer callers than there are places left. While tenants share
the turns, one in this many turns is kept for quiet tenants."""
SHARING_US: Final = 60_000_000
"""Tenants are limited to their share for this long after two of them had runs."""
MAX_YIELD_S: Final = 0.01
"""Longest time, in seconds, that a step waits for other runs. A step that takes longer itself loses its priority.

A step computes for a few milliseconds. A longer step waits for something, so other runs can work meanwhile.
"""
SHORT_CALL_S: Final = 0.003
"""Longest time, in seconds, that a step waits for the adapter call of another run. A call on this machine is over by
then. The wait for a call that leaves the machine costs other runs little."""
EARLY_US: Final = 10_000
"""A refused request can come back this many microseconds before its time: the timers of clients are not exact."""
MAX_KEPT_PROMISES: Final = 16_384
"""Most refused requests whose time to retry is kept (about 200 bytes each). Past this number the oldest is dropped."""
MAX_KEPT_TENANTS: Final = 1_024
"""Most tenants whose time to retry is kept. Past this number, times in the past are dropped, or else the oldest."""


_LOG: Final = logging.getLogger("contextos.workspace.engine")


@dataclass(slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    granted: bool = False

    def wake(self) -> None:
        """Resolve the future on its own loop. Raises `RuntimeError` if that loop is closed."""
        try:
            current: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            current = None
        if current is self.loop:
            # Another thread would have to wake the loop up, which costs a system call and one more turn of the loop.
            _resolve(self.future)
        else:
            self.loop.call_soon_threadsafe(_resolve, self.future)


class AdmissionController:
    """Limits how many callers and runs one process handles at the same time. Implements the port `Admission`.

    Safe to use from several threads, each with its own event loop.
    """

    def __init__(self, limits: AdmissionLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._callers: Counter[str] = Counter()
        self._queue = FairQueue(per_tenant=limits.max_turns_per_tenant)
        self._waiters: dict[RunKey, _Waiter] = {}
        self._driving = 0
        self._new_runs = MinuteQuota[str](limits.max_new_runs_per_minute_per_tenant)
        self._last_tenant: str | None = None
        self._shared_until_us = 0
        self._call_us: dict[str, int] = {}
        self._retry_at_us: dict[str, int] = {}
        self._promised_at_us: dict[tuple[str, str], int] = {}
        self._priority_until_s: dict[RunKey, float] = {}
        self._yielders: list[_Waiter] = []

    @property
    def callers(self) -> int:
        """The number of callers that are being served now."""
        return self._callers.total()

    @property
    def driving(self) -> int:
        """The number of runs that are being driven now."""
        return self._driving

    @contextmanager
    def caller(self, tenant_id: str, request_id: str = "") -> Iterator[None]:
        self._refuse_early(tenant_id, request_id)
        try:
            with self._admit(tenant_id):
                yield
        except Overloaded as refusal:
            if request_id:
                with self._lock:
                    now_us = self._clock.now_us()
                    self._promised_at_us = _future_entries(self._promised_at_us, now_us, MAX_KEPT_PROMISES)
                    self._promised_at_us[tenant_id, request_id] = now_us + refusal.retry_after_ms * 1_000 - EARLY_US
                    if len(self._promised_at_us) > MAX_KEPT_PROMISES:
                        del self._promised_at_us[next(iter(self._promised_at_us))]
            raise

    def _refuse_early(self, tenant_id: str, request_id: str) -> None:
        """Refuse a request that comes back before its time to retry, with the time that is left.

        Such a request takes no place from a caller who waits for their time, and changes nobody's time.
        """
        with self._lock:
            remaining_us = self._promised_at_us.get((tenant_id, request_id), 0) - self._clock.now_us()
        # If the clock was set back, no request has to wait for longer than the longest time.
        if 0 < remaining_us <= RETRY_AFTER_MS[1] * 1_000:
            detail = "this request came back before the time of its refusal"
            raise _overload_error(tenant_id, detail, -(-remaining_us // 1_000))

    @contextmanager
    def _admit(self, tenant_id: str) -> Iterator[None]:
        with self._lock:
            if self._callers.total() >= self._limits.max_callers:
                raise self._refusal(tenant_id, f"{self._limits.max_callers} callers are in")
            if self._callers[tenant_id] >= self._limits.max_callers_per_tenant:
                raise self._refusal(tenant_id, f"{self._limits.max_callers_per_tenant} callers of this tenant are in")
            free_places = self._limits.max_callers - self._callers.total()
            if free_places <= self._limits.max_callers // QUIET_SHARE and free_places <= self._callers[tenant_id]:
                # However many tenants are busy, a quiet one finds a place.
                raise self._refusal(tenant_id, f"the last {free_places} places are kept for tenants with fewer callers")
            self._callers[tenant_id] += 1
            began_at_us = self._clock.now_us()
        try:
            yield
        finally:
            with self._lock:
                call_us = max(0, self._clock.now_us() - began_at_us)
                for name in (tenant_id, ALL_TENANTS):
                    average_us = self._call_us.get(name, FIRST_CALL_US)
                    self._call_us[name] = average_us + (call_us - average_us) // 8
                self._callers[tenant_id] -= 1
                if not self._callers[tenant_id]:
                    del self._callers[tenant_id], self._call_us[tenant_id]

    def _refusal(self, tenant_id: str, detail: str) -> Overloaded:
        """Return the refusal of a caller. Each refusal has its own time to retry. Call with the lock held.

        The times of one tenant's callers are as far apart as the moments at which a place becomes free for the tenant.
        So callers come back about as fast as they can be admitted, and refusals do not become the load. If the whole
        process is full, the waiting tenants share its places, so one tenant's callers do not delay another's.
        """
        least_ms, most_ms = RETRY_AFTER_MS
        now_us = self._clock.now_us()
        retry_at_us = self._retry_at_us = _future_entries(self._retry_at_us, now_us)
        last_us, gap_us = retry_at_us.pop(tenant_id, 0), 0
        if self._callers[tenant_id] >= self._limits.max_callers_per_tenant:
            gap_us = self._call_us.get(tenant_id, FIRST_CALL_US) // self._limits.max_callers_per_tenant
        if self._callers.total() >= self._limits.max_callers or gap_us == 0:
            waiting_tenants = 1 + sum(at_us > now_us for at_us in retry_at_us.values())
            gap_us = max(
                gap_us, self._call_us.get(ALL_TENANTS, FIRST_CALL_US) * waiting_tenants // self._limits.max_callers
            )
        at_us = min(max(last_us, now_us) + gap_us, now_us + most_ms * 1_000)
        retry_at_us[tenant_id] = at_us
        if len(retry_at_us) > MAX_KEPT_TENANTS:
            del retry_at_us[next(iter(retry_at_us))]
        return _overload_error(tenant_id, detail, max((at_us - now_us) // 1_000, least_ms))

    def begin(self, tenant_id: str) -> None:
        quota = self._limits.max_new_runs_per_minute_per_tenant
        with self._lock:
            wait_us = self._new_runs.take(tenant_id, self._clock.now_us())
        if wait_us:
            detail = f"this tenant began {quota} runs within a minute"
            raise _overload_error(tenant_id, detail, -(-wait_us // 1000))

    @asynccontextmanager
    async def turn(self, tenant_id: str, run_id: str) -> AsyncIterator[None]:
        run = (tenant_id, run_id)
        try:
            await self._take_turn(run, self._queue.put)
            yield
        finally:
            self._give_up_turn(run)

    @asynccontextmanager
    async def yield_turn(self, tenant_id: str, run_id: str) -> AsyncIterator[YieldedTurn]:
        run, yielded = (tenant_id, run_id), YieldedTurn()
        will_resume = self._give_up_turn(run, priority_until_s=asyncio.get_running_loop().time() + SHORT_CALL_S)
        try:
            yield yielded
        except (asyncio.CancelledError, GeneratorExit):
            will_resume = False
            raise
        finally:
            if will_resume:
                yielded.waited_us = await self._take_turn(run, self._queue.put_back)

    async def yield_to_others(self, tenant_id: str, run_id: str) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + MAX_YIELD_S
        while True:
            with self._lock:
                remaining_s = min(self._others_priority_until_s(tenant_id), until_s) - loop.time()
                if remaining_s <= 0:
                    self._begin_step((tenant_id, run_id), loop.time())
                    return
                self._yielders.append(waiter := _Waiter(loop, loop.create_future()))
            try:
                await asyncio.wait([waiter.future], timeout=remaining_s)
            finally:
                with self._lock:
                    self._yielders = [other for other in self._yielders if other is not waiter]

    async def _take_turn(self, run: RunKey, put: Callable[[RunKey], None]) -> int:
        """Wait for a turn and its first step. Return the waiting time in microseconds; 0 if a turn was free at once."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._lock:
            assert run not in self._waiters, "a run is driven once at a time"
            self._waiters[run] = waiter
            put(run)
            self._update_share(run[0])
            self._grant_turns()
        since_us = self._clock.now_us()
        if waited := not waiter.granted:
            await waiter.future
        await self.yield_to_others(*run)
        return max(0, self._clock.now_us() - since_us) if waited else 0

    def _others_priority_until_s(self, tenant_id: str) -> float:
        """Return the loop time until which other tenants' steps precede those of this one, or 0. Needs the lock."""
        if not self._queue.waits(tenant_id):
            return 0
        deadlines = (
            until_s
            for (other_id, _), until_s in self._priority_until_s.items()
            if not self._queue.waits(other_id) and self._queue.used(other_id) < self._queue.used(tenant_id)
        )
        return max(deadlines, default=0)

    def _begin_step(self, run: RunKey, now_s: float) -> None:
        if run in self._waiters:
            self._priority_until_s[run] = now_s + MAX_YIELD_S
        self._queue.count_step(run[0])

    def _update_share(self, tenant_id: str) -> None:
        now_us = self._clock.now_us()
        if self._last_tenant not in (None, tenant_id):
            self._shared_until_us = now_us + SHARING_US
        self._last_tenant = tenant_id
        is_shared = 0 < self._shared_until_us - now_us <= SHARING_US
        self._queue.per_tenant = self._limits.max_turns_per_tenant if is_shared else self._limits.max_turns

    def _give_up_turn(self, run: RunKey, *, priority_until_s: float = 0) -> bool:
        """Give up a turn, or stop waiting for a turn. Return whether the run had a turn or waited for one.

        Until `priority_until_s` (loop time in seconds) the run keeps its priority over other runs, as during a step.
        """
        with self._lock:
            waiter = self._waiters.pop(run, None)
            if priority_until_s and waiter is not None:
                self._priority_until_s[run] = priority_until_s
            else:
                self._priority_until_s.pop(run, None)
            if waiter is not None and waiter.granted:
                for yielder in self._yielders:
                    with suppress(RuntimeError):
                        yielder.wake()
                self._driving -= 1
                self._queue.done(run)
                self._grant_turns()
            elif waiter is not None:
                self._queue.withdraw(run)
            return waiter is not None

    def _grant_turns(self) -> None:
        """Grant the free turns. Call with the lock held."""
        is_shared = self._queue.per_tenant < self._limits.max_turns
        reserved = self._limits.max_turns // QUIET_SHARE if is_shared else 0
        while (free := self._limits.max_turns - self._driving) and (run := self._queue.take(quiet=free <= reserved)):
            waiter = self._waiters[run]
            try:
                waiter.wake()
            except RuntimeError:
                # Its loop is closed, so nothing will take the turn or give it up.
                del self._waiters[run]
                self._priority_until_s.pop(run, None)
                self._queue.done(run)
                continue
            waiter.granted = True
            self._driving += 1


def _future_entries(until_us: dict[KeyT, int], now_us: int, limit: int = MAX_KEPT_TENANTS) -> dict[KeyT, int]:
    """Return the entries whose time is in the future. A table of fewer than `limit` entries is returned unchanged."""
    if len(until_us) < limit:
        return until_us
    return {name: at_us for name, at_us in until_us.items() if at_us > now_us}


def _overload_error(tenant_id: str, detail: str, retry_after_ms: int) -> Overloaded:
    _LOG.debug("admission refused", extra={"tenant": tenant_id, "retry_after_ms": retry_after_ms})
    return Overloaded("runtime", detail, retry_after_ms=retry_after_ms)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
