"""`AdmissionController`: how many callers and how many driven runs this process takes at once, in all and per tenant.

Callers past their bound are refused at once, before anything is stored. Those within it wait for a turn, tenants in
turn, so that one of them cannot starve another; a tenant's run that stood aside and has its answer goes before those
that have not begun. A tenant that is alone has all turns; where another was there lately
it keeps to its share, so that the other finds one free and works beside few. New runs are counted against a quota.

A turn is many steps, from one commit or answer to the next, and all of them are taken on one event loop or a few.
Before each a run lets those go first whose tenant has no run waiting and had fewer steps lately, if its own has one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contextos.contracts.admission_limits import YieldedTurn
from contextos.engine.fair_queue import FairQueue, RunKey
from contextos.errors import Overloaded

if TYPE_CHECKING:
    from contextos.contracts.admission_limits import AdmissionLimits
    from contextos.contracts.ports.outside import Clock

RETRY_AFTER_MS: Final = (100, 60_000)
"""The least and the most that a refused caller is told."""
FIRST_STAY_US: Final = 1_000_000
"""How long a tenant's callers are taken to stay while none of them has left."""
ALL: Final = ""
"""All tenants together; none has this name."""
LATELY_US: Final = 60_000_000
PERIOD_US: Final = 60_000_000
HELD_S: Final = 0.01
"""For no longer a step waits for those that go first, and one that takes longer itself goes first no more.

A step computes for a few milliseconds; what takes longer waits for something, and others may work meanwhile.
"""
LATELY_STEPS: Final = 512
"""Of so many steps of all tenants together one remembers whose they were, and of older ones half as many each time."""
MANY_TENANTS: Final = 1_024
"""From so many on, tenants of whom nothing is ahead are forgotten; of refused ones no more are remembered."""


