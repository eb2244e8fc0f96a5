"""Reads the tenant's index of runs from its end, page by page, so that a listing reads only as much as it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.storage import Store

PAGE: Final = 500
"""Lines of the index in a page."""


async def newest_runs(store: Store, tenant_id: str, after: int) -> AsyncIterator[tuple[Entry, bool]]:
    """Yield (the run's index entry, whether it has ended) for each run with an index number below `after`, newest
    first.

    0 means no bound. Only entries before `after` are read, also to find the end of a run. Raises as `newest_first`.
    """
    last: dict[str, str] = {}
    async for line in newest_first(store, tenant_id, after):
        if line.kind == "run.indexed":
            yield line, last.pop(line.key, None) == "run.closed"
        else:
            last.setdefault(line.key, line.kind)


async def waiting_runs(store: Store, tenant_id: str, after: int) -> AsyncIterator[Entry]:
    """Yield the index entry of each run that is marked as waiting for a person, newest first, below number `after`
    (0: all).

    The mark can be out of date: the caller reads the run to learn whether it still waits. The cost depends on the
    number of marked runs, not on the size of the index. Raises as `newest_first`.
    """
    from contextos.contracts.journal import INDEX
    from contextos.trust.journal.chain import verify_chain

    while page := await store.waiting(after=after, limit=PAGE):
        for number, _ in page:
            for line in await store.read(INDEX, after=number - 1, limit=1):
                # The line alone: what comes before it is not read.
                verify_chain(tenant_id, INDEX, [line], after=line._replace(seq=number - 1, hash=line.prev_hash))
                yield line
        after = page[-1][0]


async def newest_first(store: Store, tenant_id: str, after: int) -> AsyncIterator[Entry]:
    """Yield the entries of the tenant's index with a number below `after` (0: no bound), newest first, read page by
    page.

    Raises:
        ChainBroken: an entry of the index that was read is missing, moved or changed; names it.
    """
    length = await _length(store)
    end = min(after - 1, length) if after else length
    while end > 0:
        begin = max(0, end - PAGE)
        for line in reversed(await _linked(store, tenant_id, begin, end - begin)):
            yield line
        end = begin


async def _linked(store: Store, tenant_id: str, after: int, count: int) -> Sequence[Entry]:
    """Read `count` entries of the index behind entry `after`, and check that each continues the one before it."""
    from contextos.contracts.journal import INDEX
    from contextos.trust.journal.chain import verify_chain

    before = await store.read(INDEX, after=after - 1, limit=1) if after else ()
    lines = await store.read(INDEX, after=after, limit=count)
    verify_chain(tenant_id, INDEX, lines, after=before[0] if before else None)
    return lines


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
