"""Read a stream page by page, so that the memory that it needs does not grow with the stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from contextos.contracts.journal import Entry
from contextos.contracts.ports.storage import Store

PAGE_ENTRIES: Final = 1000


async def stream_pages(
    store: Store, stream: str, *, after: int = 0, upto: int | None = None
) -> AsyncIterator[Sequence[Entry]]:
    """Yield the entries of a stream after number `after` up to number `upto` (None: to the end), in pages of at most
    `PAGE_ENTRIES`. Nothing is verified.
    """
    while upto is None or after < upto:
        limit = PAGE_ENTRIES if upto is None else min(PAGE_ENTRIES, upto - after)
        page = await store.read(stream, after=after, limit=limit)
        if not page:
            return
        yield page
        after = page[-1].seq
