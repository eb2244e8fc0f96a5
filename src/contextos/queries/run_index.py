"""The tenant's index of runs, read in pages from its end: a command that lists runs stops when it has enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.storage import Store

PAGE: Final = 500
"""Lines of the index that are read at once."""


async def newest_runs(store: Store, after: int) -> AsyncIterator[tuple[Entry, bool]]:
    """The line of each run before number `after` (0: of all), and whether a line after it, and before that, ends it."""
    closed: set[str] = set()
    async for line in newest_first(store, after):
        if line.kind != "run.indexed":
            closed.add(line.key)
            continue
        yield line, line.key in closed
        closed.discard(line.key)


async def waiting_runs(store: Store, after: int) -> AsyncIterator[Entry]:
    """The line of each run before number `after` (0: of all) that may wait for a person, newest first.

    The caller folds each run to see whether it still waits. The cost is that of these runs, not of the index.
    """
    from contextos.contracts.journal import INDEX

    while page := await store.waiting(after=after, limit=PAGE):
        for number, _ in page:
            for line in await store.read(INDEX, after=number - 1, limit=1):
                yield line
        after = page[-1][0]


async def newest_first(store: Store, after: int) -> AsyncIterator[Entry]:
    """The lines of the tenant's index before number `after` (0: all of them), read in pages from its end."""
    from contextos.contracts.journal import INDEX

    there = await _length(store)
    end = min(after - 1, there) if after else there
    while end > 0:
        begin = max(0, end - PAGE)
        for line in reversed(await store.read(INDEX, after=begin, limit=end - begin)):
            yield line
        end = begin


async def _length(store: Store) -> int:
    """How many lines the tenant's index has: doubled until past its end, then halved."""
    from contextos.contracts.journal import INDEX

    there, past = 0, 1
    while await store.read(INDEX, after=past - 1, limit=1):
        there, past = past, past * 2
    while past - there > 1:
        middle = (there + past) // 2
        if await store.read(INDEX, after=middle - 1, limit=1):
            there = middle
        else:
            past = middle
    return there
