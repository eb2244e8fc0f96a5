"""The one writer of an event loop: it commits all queued batches as one transaction, in one round trip (group commit).

A group contains the batches that are in the queue when the writer becomes free, so a single caller never waits for
others. While the server syncs one group, the next group gathers: throughput grows with the number of callers.

`contextos.commit_batches` is called once for each tenant of the group, with all its batches. A call writes all its
batches or none. If it writes none, each batch is called separately in a second transaction, so that one caller's
failure does not affect the others. All calls of a round trip are one implicit transaction, so no lock is held while the
client computes. Each call sets the tenant, for this transaction only. The first call locks every run and document of
the group, in the same order for all writers. A batch whose lock another session holds for longer than
`GROUP_LOCK_TIMEOUT` waits on a connection of its own, and delays no other batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from contextos.contracts.journal import Batch
from contextos.errors import Conflict, ContextOSError, InvalidInput, Problem, Unavailable, Untimely
from contextos.store.postgres.commit_calls import COMMIT, Job, arguments, batch_bytes, lock_keys, split_into_calls
from contextos.store.postgres.connections import (
    CONNECT_TIMEOUT_S,
    FAULTS,
    SOON_MS,
    Connection,
    DiskRoom,
    is_callers_fault,
    is_locked,
    is_repeatable,
    postgres_error,
    terminate,
)
from contextos.store.shared.batch import nothing_signed
from contextos.store.shared.segments import segments

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock

POSTGRES_QUEUE_LIMIT: Final = 4096
MAX_BATCH_BYTES: Final = 256 << 20
# Called separately, each batch is a savepoint; more than 64 in a transaction slow down every snapshot of the server.
POSTGRES_GROUP_LIMIT: Final = 64
GROUP_BYTES: Final = 16 << 20
GROUP_WRITES: Final = 1000
"""Each write takes a lock, and a server in its default configuration has room for 6,400 locks of all sessions."""
ATTEMPTS: Final = 5
GROUP_LOCK_TIMEOUT: Final = "200ms"
"""Longest time that a group waits for a lock. A commit of another writer is faster, even on a slow disk."""
LOCK_WAIT_CONNECTIONS: Final = 4
"""Most connections that wait for locks at once, in addition to the writer's own."""
LOCK_WAIT_TIMEOUT: Final = "100ms"
LOCK_WAIT_ATTEMPTS: Final = 10
LOCK_WAIT_PAUSE_S: Final = 0.1
"""Pause between two attempts. It releases the locks held so far, because other commits need the same index."""

CommitOutcome = str | None
# Errors of a malformed batch before it reaches the server: a bug, which only its own caller sees.
_BUGS: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, MemoryError)


