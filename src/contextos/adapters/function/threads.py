"""`Threads`: a bounded pool in which slow functions of one tenant leave threads to the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any


class Threads:
    """At most `count` functions run at once; `queue_limit` more of each tenant wait.

    A tenant has at most half of the threads that the others leave it, and one at least: a few whose functions are slow
    do not take them all. A tenant's functions start in the order in which they came, tenants in turn. May be used from
    any thread.
    """

    def __init__(self, count: int, *, queue_limit: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._count, self._queue_limit = count, queue_limit
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[Future[Any], Callable[[], Any]]] = {}
        self._running: Counter[str] = Counter()
        self._closed = False

    def submit(self, tenant_id: str, function: Callable[[], Any]) -> Future[Any] | None:
        """Run it when it is its turn, unless its future is cancelled before.

        None: too many of this tenant wait, or all is closed; it is not run.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                return None
            waiting = len(self._waiting.get(tenant_id, ()))
            if waiting >= self._queue_limit and not self._has_room(tenant_id, self._free()):
                return None
            self._waiting.setdefault(tenant_id, {})[future] = function
        future.add_done_callback(partial(self._forget, tenant_id))
        self._pump()
        return future

    def close(self) -> None:
        """Start nothing more; what runs is not waited for."""
        with self._lock:
            self._closed = True
            waiting = [future for line in self._waiting.values() for future in line]
        for future in waiting:
            future.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _pump(self) -> None:
        # Nobody has more than their share in the pool's own queue, so that the others come between.
        while (started := self._start_next()) is not None:
            tenant_id, future, running = started
            running.add_done_callback(partial(self._done, tenant_id, future))

    def _start_next(self) -> tuple[str, Future[Any], Future[Any]] | None:
        with self._lock:
            free = self._free()
            tenant_id = next((tenant_id for tenant_id in self._waiting if self._has_room(tenant_id, free)), None)
            if self._closed or tenant_id is None:
                return None
            line = self._waiting[tenant_id]
            future = next(iter(line))
            # Under the lock, for a pool that was closed in between takes nothing and says so.
            running = self._pool.submit(_run, future, line[future])
            self._running[tenant_id] += 1
            del line[future]
            # Behind the others: tenants take turns.
            if self._waiting.pop(tenant_id):
                self._waiting[tenant_id] = line
            return tenant_id, future, running

    def _free(self) -> int:
        """Threads that nobody has; the caller holds the lock."""
        return self._count - self._running.total()

    def _has_room(self, tenant_id: str, free: int) -> bool:
        """Whether one more of this tenant may start; the caller holds the lock."""
        own = self._running[tenant_id]
        return own < max(1, (free + own) // 2)

    def _done(self, tenant_id: str, future: Future[Any], ran: Future[Any]) -> None:
        with self._lock:
            self._running[tenant_id] -= 1
            if not self._running[tenant_id]:
                del self._running[tenant_id]
        if ran.cancelled():
            future.cancel()
        elif (fault := ran.exception()) is not None:
            future.set_exception(fault)
        elif not future.cancelled():
            future.set_result(ran.result())
        self._pump()

    def _forget(self, tenant_id: str, future: Future[Any]) -> None:
        with self._lock:
            line = self._waiting.get(tenant_id, {})
            line.pop(future, None)
            if not line:
                self._waiting.pop(tenant_id, None)


def _run(future: Future[Any], function: Callable[[], Any]) -> Any:
    return function() if future.set_running_or_notify_cancel() else None
