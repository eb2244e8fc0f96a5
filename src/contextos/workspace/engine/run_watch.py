"""`RunWatch`: hands the new events of a run to each of its readers. A process reads a run once for all of them.

A commit of this process wakes the readers of the run at once. Entries that other processes append are found by one
query for all watched runs of a tenant, as often as `POLL_S` and `POLL_SHARE` allow. A run that grew is read and
verified as a whole, and each reader gets the events after the last one that it has. At most `MAX_PENDING` events are
kept for a slow reader: it reads the run itself when it comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from contextos.deployment.stream.folding import Position, StreamEvent
from contextos.deployment.stream.reading import StreamedRun, read_stream
from contextos.errors import Unavailable
from contextos.telemetry.logs import error_fields

if TYPE_CHECKING:
    from contextos.contracts.journal import Batch
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store, Stores

POLL_S: Final = 0.05
"""Shortest time, in seconds, between two queries for the entries that other processes append."""
POLL_SHARE: Final = 0.05
"""These queries take at most this share of the time, however many runs are watched."""
POLL_RUNS: Final = 1_000
SETTLE_S: Final = 0.01
"""A run that grew is read this many seconds later: one drive is many commits."""
MAX_RUNS_READ_AT_ONCE: Final = 4
"""Most runs that are read at once."""
MAX_PENDING: Final = 256
"""Most events that are kept for one reader, besides the events that came last."""

_LOG: Final = logging.getLogger("contextos.workspace.engine")
_Key = tuple[str, str]


class RunWatch:
    """The readers of this process. Safe to use from several threads, each with its own event loop."""

    def __init__(self, stores: Stores, keys: Keys) -> None:
        self._stores, self._keys = stores, keys
        self._loops: dict[asyncio.AbstractEventLoop, _LoopWatch] = {}

    def watched(self) -> Any:
        """Return the stores, so that every commit to a run through them wakes its readers."""
        return _WatchedStores(self._stores, self)

    async def follow(self, tenant_id: str, run_id: str, seen: int, last: Position) -> AsyncGenerator[StreamEvent]:
        """Yield the events of a run after the position `last`, as they happen, until the run has ended.

        The reader knows the first `seen` entries of the run. Ends early if the watch is closed.

        Raises:
            Integrity: the run does not verify.
            Unavailable: the store does not answer a reader that was slow; go on after the last event.
        """
        loop_watch = self._loop_watch()
        reader = _Reader(last)
        feed = loop_watch.join((tenant_id, run_id), seen, reader)
        try:
            while True:
                await reader.wakes.wait()
                reader.wakes.clear()
                events, is_over = reader.take()
                if reader.is_behind:
                    reader.is_behind = False
                    run = await read_stream(self._stores.tenant(tenant_id), tenant_id, self._keys, run_id)
                    reader.put(run)
                    events, is_over = reader.take()
                for event in events:
                    yield event
                if is_over:
                    return
        finally:
            loop_watch.leave(feed, reader)

    def appended(self, tenant_id: str, run_id: str) -> None:
        """Wake the readers of a run to which this process appended. Call it on any thread."""
        for loop, watch in list(self._loops.items()):
            if (tenant_id, run_id) in watch.feeds:
                # A loop that has closed has no reader any more.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(watch.wake, (tenant_id, run_id))

    def close(self) -> None:
        """End every stream. Call it on any thread."""
        loops, self._loops = self._loops, {}
        for loop, watch in loops.items():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(watch.close)

    def _loop_watch(self) -> _LoopWatch:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for closed_loop in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(closed_loop, None)
            self._loops[loop] = _LoopWatch(self._stores, self._keys)
        return self._loops[loop]


class _Reader:
    """One reader. `last` is the position of the last event that it took."""

    __slots__ = ("_fault", "_is_closed", "_is_over", "_pending", "is_behind", "last", "wakes")

    def __init__(self, last: Position) -> None:
        self.last, self.wakes, self.is_behind = last, asyncio.Event(), False
        self._pending: list[StreamEvent] = []
        self._is_over = self._is_closed = False
        self._fault: BaseException | None = None

    def put(self, run: StreamedRun) -> None:
        """Hand over the events that the reader lacks. If too many are pending already, it reads the run later."""
        if self.is_behind or len(self._pending) > MAX_PENDING:
            # It then reads the end of the run, too.
            self.is_behind, self._pending, self._is_over = True, [], False
            self.wakes.set()
            return
        events = run.behind(self._pending[-1].position if self._pending else self.last)
        if events or run.ended:
            self._pending += events
            self._is_over = run.ended
            self.wakes.set()

    def end(self, fault: BaseException | None) -> None:
        self._is_closed, self._fault = True, fault
        self.wakes.set()

    def take(self) -> tuple[list[StreamEvent], bool]:
        """Return the pending events, and whether none follow. Raises the fault that ended the stream."""
        if self._fault is not None:
            raise self._fault
        events, self._pending = self._pending, []
        self.last = events[-1].position if events else self.last
        return events, self._is_over or self._is_closed


class _Feed:
    """One watched run. Its readers know `seen` entries, and `task` reads it on."""

    __slots__ = ("has_grown", "key", "readers", "seen", "task")

    def __init__(self, key: _Key, seen: int) -> None:
        self.key, self.seen = key, seen
        self.readers: set[_Reader] = set()
        self.has_grown = False
        self.task: asyncio.Task[None] | None = None


class _LoopWatch:
    """The watched runs of one event loop."""

    def __init__(self, stores: Stores, keys: Keys) -> None:
        self._stores, self._keys = stores, keys
        self.feeds: dict[_Key, _Feed] = {}
        self._read_slots = asyncio.Semaphore(MAX_RUNS_READ_AT_ONCE)
        self._poll_task: asyncio.Task[None] | None = None

    def join(self, key: _Key, seen: int, reader: _Reader) -> _Feed:
        feed = self.feeds.get(key)
        if feed is None:
            feed = self.feeds[key] = _Feed(key, seen)
        feed.readers.add(reader)
        if feed.seen > seen:
            self.wake(key)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.ensure_future(self._poll())
        return feed

    def leave(self, feed: _Feed, reader: _Reader) -> None:
        feed.readers.discard(reader)
        if not feed.readers:
            if self.feeds.get(feed.key) is feed:
                del self.feeds[feed.key]
            _cancel(feed.task)
        if not self.feeds:
            _cancel(self._poll_task)
            self._poll_task = None

    def wake(self, key: _Key) -> None:
        feed = self.feeds.get(key)
        if feed is not None:
            feed.has_grown = True
            if feed.task is None:
                feed.task = asyncio.ensure_future(self._update_readers(feed))

    def close(self) -> None:
        for feed in self.feeds.values():
            _end_streams(feed.readers, None)
            _cancel(feed.task)
        _cancel(self._poll_task)

    async def _update_readers(self, feed: _Feed) -> None:
        while feed.has_grown and feed.readers:
            await asyncio.sleep(SETTLE_S)
            async with self._read_slots:
                feed.has_grown = False
                (run,) = await asyncio.gather(self._read_run(feed.key), return_exceptions=True)
            if isinstance(run, Unavailable):
                # The next query finds that the run has more entries than its readers know.
                _LOG.warning("a watched run cannot be read", extra=error_fields(run))
            elif isinstance(run, BaseException):
                _end_streams(feed.readers, run)
            else:
                feed.seen = run.entries
                for reader in list(feed.readers):
                    reader.put(run)
        feed.task = None

    async def _read_run(self, key: _Key) -> StreamedRun:
        return await read_stream(self._stores.tenant(key[0]), key[0], self._keys, key[1])

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while self.feeds:
            began_s = loop.time()
            by_tenant: dict[str, list[str]] = defaultdict(list)
            for tenant_id, run_id in self.feeds:
                by_tenant[tenant_id].append(run_id)
            for tenant_id, runs in by_tenant.items():
                for start in range(0, len(runs), POLL_RUNS):
                    await self._wake_grown(tenant_id, runs[start : start + POLL_RUNS])
            await asyncio.sleep(max(POLL_S, (loop.time() - began_s) * (1 / POLL_SHARE - 1)))

    async def _wake_grown(self, tenant_id: str, runs: list[str]) -> None:
        """Wake the readers of each run that has more entries than they know."""
        (lengths,) = await asyncio.gather(self._stores.tenant(tenant_id).lengths(runs), return_exceptions=True)
        if isinstance(lengths, BaseException):
            # The next query asks again.
            _LOG.warning("watched runs cannot be looked for", extra={"tenant": tenant_id, **error_fields(lengths)})
            return
        for run_id in runs:
            feed = self.feeds.get((tenant_id, run_id))
            if feed is not None and lengths.get(run_id, 0) > feed.seen:
                self.wake(feed.key)


class _WatchedStores:
    """The stores of a deployment. They report each commit to a run to a `RunWatch`."""

    def __init__(self, stores: Stores, watch: RunWatch) -> None:
        self._stores, self._watch = stores, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stores, name)

    def tenant(self, tenant_id: str) -> _WatchedStore:
        return _WatchedStore(self._stores.tenant(tenant_id), tenant_id, self._watch)


class _WatchedStore:
    """One tenant's store of a `_WatchedStores`."""

    def __init__(self, store: Store, tenant_id: str, watch: RunWatch) -> None:
        self._store, self._tenant_id, self._watch = store, tenant_id, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> None:
        await self._store.commit(batch)
        if batch.entries:
            self._watch.appended(self._tenant_id, batch.run)


def _cancel(task: asyncio.Task[None] | None) -> None:
    """Cancel a task that has no reader any more."""
    # Its loop can be closed, and with it the task.
    with suppress(RuntimeError):
        if task is not None:
            task.cancel()


def _end_streams(readers: Iterable[_Reader], fault: BaseException | None) -> None:
    for reader in list(readers):
        reader.end(fault)