@dataclass(slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    granted: bool = False
    since_s: float = 0

    def wake(self) -> None:
        """Raises `RuntimeError` where its loop is closed."""
        self.loop.call_soon_threadsafe(_resolve, self.future)


class AdmissionController:
    """The `Admission` port in one process. May be used from several threads, each with its own event loop."""

    def __init__(self, limits: AdmissionLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._callers: Counter[str] = Counter()
        self._queue = FairQueue(per_tenant=limits.max_turns_per_tenant)
        self._waiters: dict[RunKey, _Waiter] = {}
        self._driving = 0
        self._spent_until_us: dict[str, int] = {}
        self._last_tenant: str | None = None
        self._shared_until_us = 0
        self._stay_us: dict[str, int] = {}
        self._told_until_us: dict[str, int] = {}
        self._steps: Counter[str] = Counter()
        self._held: list[_Waiter] = []

    @property
    def callers(self) -> int:
        """How many callers are in."""
        return self._callers.total()

    @property
    def driving(self) -> int:
        """How many runs have their turn."""
        return self._driving

    @contextmanager
    def caller(self, tenant_id: str) -> Iterator[None]:
        with self._lock:
            if self._callers.total() >= self._limits.max_callers:
                raise self._full(tenant_id, f"{self._limits.max_callers} callers are in")
            if self._callers[tenant_id] >= self._limits.max_callers_per_tenant:
                raise self._full(tenant_id, f"{self._limits.max_callers_per_tenant} callers of this tenant are in")
            self._callers[tenant_id] += 1
            came_us = self._clock.now_us()
        try:
            yield
        finally:
            with self._lock:
                stayed_us = max(0, self._clock.now_us() - came_us)
                for whose in (tenant_id, ALL):
                    before_us = self._stay_us.get(whose, FIRST_STAY_US)
                    self._stay_us[whose] = before_us + (stayed_us - before_us) // 8
                self._callers[tenant_id] -= 1
                if not self._callers[tenant_id]:
                    del self._callers[tenant_id], self._stay_us[tenant_id]

    def _full(self, tenant_id: str, detail: str) -> Overloaded:
        """Each refused caller of a tenant is told a time of its own, as far apart as places become free for it.

        So they come back about as fast as they can be taken, and refusing them does not become the load. The places of
        a full process go round the tenants that wait for one: the callers of one do not make those of another wait.
        """
        least_ms, most_ms = RETRY_AFTER_MS
        now_us = self._clock.now_us()
        told = self._told_until_us = _current(self._told_until_us, now_us)
        before_us, apart_us = told.pop(tenant_id, 0), 0
        if self._callers[tenant_id] >= self._limits.max_callers_per_tenant:
            apart_us = self._stay_us.get(tenant_id, FIRST_STAY_US) // self._limits.max_callers_per_tenant
        if self._callers.total() >= self._limits.max_callers:
            waiting = 1 + sum(until_us > now_us for until_us in told.values())
            apart_us = max(apart_us, self._stay_us.get(ALL, FIRST_STAY_US) * waiting // self._limits.max_callers)
        at_us = min(max(before_us, now_us) + apart_us, now_us + most_ms * 1_000)
        told[tenant_id] = at_us
        if len(told) > MANY_TENANTS:
            del told[next(iter(told))]
        return Overloaded("runtime", detail, retry_after_ms=max((at_us - now_us) // 1_000, least_ms))

    def begin(self, tenant_id: str) -> None:
        quota = self._limits.max_new_runs_per_minute_per_tenant
        with self._lock:
            now_us = self._clock.now_us()
            # What each run uses up of the period comes back as time passes (the generic cell rate algorithm).
            # A clock that was put back must not make a tenant wait for longer than a period.
            spent_us = min(max(self._spent_until_us.get(tenant_id, 0), now_us), now_us + PERIOD_US) + PERIOD_US // quota
            early_us = spent_us - now_us - PERIOD_US
            if early_us > 0:
                detail = f"this tenant began {quota} runs within a minute"
                raise Overloaded("runtime", detail, retry_after_ms=-(-early_us // 1000))
            self._spent_until_us = _current(self._spent_until_us, now_us)
            self._spent_until_us[tenant_id] = spent_us

    @asynccontextmanager
    async def turn(self, tenant_id: str, run_id: str) -> AsyncIterator[None]:
        run = (tenant_id, run_id)
        try:
            await self._take(run, self._queue.put)
            yield
        finally:
            self._leave(run)

    @asynccontextmanager
    async def aside(self, tenant_id: str, run_id: str) -> AsyncIterator[YieldedTurn]:
        run, aside = (tenant_id, run_id), YieldedTurn()
        goes_on = self._leave(run)
        try:
            yield aside
        except (asyncio.CancelledError, GeneratorExit):
            goes_on = False
            raise
        finally:
            if goes_on:
                aside.waited_us = await self._take(run, self._queue.put_back)

    async def make_way(self, tenant_id: str, run_id: str) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + HELD_S
        while True:
            with self._lock:
                left_s = min(self._goes_first_s(tenant_id), until_s) - loop.time()
                if left_s <= 0:
                    self._count((tenant_id, run_id), loop.time())
                    return
                self._held.append(held := _Waiter(loop, loop.create_future()))
            try:
                await asyncio.wait([held.future], timeout=left_s)
            finally:
                with self._lock:
                    self._held = [one for one in self._held if one is not held]

    async def _take(self, run: RunKey, put: Callable[[RunKey], None]) -> int:
        """Wait for a turn and its first step; how long that took, in microseconds."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._lock:
            assert run not in self._waiters, "a run is driven once at a time"
            self._waiters[run] = waiter
            put(run)
            self._share(run[0])
            self._pump()
        since_us = self._clock.now_us()
        if waited := not waiter.granted:
            await waiter.future
        await self.make_way(*run)
        return max(0, self._clock.now_us() - since_us) if waited else 0

    def _goes_first_s(self, tenant: str) -> float:
        """Until when a step in progress goes before one of `tenant`; 0 if none does. The caller holds the lock."""
        if not self._queue.waits(tenant):
            return 0
        first = (
            waiter.since_s + HELD_S
            for (other, _), waiter in self._waiters.items()
            if not self._queue.waits(other) and self._steps[other] < self._steps[tenant]
        )
        return max(first, default=0)

    def _count(self, run: RunKey, now_s: float) -> None:
        if (waiter := self._waiters.get(run)) is not None:
            waiter.since_s = now_s
        self._steps[run[0]] += 1
        if self._steps.total() > LATELY_STEPS:
            self._steps = Counter({tenant: steps // 2 for tenant, steps in self._steps.items() if steps > 1})

    def _share(self, tenant_id: str) -> None:
        now_us = self._clock.now_us()
        if self._last_tenant not in (None, tenant_id):
            self._shared_until_us = now_us + LATELY_US
        self._last_tenant = tenant_id
        shared = 0 < self._shared_until_us - now_us <= LATELY_US
        self._queue.per_tenant = self._limits.max_turns_per_tenant if shared else self._limits.max_turns

    def _leave(self, run: RunKey) -> bool:
        """Give back a turn, or stop waiting for one; whether there was either."""
        with self._lock:
            waiter = self._waiters.pop(run, None)
            if waiter is not None and waiter.granted:
                for held in self._held:
                    with suppress(RuntimeError):
                        held.wake()
                self._driving -= 1
                self._queue.done(run)
                self._pump()
            elif waiter is not None:
                self._queue.withdraw(run)
            return waiter is not None

    def _pump(self) -> None:
        """Give turns while there are some; the caller holds the lock."""
        while self._driving < self._limits.max_turns and (run := self._queue.take()) is not None:
            waiter = self._waiters[run]
            try:
                waiter.wake()
            except RuntimeError:
                # Its loop is closed, and nobody is there to take the turn or to leave.
                del self._waiters[run]
                self._queue.done(run)
                continue
            waiter.granted = True
            self._driving += 1


def _current(until_us: dict[str, int], now_us: int) -> dict[str, int]:
    """What is still ahead; looked at only where there is much of it."""
    if len(until_us) < MANY_TENANTS:
        return until_us
    return {name: at_us for name, at_us in until_us.items() if at_us > now_us}


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
