"""`Threads`: a bounded thread pool in which the slow functions of one tenant leave threads to the others."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any


class Threads:
    """A pool in which at most `count` functions run at once, and `queue_limit` more of each tenant wait.

    A tenant has at most half of the threads that the others leave free, and at least one, so that a few tenants with
    slow functions do not take all of them. The functions of a tenant start in the order of arrival; tenants take
    turns. A function that hangs keeps its thread, and no process waits for it at its end. Safe to use from any thread.
    """

    def __init__(self, count: int, *, queue_limit: int, name: str) -> None:
        self._pool = _DaemonPool(count, name)
        self._count, self._queue_limit = count, queue_limit
        self._lock = threading.Lock()
        self._queues: dict[str, dict[Future[Any], Callable[[], Any]]] = {}
        self._running: Counter[str] = Counter()
        self._closed = False

    def submit(self, tenant_id: str, function: Callable[[], Any]) -> Future[Any] | None:
        """Queue `function` and return its future. It does not run if the future is cancelled before its turn.

        Returns None, and never runs it, if too many functions of this tenant wait or the pool is closed.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                return None
            waiting = len(self._queues.get(tenant_id, ()))
            if waiting >= self._queue_limit and not self._has_room(tenant_id, self._idle_count()):
                return None
            self._queues.setdefault(tenant_id, {})[future] = function
        future.add_done_callback(partial(self._forget, tenant_id))
        self._start_waiting()
        return future

    def close(self) -> None:
        """Start nothing more, and cancel the functions that wait. Running functions are not waited for."""
        with self._lock:
            self._closed = True
            waiting = [future for queue in self._queues.values() for future in queue]
        for future in waiting:
            future.cancel()
        self._pool.close()

    def _start_waiting(self) -> None:
        # No tenant has more than its share in the pool's own queue, so the others get their turns.
        while (start := self._start_next()) is not None:
            tenant_id, future, running = start
            running.add_done_callback(partial(self._finish, tenant_id, future))

    def _start_next(self) -> tuple[str, Future[Any], Future[Any]] | None:
        with self._lock:
            free = self._idle_count()
            tenant_id = next((tenant_id for tenant_id in self._queues if self._has_room(tenant_id, free)), None)
            if self._closed or tenant_id is None:
                return None
            queue = self._queues[tenant_id]
            future = next(iter(queue))
            # Under the lock, because a pool that was closed meanwhile would raise.
            running = self._pool.submit(_run, future, queue[future])
            self._running[tenant_id] += 1
            del queue[future]
            # The tenant goes to the end of the queue, so that tenants take turns.
            if self._queues.pop(tenant_id):
                self._queues[tenant_id] = queue
            return tenant_id, future, running

    def _idle_count(self) -> int:
        """Return the number of idle threads. Call with the lock held."""
        return self._count - self._running.total()

    def _has_room(self, tenant_id: str, free: int) -> bool:
        """Return whether one more function of this tenant can start. Call with the lock held."""
        running = self._running[tenant_id]
        return running < max(1, (free + running) // 2)

    def _finish(self, tenant_id: str, future: Future[Any], work: Future[Any]) -> None:
        with self._lock:
            self._running[tenant_id] -= 1
            if not self._running[tenant_id]:
                del self._running[tenant_id]
        if work.cancelled():
            future.cancel()
        elif (error := work.exception()) is not None:
            future.set_exception(error)
        elif not future.cancelled():
            future.set_result(work.result())
        self._start_waiting()

    def _forget(self, tenant_id: str, future: Future[Any]) -> None:
        with self._lock:
            queue = self._queues.get(tenant_id, {})
            queue.pop(future, None)
            if not queue:
                self._queues.pop(tenant_id, None)


def _run(future: Future[Any], function: Callable[[], Any]) -> Any:
    return function() if future.set_running_or_notify_cancel() else None


class _DaemonPool:
    """At most `count` threads that do not keep the process alive. One is started when all others are busy.

    `concurrent.futures` waits for its threads at the end of the process, so one hanging function would hold a command
    for ever.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name, self._thread_count, self._busy_count = count, name, 0, 0
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a function in a thread, when one is free."""
        future: Future[Any] = Future()
        with self._lock:
            if self._busy_count >= self._thread_count and self._thread_count < self._count:
                threading.Thread(target=self._serve, name=f"{self._name}_{self._thread_count}", daemon=True).start()
                self._thread_count += 1
            self._busy_count += 1
        self._work.put((future, partial(function, *arguments)))
        return future

    def close(self) -> None:
        """Let the threads end when their work is done."""
        for _ in range(self._thread_count):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, function = work
            outcome = _Outcome()
            with outcome:
                outcome.result = function()
            with self._lock:
                self._busy_count -= 1
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.result)
            del work, future, function, outcome


class _Outcome(AbstractContextManager[None]):
    """Keeps the exception of a function, or the `result` that is set, so that the thread goes on."""

    result: Any = None
    error: BaseException | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True
