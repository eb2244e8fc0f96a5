"""The one writer of an event loop: it commits whatever is queued as one transaction, in one round trip.

A caller alone does not wait: the group is what stands in the queue when the writer comes back. While the server syncs
one group the next one gathers, so throughput grows with the number of callers.

`contextos.commit_batches` is called once for each tenant in the group, with all its batches: all of them hold or none,
and where one does not, each is called alone in a second transaction, so that a caller's failure is its own. All calls
of a round trip are one implicit transaction, so no lock is held while a client thinks. The tenant is set anew by each
call and ends with the transaction. The first call locks, in one order for all writers, every run and document that the
group touches. What another session keeps locked for longer than `PATIENCE` holds up its own caller alone, aside.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from contextos.contracts.journal import Batch
from contextos.errors import Conflict, ContextOSError, InvalidInput, Problem, Unavailable
from contextos.store.postgres.commit_calls import COMMIT, Job, arguments, locked, parted, size_of
from contextos.store.postgres.connections import (
    CONNECT_TIMEOUT_S,
    FAULTS,
    SOON_MS,
    Connection,
    is_callers_own,
    is_locked,
    may_be_repeated,
    postgres_error,
    terminate,
)
from contextos.store.shared.batch import nothing_signed

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock

POSTGRES_QUEUE_LIMIT: Final = 4096
MAX_BATCH_BYTES: Final = 256 << 20
# Alone, each is a savepoint, and more than 64 in a transaction make every snapshot of the server slower.
POSTGRES_GROUP_LIMIT: Final = 64
GROUP_BYTES: Final = 16 << 20
GROUP_WRITES: Final = 1000
"""Each is locked by its name, and a server as it is installed has room for 6,400 locks of all sessions together."""
ATTEMPTS: Final = 5
PATIENCE: Final = "200ms"
"""So long a group waits for a lock: another writer's commit takes less, even where the disk is slow."""
ASIDE_LIMIT: Final = 4
"""So many connections wait for locks at once, beside the writer's own."""
ASIDE_PATIENCE: Final = "100ms"
ASIDE_ATTEMPTS: Final = 10
ASIDE_PAUSE_S: Final = 0.1
"""Who waits aside lets go of what it has locked itself again and again: others want the same index."""

CommitOutcome = str | None
# What one caller's batch may raise on its way to the server: a bug that this caller shall see and nobody else.
_BUGS: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, MemoryError)


