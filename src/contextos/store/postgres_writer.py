"""The one writer of an event loop: it commits whatever is queued as one transaction, each batch under a savepoint.

A caller alone does not wait: the group is what stands in the queue when the writer comes back. While the server syncs
one group the next one gathers, so throughput grows with the number of callers.

`contextos.commit_batch` is called once per batch, all in one round trip; its block is the savepoint. Where nothing is
shared the calls are one implicit transaction. The tenant is set anew by each call and ends with the transaction.
The first call locks, in one order for all writers, every run and document that the group touches.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.journal import Batch, Entry, genesis, link
from contextos.errors import Conflict, ContextOSError, Unavailable
from contextos.store.batch import nothing_signed
from contextos.store.postgres_connections import (
    CONNECT_TIMEOUT_S,
    FAULTS,
    SOON_MS,
    Connection,
    fault_of,
    is_callers_own,
    may_be_repeated,
    terminate,
)

if TYPE_CHECKING:
    from contextos.contracts.ports import Clock

QUEUE_LIMIT: Final = 4096
# A transaction with more than 64 savepoints makes every snapshot of the server slower.
GROUP_LIMIT: Final = 64
GROUP_BYTES: Final = 16 << 20
ATTEMPTS: Final = 5

Outcome = str | None
_ENTRY_FIELDS: Final = (
    "seq", "v", "kind", "key", "at_us", "by", "body_digest", "prev_hash", "hash", "salt", "body",
)  # fmt: skip
_PLACES: Final = ", ".join(f"${number}" for number in range(1, 26))
_COMMIT: Final = f"SELECT contextos.commit_batch({_PLACES})"
_HEADS: Final = "SELECT tenant, stream, seq, hash FROM contextos.stream_heads($1, $2)"
# What one caller's batch may raise on its way to the server: a bug that this caller shall see and nobody else.
_BUGS: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, MemoryError)


@dataclass(slots=True, eq=False)
class _Job:
    tenant: str
    batch: Batch
    size: int
    future: asyncio.Future[None]


class GroupWriter:
    """Commits batches in order of arrival; `commit` returns when its batch is durable.

    `clock` judges deadlines; None leaves that to the server's. At most `queue_limit` batches wait. Raises
    `Unavailable` past that, after `close`, and to every batch of a group whose transaction was lost; the next group
    starts on a fresh connection.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], clock: Clock | None, *, queue_limit: int = QUEUE_LIMIT
    ) -> None:
        self._connect, self._clock, self._queue_limit = connect, clock, queue_limit
        self._queue: deque[_Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._closed = self._abandoned = False

    async def commit(self, tenant: str, batch: Batch) -> None:
        """Commit one batch. Raises: `Conflict`, `InvalidInput`, `Unavailable`, `Integrity`."""
        if self._closed:
            raise Unavailable("store", "it is closed")
        if len(self._queue) >= self._queue_limit:
            detail = f"more than {self._queue_limit} commits are waiting"
            raise Unavailable("store", detail, retry_after_ms=SOON_MS)
        future = asyncio.get_running_loop().create_future()
        self._queue.append(_Job(tenant, batch, _size(batch), future))
        if self._task is None:
            self._task = asyncio.ensure_future(self._drain())
        await future

    async def close(self) -> None:
        """Finish what is queued, then let go of the connection."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._connection is not None:
            with suppress(*FAULTS):
                await self._connection.close(timeout=CONNECT_TIMEOUT_S)

    def abandon(self) -> None:
        """Let go at once; what is queued or under way is answered with `Unavailable`."""
        self._closed = self._abandoned = True
        self._drop()

    async def _drain(self) -> None:
        group: list[_Job] = []
        done = False
        try:
            while self._queue:
                group = self._gather()
                await self._settle(group)
            done = True
        finally:
            # Also the way out if the loop ends or of a bug: nobody is left waiting, and no lock is left behind.
            if not done:
                self._drop()
            self._task = None
            for job in [*group, *self._queue]:
                _fail(job, Unavailable("store", "its writer has stopped"))
            self._queue.clear()

    def _gather(self) -> list[_Job]:
        group = [self._queue.popleft()]
        size = group[0].size
        while self._queue and len(group) < GROUP_LIMIT and (size := size + self._queue[0].size) <= GROUP_BYTES:
            group.append(self._queue.popleft())
        return group

    async def _settle(self, group: Sequence[_Job], *, attempts: int = ATTEMPTS) -> None:
        """Commit a group and tell each what came of it. A fault that one of them caused sends each on its own way."""
        try:
            outcomes = await self._attempt(group)
        except (*FAULTS, ContextOSError, *_BUGS) as fault:
            self._drop()
            if self._abandoned or not (is_callers_own(fault) or isinstance(fault, _BUGS)):
                error = fault if isinstance(fault, ContextOSError) else fault_of(fault)
                for job in group:
                    _fail(job, error)
            elif len(group) > 1:
                for job in group:
                    await self._settle([job])
            elif attempts > 1 and may_be_repeated(fault):
                await self._settle(group, attempts=attempts - 1)
            else:
                _fail(group[0], fault_of(fault) if isinstance(fault, FAULTS) else fault)
            return
        for job, outcome in zip(group, outcomes, strict=True):
            _tell(job, outcome)

    async def _attempt(self, group: Sequence[_Job]) -> list[Outcome]:
        """One transaction for the group. Each outcome is what stood in the way, None for what happened."""
        connection = await self._open()
        now_us = self._clock.now_us() if self._clock is not None else None
        locks = _locks(group)
        calls = [
            _arguments(job.tenant, job.batch, now_us, locks if number == 0 else {}) for number, job in enumerate(group)
        ]
        if not any(job.batch.shared for job in group):
            return await _call(connection, calls)
        await connection.execute("BEGIN")
        outcomes = await _call(connection, calls)
        await self._append_shared(
            connection, [job for job, outcome in zip(group, outcomes, strict=True) if outcome is None]
        )
        await connection.execute("COMMIT")
        return outcomes

    async def _append_shared(self, connection: Connection, jobs: Sequence[_Job]) -> None:
        """Link the shared drafts of `jobs` to the heads of their streams, which the transaction has locked."""
        streams = sorted({(job.tenant, stream) for job in jobs for stream, _ in job.batch.shared})
        if not streams:
            return
        rows = await connection.fetch(_HEADS, [tenant for tenant, _ in streams], [stream for _, stream in streams])
        heads = {place: (0, genesis(*place)) for place in streams}
        heads |= {(tenant, stream): (seq, digest) for tenant, stream, seq, digest in rows}
        linked = _linked(jobs, heads)
        moved = await _call(
            connection, [_arguments(tenant, Batch(run, tuple(new)), None, {}) for (tenant, run), new in linked.items()]
        )
        if any(moved):
            raise Unavailable("store", "a shared stream was written past its lock", retry_after_ms=SOON_MS)

    async def _open(self) -> Connection:
        if self._abandoned:
            raise Unavailable("store", "it is closed")
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            terminate(connection)


async def _call(connection: Connection, calls: Sequence[tuple[Any, ...]]) -> list[Outcome]:
    if len(calls) == 1:
        return [await connection.fetchval(_COMMIT, *calls[0])]
    return [row[0] for row in await connection.fetchmany(_COMMIT, calls)]


def _linked(jobs: Sequence[_Job], heads: dict[tuple[str, str], tuple[int, str]]) -> dict[tuple[str, str], list[Entry]]:
    """The shared drafts of `jobs` as entries that continue `heads`, by tenant and stream."""
    grown: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for job in jobs:
        for stream, draft in job.batch.shared:
            place = (job.tenant, stream)
            seq, head = heads[place]
            entry = link(*place, seq + 1, head, draft)
            heads[place] = (entry.seq, entry.hash)
            grown[place].append(entry)
    return grown


def _tell(job: _Job, outcome: Outcome) -> None:
    if job.future.done():
        return
    if outcome is None:
        job.future.set_result(None)
    else:
        job.future.set_exception(Conflict(outcome) if outcome else nothing_signed(job.batch.run))


def _fail(job: _Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)


def _locks(group: Sequence[_Job]) -> dict[int, bool]:
    """What the group's transaction locks, in order: alone (True) what it writes, shared what it only looks at."""
    locks: dict[int, bool] = {}
    for job in group:
        runs = {stream for stream, _ in job.batch.shared} | {job.batch.run}
        alone = [("run", run) for run in runs]
        alone += [(write.collection, write.key) for write in job.batch.writes if write.body is not None]
        for place in alone:
            locks[_place(job.tenant, *place)] = True
        for write in job.batch.writes:
            locks.setdefault(_place(job.tenant, write.collection, write.key), False)
    return dict(sorted(locks.items()))


def _place(*names: str) -> int:
    """The number under which PostgreSQL locks a name. Two names with one number only wait for each other."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _arguments(tenant: str, batch: Batch, now_us: int | None, locks: Mapping[int, bool]) -> tuple[Any, ...]:
    """The arguments of `contextos.commit_batch`, in its order."""
    writes = batch.writes
    kid, sig = batch.signature if batch.signature is not None else (None, None)
    return (
        tenant, batch.run, now_us, list(locks), list(locks.values()), *_columns(batch.entries),
        [one.collection for one in writes], [one.key for one in writes], [one.expect for one in writes],
        [one.body for one in writes], [one.not_after_us for one in writes], [one.not_before_us for one in writes],
        batch.wake_at_us, kid, sig,
    )  # fmt: skip


def _columns(entries: Sequence[Entry]) -> list[list[Any]]:
    return [[getattr(entry, name) for entry in entries] for name in _ENTRY_FIELDS]


def _size(batch: Batch) -> int:
    bodies = [entry.body for entry in batch.entries] + [write.body for write in batch.writes]
    return sum(len(body) for body in bodies if body is not None)
