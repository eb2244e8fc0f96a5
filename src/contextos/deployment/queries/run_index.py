"""Read the tenant's index of runs from its end, page by page, so that a listing reads only as much as it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from contextos.contracts.journal import Entry, Sought
    from contextos.contracts.ports.storage import Store

PAGE: Final = 500
"""Lines of the index in a page."""
MAX_RUNS_READ: Final = 1000
"""The most runs that one call reads: a search that few runs fit would otherwise read the whole index."""


async def newest_runs(store: Store, tenant_id: str, after: int) -> AsyncIterator[Entry]:
    """Yield the index entry of each run with a number below `after` (0: no bound), newest first. Raises as
    `newest_first`.
    """
    async for entry in newest_first(store, tenant_id, after):
        if entry.kind == "run.indexed":
            yield entry


async def waiting_runs(store: Store, tenant_id: str, after: int) -> AsyncIterator[Entry]:
    """Yield the index entry of each run that is marked as waiting for a person, newest first, below number `after`
    (0: all).

    The mark can be out of date: the caller reads the run to learn whether it still waits. The cost depends on the
    number of marked runs, not on the size of the index. Raises as `newest_first`.
    """
    while page := await store.waiting(after=after, limit=PAGE):
        for number, _ in page:
            async for entry in _single_entry(store, tenant_id, number):
                yield entry
        after = page[-1][0]


async def found_runs(store: Store, tenant_id: str, sought: Sought) -> AsyncIterator[Entry]:
    """Yield the index entry of each run that `Store.found` finds, newest first. Raises as `newest_first`.

    The stored terms can be wrong: the caller reads the run to learn whether it fits.
    """
    while page := await store.found(sought, limit=PAGE):
        for number in page:
            async for entry in _single_entry(store, tenant_id, number):
                # A line that does not begin a run has no terms of its own, so these terms were forged.
                if entry.kind == "run.indexed":
                    yield entry
        sought = sought._replace(after=page[-1])


async def _single_entry(store: Store, tenant_id: str, number: int) -> AsyncIterator[Entry]:
    """Yield the line of the index with this number, if there is one. The lines before it are not read."""
    from contextos.contracts.journal import INDEX
    from contextos.trust.journal.chain import verify_chain

    for entry in await store.read(INDEX, after=number - 1, limit=1):
        verify_chain(tenant_id, INDEX, [entry], after=entry._replace(seq=number - 1, hash=entry.prev_hash))
        yield entry


async def newest_first(store: Store, tenant_id: str, after: int) -> AsyncIterator[Entry]:
    """Yield the entries of the tenant's index with a number below `after` (0: no bound), newest first, read page by
    page.

    Raises:
        ChainBroken: an entry of the index that was read is missing, moved or changed; names it.
    """
    from contextos.contracts.journal import INDEX

    length = await store.length(INDEX)
    end = min(after - 1, length) if after else length
    while end > 0:
        start = max(0, end - PAGE)
        for entry in reversed(await _verified_page(store, tenant_id, start, end - start)):
            yield entry
        end = start


async def _verified_page(store: Store, tenant_id: str, after: int, count: int) -> Sequence[Entry]:
    """Read `count` entries of the index behind entry `after`, and check that each continues the one before it."""
    from contextos.contracts.journal import INDEX
    from contextos.trust.journal.chain import verify_chain

    before = await store.read(INDEX, after=after - 1, limit=1) if after else ()
    entries = await store.read(INDEX, after=after, limit=count)
    verify_chain(tenant_id, INDEX, entries, after=before[0] if before else None)
    return entries
