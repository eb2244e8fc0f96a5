"""Reads the tenant's index of runs from its end, page by page, so that a listing reads only as much as it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.storage import Store

PAGE: Final = 500
"""Lines of the index in a page."""


async def newest_runs(store: Store, after: int) -> AsyncIterator[tuple[Entry, bool]]:
    """Yield (first line, has ended) of each run before number `after` (0: no bound), newest first.

    Only lines before `after` are read, also to find the end of a run.
    """
    closed: set[str] = set()
    async for line in newest_first(store, after):
        if line.kind != "run.indexed":
            closed.add(line.key)
            continue
        yield line, line.key in closed
        closed.discard(line.key)


async def waiting_runs(store: Store, after: int) -> AsyncIterator[Entry]:
    """Yield the line of each run before number `after` (0: no bound) that is marked as waiting, newest first.

    The caller folds each run to learn whether it still waits. The cost depends on these runs, not on the index.
    """
    from contextos.contracts.journal import INDEX

    while page := await store.waiting(after=after, limit=PAGE):
        for number, _ in page:
            for line in await store.read(INDEX, after=number - 1, limit=1):
                yield line
        after = page[-1][0]


async def newest_first(store: Store, after: int) -> AsyncIterator[Entry]:
    """Yield the lines of the tenant's index before number `after` (0: no bound), newest first, read page by page."""
    from contextos.contracts.journal import INDEX

    length = await _length(store)
    end = min(after - 1, length) if after else length
    while end > 0:
        begin = max(0, end - PAGE)
        for line in reversed(await store.read(INDEX, after=begin, limit=end - begin)):
            yield line
        end = begin


async def _length(store: Store) -> int:
    """Return the number of lines of the tenant's index, found by doubling and bisection."""
    from contextos.contracts.journal import INDEX

    present, past = 0, 1
    while await store.read(INDEX, after=past - 1, limit=1):
        present, past = past, past * 2
    while past - present > 1:
        middle = (present + past) // 2
        if await store.read(INDEX, after=middle - 1, limit=1):
            present = middle
        else:
            past = middle
    return present