class GroupWriter:
    """Commits batches, those of one run in order of arrival; `commit` returns when its batch is durable.

    `clock` judges deadlines; None leaves that to the server's. At most `queue_limit` batches wait. Raises
    `Unavailable` past that, after `close`, and to every batch of a group whose transaction was lost; the next group
    starts on a fresh connection.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        clock: Clock | None,
        *,
        queue_limit: int = POSTGRES_QUEUE_LIMIT,
    ) -> None:
        self._connect, self._clock, self._queue_limit = connect, clock, queue_limit
        self._queue: deque[Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._aside: dict[asyncio.Task[None], Connection | None] = {}
        self._turns = asyncio.Semaphore(ASIDE_LIMIT)
        self._closed = self._abandoned = False

    def commit(self, tenant: str, batch: Batch) -> asyncio.Future[None]:
        """Commit one batch. What is awaited raises `Conflict`, `InvalidInput`, `Unavailable` or `Integrity`."""
        if self._closed:
            raise Unavailable("store", "it is closed")
        if len(self._queue) + len(self._aside) >= self._queue_limit:
            detail = f"more than {self._queue_limit} commits are waiting"
            raise Unavailable("store", detail, retry_after_ms=SOON_MS)
        size = size_of(batch)
        if size > MAX_BATCH_BYTES:
            raise InvalidInput(Problem("", "too_large", f"a batch has at most {MAX_BATCH_BYTES} bytes", "split it"))
        future = asyncio.get_running_loop().create_future()
        self._queue.append(Job(tenant, batch, size, future))
        if self._task is None:
            self._task = asyncio.ensure_future(self._drain())
        return future

    async def close(self) -> None:
        """Finish what is queued, then let go of the connection."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._aside:
            await asyncio.wait(list(self._aside))
        if self._connection is not None:
            with suppress(*FAULTS):
                await self._connection.close(timeout=CONNECT_TIMEOUT_S)

    def abandon(self) -> None:
        """Let go at once; what is queued or under way is answered with `Unavailable`."""
        self._closed = self._abandoned = True
        self._drop()
        for connection in self._aside.values():
            if connection is not None:
                terminate(connection)

    async def _drain(self) -> None:
        group: list[Job] = []
        done = False
        try:
            while self._queue:
                group = self._gather()
                await self._settle(parted(group))
            done = True
        finally:
            # Also the way out if the loop ends or of a bug: nobody is left waiting, and no lock is left behind.
            if not done:
                self._drop()
            self._task = None
            for job in [*(group if not done else ()), *self._queue]:
                _fail(job, Unavailable("store", "its writer has stopped"))
            self._queue.clear()

    def _gather(self) -> list[Job]:
        group = [self._queue.popleft()]
        size, writes = group[0].size, len(group[0].batch.writes)
        while self._queue and len(group) < POSTGRES_GROUP_LIMIT:
            size, writes = size + self._queue[0].size, writes + len(self._queue[0].batch.writes)
            if size > GROUP_BYTES or writes > GROUP_WRITES:
                break
            group.append(self._queue.popleft())
        return group

    async def _settle(self, calls: Sequence[Sequence[Job]], *, attempts: int = ATTEMPTS) -> None:
        """Commit calls and tell each job what came of it. What cannot stand together, or makes a fault, goes alone."""
        try:
            outcomes = await self._call(await self._open(), calls)
        except (*FAULTS, ContextOSError, *_BUGS) as fault:
            self._drop()
            await self._settle_fault([job for jobs in calls for job in jobs], fault, attempts)
            return
        alone: list[Job] = []
        for jobs, outcome in zip(calls, outcomes, strict=True):
            if outcome is not None and len(jobs) > 1:
                alone += jobs
                continue
            for job in jobs:
                _tell(job, outcome)
        if alone:
            await self._settle([[job] for job in alone])

    async def _settle_fault(self, jobs: Sequence[Job], fault: BaseException, attempts: int) -> None:
        """What follows a transaction of `jobs` that did not happen. A fault that one of them caused is its own."""
        if self._abandoned or not (is_callers_own(fault) or isinstance(fault, _BUGS)):
            for job in jobs:
                _fail(job, _told(fault))
        elif len(jobs) > 1:
            for job in jobs:
                await self._settle([[job]])
        elif is_locked(fault):
            self._set_aside(jobs[0])
        elif attempts > 1 and may_be_repeated(fault):
            await self._settle([jobs], attempts=attempts - 1)
        else:
            _fail(jobs[0], _told(fault))

    async def _call(
        self, connection: Connection, calls: Sequence[Sequence[Job]], *, patience: str = PATIENCE
    ) -> list[CommitOutcome]:
        """One transaction in one round trip, a savepoint for each call."""
        now_us = self._clock.now_us() if self._clock is not None else None
        locks = locked(job for jobs in calls for job in jobs)
        given = [arguments(jobs, now_us, patience, locks if jobs is calls[0] else []) for jobs in calls]
        if len(given) == 1:
            return [await connection.fetchval(COMMIT, *given[0])]
        return [row[0] for row in await connection.fetchmany(COMMIT, given)]

    def _set_aside(self, job: Job) -> None:
        """Let this job wait for its lock on a connection of its own, so that the next group goes on."""
        task = asyncio.ensure_future(self._wait_aside(job))
        self._aside[task] = None
        task.add_done_callback(lambda task: self._aside.pop(task, None))

    async def _wait_aside(self, job: Job) -> None:
        task, connection = asyncio.current_task(), None
        assert task is not None
        try:
            async with self._turns:
                connection = self._aside[task] = await self._connected()
                (outcome,) = await self._call_aside(connection, job)
                _tell(job, outcome)
        except (*FAULTS, ContextOSError) as fault:
            _fail(job, _told(fault))
        finally:
            if connection is not None:
                terminate(connection)
            _fail(job, Unavailable("store", "its writer has stopped"))

    async def _call_aside(self, connection: Connection, job: Job) -> list[CommitOutcome]:
        for _ in range(ASIDE_ATTEMPTS - 1):
            try:
                return await self._call(connection, [[job]], patience=ASIDE_PATIENCE)
            except FAULTS as fault:
                if self._abandoned or not is_locked(fault):
                    raise
            await asyncio.sleep(ASIDE_PAUSE_S)
        return await self._call(connection, [[job]], patience=ASIDE_PATIENCE)

    async def _open(self) -> Connection:
        if self._abandoned or self._connection is None or self._connection.is_closed():
            self._connection = await self._connected()
        return self._connection

    async def _connected(self) -> Connection:
        """A fresh connection. Refuses one that is there only after everything was let go of."""
        connection = await self._connect() if not self._abandoned else None
        if not self._abandoned:
            return connection
        if connection is not None:
            terminate(connection)
        raise Unavailable("store", "it is closed")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            terminate(connection)


def _told(fault: BaseException) -> BaseException:
    """What a caller hears of a fault."""
    return postgres_error(fault) if isinstance(fault, FAULTS) else fault


def _tell(job: Job, outcome: CommitOutcome) -> None:
    if job.future.done():
        return
    if outcome is None:
        job.future.set_result(None)
    else:
        job.future.set_exception(Conflict(outcome) if outcome else nothing_signed(job.batch.run))


def _fail(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)
