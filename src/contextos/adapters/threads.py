"""`Threads`: a bounded pool in which slow functions of one tenant leave threads to the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any


class Threads:
    """At most `count` functions run at once, and of one tenant half of them; `queue_limit` more of each tenant wait.

    A tenant's functions start in the order in which they came, tenants in turn. May be used from any thread.
    """

    def __init__(self, count: int, *, queue_limit: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._share, self._queue_limit = max(1, count // 2), queue_limit
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
            if self._running[tenant_id] >= self._share and len(self._waiting.get(tenant_id, ())) >= self._queue_limit:
                return None
            self._waiting.setdefault(tenant_id, {})[future] = function
        future.add_done_callback(partial(self._forget, tenant_id))
        self._pump(tenant_id)
        return future

    def close(self) -> None:
        """Start nothing more; what runs is not waited for."""
        with self._lock:
            self._closed = True
            waiting = [future for line in self._waiting.values() for future in line]
        for future in waiting:
            future.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _pump(self, tenant_id: str) -> None:
        # A tenant has no more than its share in the pool's own queue, so that the others come between.
        while (started := self._start_next(tenant_id)) is not None:
            future, running = started
            running.add_done_callback(partial(self._done, tenant_id, future))

    def _start_next(self, tenant_id: str) -> tuple[Future[Any], Future[Any]] | None:
        with self._lock:
            line = self._waiting.get(tenant_id)
            if self._closed or not line or self._running[tenant_id] >= self._share:
                return None
            self._running[tenant_id] += 1
            future = next(iter(line))
            # Under the lock, for a pool that was closed in between takes nothing and says so.
            return future, self._pool.submit(_run, future, line.pop(future))

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
        self._pump(tenant_id)

    def _forget(self, tenant_id: str, future: Future[Any]) -> None:
        with self._lock:
            line = self._waiting.get(tenant_id, {})
            line.pop(future, None)
            if not line:
                self._waiting.pop(tenant_id, None)


def _run(future: Future[Any], function: Callable[[], Any]) -> Any:
    return function() if future.set_running_or_notify_cancel() else None
