"""The one writer of a file in this process: a thread that commits what is queued as one transaction.

A caller alone does not wait: the group is whatever stands in the queue when the write lock is held.
While the disk syncs one group the next one gathers, so throughput grows with the number of callers.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from contextos.errors import ContextOSError, Unavailable
from contextos.store.sqlite.database import begin_immediate, sqlite_error

SQLITE_QUEUE_LIMIT: Final = 4096
SQLITE_GROUP_LIMIT: Final = 256

WriterTask = Callable[[sqlite3.Connection], Any]
# What an act may raise on its own account: a refusal, or a bug that its caller shall see and nobody else.
_OWN_FAULTS: Final = (
    ContextOSError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    AssertionError,
    RuntimeError,
    MemoryError,
)


@dataclass(slots=True, eq=False)
class _Job:
    act: WriterTask
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs acts in order of arrival, each whole or not at all; `run` returns when its act is durable.

    At most `queue_limit` acts wait. Raises `Unavailable` past that, after `close`, and to every act of a
    group whose transaction failed; the next group starts on a fresh connection.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], *, busy_timeout_ms: int, queue_limit: int = SQLITE_QUEUE_LIMIT
    ) -> None:
        self._connect, self._busy_timeout_ms, self._queue_limit = connect, busy_timeout_ms, queue_limit
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._work, name="contextos-store-writer", daemon=True)
        self._thread.start()

    async def run(self, act: WriterTask) -> Any:
        """The result of `act`, once its transaction is durable; or what it raised, and nothing happened."""
        loop = asyncio.get_running_loop()
        job = _Job(act, loop, loop.create_future())
        with self._gate:
            if self._closed:
                raise Unavailable("store", "it is closed")
            if self._queue.qsize() >= self._queue_limit:
                raise Unavailable("store", f"more than {self._queue_limit} commits are waiting", retry_after_ms=100)
            self._queue.put(job)
        return await job.future

    def close(self) -> None:
        """Finish what is queued, then stop. Blocks for as long as that takes."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        group: list[_Job] = []
        try:
            while (job := self._queue.get()) is not None:
                group = [job]
                self._commit(group)
                _deliver(group)
                group = []
        finally:
            self._stop(group)

    def _commit(self, group: list[_Job]) -> None:
        """One transaction for `group`, which grows by all that is queued once the lock is held."""
        try:
            connection = self._open()
            begin_immediate(connection, timeout_ms=self._busy_timeout_ms)
            self._gather(group)
            for job in group:
                _attempt(connection, job)
            connection.execute("COMMIT")
        except sqlite3.Error as fault:
            # A failed COMMIT leaves nothing behind that a reader can see. Only a crash right now could let recovery
            # find the frames after all, so callers hear `Unavailable` (not known; read again) and never `Conflict`.
            self._drop()
            for job in group:
                job.result, job.error = None, sqlite_error(fault)

    def _gather(self, group: list[_Job]) -> None:
        while len(group) < SQLITE_GROUP_LIMIT:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return
            if job is None:
                self._queue.put(None)
                return
            group.append(job)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _drop(self) -> None:
        """Closing rolls back; after a fault the state of a connection is not worth guessing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _stop(self, left: list[_Job]) -> None:
        """Also the way out if the thread dies of a bug: nobody is left waiting, and nobody can queue again."""
        with self._gate:
            self._closed = True
        self._drop()
        with suppress(queue.Empty):
            while True:
                job = self._queue.get_nowait()
                if job is not None:
                    left.append(job)
        for job in left:
            job.error = Unavailable("store", "its writer has stopped")
        _deliver(left)


def _attempt(connection: sqlite3.Connection, job: _Job) -> None:
    """One caller's act under its own savepoint, so that what it raises undoes nobody else's."""
    connection.execute("SAVEPOINT caller")
    try:
        job.result = job.act(connection)
    except _OWN_FAULTS as own:
        job.error = own
        connection.execute("ROLLBACK TO caller")
    connection.execute("RELEASE caller")


def _deliver(group: list[_Job]) -> None:
    """One wake-up per event loop, whatever the size of the group."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        # A loop that closed meanwhile has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
