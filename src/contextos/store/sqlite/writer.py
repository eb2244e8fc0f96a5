"""The one writer of a file in this process: a thread that commits all queued tasks as one transaction (group commit).

A group contains the tasks that are in the queue when the writer gets the write lock, so a single caller never waits
for others. While the disk syncs one group, the next group gathers: throughput grows with the number of callers.
A caller that allows it, and that nobody precedes in the queue, commits on its own thread instead (ADR 0028).
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from contextos.errors import ContextOSError, Unavailable
from contextos.store.sqlite.database import begin_immediate, sqlite_error

SQLITE_QUEUE_LIMIT: Final = 4096
SQLITE_GROUP_LIMIT: Final = 256
IN_PLACE_LIMIT_S: Final = 0.005
"""After a commit that took more seconds, the thread makes the next one: the disk could block an event loop for long."""

WriterTask = Callable[[sqlite3.Connection], Any]
# Errors that a task raises itself, a refusal or a bug. Only its own caller sees them.
_TASK_ERRORS: Final = (
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
    task: WriterTask
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs write tasks in order of arrival, each atomically. `run` returns when the task's transaction is durable.

    The holder of `_turn` uses the connection: the thread, or a caller that commits in place.

    At most `queue_limit` tasks wait. `run` raises `Unavailable` when the queue is full, after `close`, and for every
    task of a group whose transaction failed. The next group starts on a new connection.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], *, busy_timeout_ms: int, queue_limit: int = SQLITE_QUEUE_LIMIT
    ) -> None:
        self._connect, self._busy_timeout_ms, self._queue_limit = connect, busy_timeout_ms, queue_limit
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._gate, self._turn = threading.Lock(), threading.Lock()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._last_commit_s = 0.0
        self._thread = threading.Thread(target=self._run_thread, name="contextos-store-writer", daemon=True)
        self._thread.start()

    async def run(self, task: WriterTask, *, may_block: bool = False) -> Any:
        """Return the result of `task` once its transaction is durable. If it raises, its changes are rolled back.

        With `may_block`, the event loop of the caller can be blocked for as long as one commit takes.
        """
        loop = asyncio.get_running_loop()
        job = _Job(task, loop, loop.create_future())
        with self._gate:
            if self._closed:
                raise Unavailable("store", "it is closed")
            if self._queue.qsize() >= self._queue_limit:
                raise Unavailable("store", f"more than {self._queue_limit} commits are waiting", retry_after_ms=100)
            in_place = may_block and self._can_run_now() and self._turn.acquire(blocking=False)
            if not in_place:
                self._queue.put(job)
        if in_place:
            self._run_now(job)
            # Timeouts, cancellations and other tasks get their turn here, as they do while a caller waits.
            await asyncio.sleep(0)
        return await job.future

    def close(self) -> None:
        """Finish the queued tasks, then stop. Blocks until the writer thread has ended."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _can_run_now(self) -> bool:
        """Return whether no task is queued and the last commit was short, so that a commit here blocks only briefly."""
        return self._connection is not None and self._last_commit_s <= IN_PLACE_LIMIT_S and self._queue.empty()

    def _run_now(self, job: _Job) -> None:
        """Commit on the thread of the caller, which has the turn. If the lock is not free, the job is queued."""
        try:
            if self._try_lock():
                self._write_group([job])
                _resolve_futures([job])
            else:
                self._queue.put(job)
        finally:
            if self._connection is not None and self._connection.in_transaction:
                self._drop_connection()
            self._turn.release()

    def _try_lock(self) -> bool:
        """Take the write lock; return whether that succeeded. After a fault the thread tries again, and reports it."""
        try:
            self._open_connection().execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            return False
        return True

    def _run_thread(self) -> None:
        group: list[_Job] = []
        try:
            while (job := self._queue.get()) is not None:
                group = [job]
                with self._turn:
                    self._commit_group(group)
                _deliver_results(group)
                group = []
        finally:
            self._stop_writer(group)

    def _commit_group(self, group: list[_Job]) -> None:
        """Run `group` as one transaction. Tasks that are queued when the lock is taken join the group."""
        try:
            begin_immediate(self._open_connection(), timeout_ms=self._busy_timeout_ms)
        except sqlite3.Error as fault:
            self._fail_group(group, fault)
            return
        self._join_queued(group)
        self._write_group(group)

    def _write_group(self, group: list[_Job]) -> None:
        """Run `group` and commit. The connection has the write lock."""
        connection, start = self._open_connection(), time.monotonic()
        try:
            for job in group:
                _run_job(connection, job)
            connection.execute("COMMIT")
        except sqlite3.Error as fault:
            # No reader sees anything of a failed COMMIT. But after a crash at this point, recovery could still find its
            # frames. So callers get `Unavailable` (outcome unknown, read again) and never `Conflict`.
            self._fail_group(group, fault)
        self._last_commit_s = time.monotonic() - start

    def _fail_group(self, group: list[_Job], fault: sqlite3.Error) -> None:
        self._drop_connection()
        for job in group:
            job.result, job.error = None, sqlite_error(fault)

    def _join_queued(self, group: list[_Job]) -> None:
        while len(group) < SQLITE_GROUP_LIMIT:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return
            if job is None:
                self._queue.put(None)
                return
            group.append(job)

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _drop_connection(self) -> None:
        """Close the connection, which rolls back: after an error its state is unknown."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _stop_writer(self, unfinished: list[_Job]) -> None:
        """Fail all waiting jobs and refuse new ones. Also runs if the thread dies of a bug, so no caller hangs."""
        with self._gate:
            self._closed = True
        with self._turn:
            self._drop_connection()
            with suppress(queue.Empty):
                while True:
                    job = self._queue.get_nowait()
                    if job is not None:
                        unfinished.append(job)
        for job in unfinished:
            job.error = Unavailable("store", "its writer has stopped")
        _deliver_results(unfinished)


def _run_job(connection: sqlite3.Connection, job: _Job) -> None:
    """Run one job under its own savepoint, so that its failure does not roll back the others."""
    connection.execute("SAVEPOINT caller")
    try:
        job.result = job.task(connection)
    except _TASK_ERRORS as error:
        job.error = error
        connection.execute("ROLLBACK TO caller")
    connection.execute("RELEASE caller")


def _deliver_results(group: list[_Job]) -> None:
    """Resolve the futures of a group, with one wake-up per event loop."""
    jobs_by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        jobs_by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in jobs_by_loop.items():
        # If the loop has closed, no caller waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve_futures, jobs)


def _resolve_futures(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