class GroupWriter:
    """Commits batches; the batches of one run in order of arrival. A batch's future is done when the batch is durable.

    Deadlines are compared with `clock`, or with the server's clock if it is None. At most `queue_limit` batches wait.
    `room` takes note of what commits show about the disk of the server.
    `commit` raises `Unavailable` when the queue is full, after `close`, and for every batch of a group whose
    transaction was lost. The next group starts on a new connection.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        clock: Clock | None,
        *,
        queue_limit: int = POSTGRES_QUEUE_LIMIT,
        room: DiskRoom | None = None,
    ) -> None:
        self._connect, self._clock, self._queue_limit = connect, clock, queue_limit
        self._room = room or DiskRoom()
        self._queue: deque[Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._lock_waits: dict[asyncio.Task[None], Connection | None] = {}
        self._lock_wait_slots = asyncio.Semaphore(LOCK_WAIT_CONNECTIONS)
        self._closed = self._abandoned = False

    def commit(self, tenant: str, batch: Batch) -> asyncio.Future[None]:
        """Queue one batch. Its future raises `Conflict`, `InvalidInput`, `Unavailable` or `Integrity`."""
        if self._closed:
            raise Unavailable("store", "it is closed")
        if len(self._queue) + len(self._lock_waits) >= self._queue_limit:
            detail = f"more than {self._queue_limit} commits are waiting"
            raise Unavailable("store", detail, retry_after_ms=SOON_MS)
        size = batch_bytes(batch)
        if size > MAX_BATCH_BYTES:
            raise InvalidInput(Problem("", "too_large", f"a batch has at most {MAX_BATCH_BYTES} bytes", "split it"))
        future = asyncio.get_running_loop().create_future()
        self._queue.append(Job(tenant, batch, size, future, segments(batch.entries)))
        if self._task is None:
            self._task = asyncio.ensure_future(self._drain_queue())
        return future

    async def close(self) -> None:
        """Finish the queued batches, then close the connection."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._lock_waits:
            await asyncio.wait(list(self._lock_waits))
        if self._connection is not None:
            with suppress(*FAULTS):
                await self._connection.close(timeout=CONNECT_TIMEOUT_S)

    def abandon(self) -> None:
        """Close the connections at once. Batches that are queued or in progress raise `Unavailable`."""
        self._closed = self._abandoned = True
        self._drop_connection()
        for connection in self._lock_waits.values():
            if connection is not None:
                terminate(connection)

    async def _drain_queue(self) -> None:
        group: list[Job] = []
        is_done = False
        try:
            while self._queue:
                group = self._take_group()
                await self._commit_calls(split_into_calls(group))
            is_done = True
        finally:
            # Also runs if the event loop ends or after a bug: no caller keeps waiting and no lock stays held.
            if not is_done:
                self._drop_connection()
            self._task = None
            for job in [*(group if not is_done else ()), *self._queue]:
                _fail_job(job, Unavailable("store", "its writer has stopped"))
            self._queue.clear()

    def _take_group(self) -> list[Job]:
        group = [self._queue.popleft()]
        size, writes = group[0].size, len(group[0].batch.writes)
        while self._queue and len(group) < POSTGRES_GROUP_LIMIT:
            size, writes = size + self._queue[0].size, writes + len(self._queue[0].batch.writes)
            if size > GROUP_BYTES or writes > GROUP_WRITES:
                break
            group.append(self._queue.popleft())
        return group

    async def _commit_calls(self, calls: Sequence[Sequence[Job]], *, attempts: int = ATTEMPTS) -> None:
        """Commit calls and resolve their jobs. A call that writes nothing, or fails, is repeated one job at a time."""
        try:
            outcomes = await self._run_transaction(await self._open_connection(), calls)
        except (*FAULTS, ContextOSError, *_BUGS) as fault:
            self._drop_connection()
            await self._handle_fault([job for jobs in calls for job in jobs], fault, attempts)
            return
        repeated: list[Job] = []
        for jobs, outcome in zip(calls, outcomes, strict=True):
            if outcome is not None and len(jobs) > 1:
                repeated += jobs
                continue
            for job in jobs:
                _resolve_job(job, outcome)
        if repeated:
            await self._commit_calls([[job] for job in repeated])

    async def _handle_fault(self, jobs: Sequence[Job], fault: BaseException, attempts: int) -> None:
        """Fail or repeat `jobs` after their transaction was lost. An error that one job caused fails only that job."""
        if self._abandoned or not (is_callers_fault(fault) or isinstance(fault, _BUGS)):
            for job in jobs:
                _fail_job(job, _caller_error(fault))
        elif len(jobs) > 1:
            for job in jobs:
                await self._commit_calls([[job]])
        elif is_locked(fault):
            self._commit_separately(jobs[0])
        elif attempts > 1 and is_repeatable(fault):
            await self._commit_calls([jobs], attempts=attempts - 1)
        else:
            _fail_job(jobs[0], _caller_error(fault))

    async def _run_transaction(
        self, connection: Connection, calls: Sequence[Sequence[Job]], *, lock_timeout: str = GROUP_LOCK_TIMEOUT
    ) -> list[CommitOutcome]:
        """Run one transaction in one round trip, with a savepoint for each call."""
        now_us = self._clock.now_us() if self._clock is not None else None
        locks = lock_keys(job for jobs in calls for job in jobs)
        calls_arguments = [arguments(jobs, now_us, lock_timeout, locks if jobs is calls[0] else []) for jobs in calls]
        try:
            if len(calls_arguments) == 1:
                outcomes = [await connection.fetchval(COMMIT, *calls_arguments[0])]
            else:
                outcomes = [row[0] for row in await connection.fetchmany(COMMIT, calls_arguments)]
        except FAULTS as fault:
            self._room.note_fault(fault)
            raise
        if None in outcomes:
            self._room.note_commit()
        return outcomes

    def _commit_separately(self, job: Job) -> None:
        """Let this job wait for its lock on a connection of its own, so that the next group can proceed."""
        task = asyncio.ensure_future(self._wait_for_lock(job))
        self._lock_waits[task] = None
        task.add_done_callback(lambda task: self._lock_waits.pop(task, None))

    async def _wait_for_lock(self, job: Job) -> None:
        task, connection = asyncio.current_task(), None
        assert task is not None
        try:
            async with self._lock_wait_slots:
                connection = self._lock_waits[task] = await self._new_connection()
                (outcome,) = await self._retry_while_locked(connection, job)
                _resolve_job(job, outcome)
        except (*FAULTS, ContextOSError) as fault:
            _fail_job(job, _caller_error(fault))
        finally:
            if connection is not None:
                terminate(connection)
            _fail_job(job, Unavailable("store", "its writer has stopped"))

    async def _retry_while_locked(self, connection: Connection, job: Job) -> list[CommitOutcome]:
        for _ in range(LOCK_WAIT_ATTEMPTS - 1):
            try:
                return await self._run_transaction(connection, [[job]], lock_timeout=LOCK_WAIT_TIMEOUT)
            except FAULTS as fault:
                if self._abandoned or not is_locked(fault):
                    raise
            await asyncio.sleep(LOCK_WAIT_PAUSE_S)
        return await self._run_transaction(connection, [[job]], lock_timeout=LOCK_WAIT_TIMEOUT)

    async def _open_connection(self) -> Connection:
        if self._abandoned or self._connection is None or self._connection.is_closed():
            self._connection = await self._new_connection()
        return self._connection

    async def _new_connection(self) -> Connection:
        """Open a connection. Raises `Unavailable` if the writer was abandoned meanwhile."""
        connection = await self._connect() if not self._abandoned else None
        if not self._abandoned:
            return connection
        if connection is not None:
            terminate(connection)
        raise Unavailable("store", "it is closed")

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            terminate(connection)


def _caller_error(fault: BaseException) -> BaseException:
    """Return the error that the caller gets."""
    return postgres_error(fault) if isinstance(fault, FAULTS) else fault


def _resolve_job(job: Job, outcome: CommitOutcome) -> None:
    if job.future.done():
        return
    if outcome is None:
        job.future.set_result(None)
    else:
        job.future.set_exception(_conflict(outcome) if outcome else nothing_signed(job.batch.run))


def _conflict(outcome: str) -> Conflict:
    """Return the error for an outcome of `contextos.commit_batches`. No collection or run begins with `@`."""
    if not outcome.startswith("@"):
        return Conflict(outcome)
    store_us, _, name = outcome[1:].partition(" ")
    return Untimely(name, int(store_us))


def _fail_job(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)
