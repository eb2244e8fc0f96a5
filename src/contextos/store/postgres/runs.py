"""Reads of runs from a PostgreSQL store: their entries from segments, and all about a run as of one moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import Document, Entry, StoredRun
from contextos.store.postgres.connections import is_text
from contextos.store.postgres.erasure import SEGMENTS
from contextos.store.shared.batch import MAX_SQL_INTEGER
from contextos.store.shared.segments import head_hash, read_rows

POSTGRES_PAGE_SEGMENTS: Final = 100
_RUN: Final = "SELECT length, segments, heads, lines, lease_version, lease FROM contextos.read_run($1, $2, $3)"

Fetch = Callable[..., Awaitable[Sequence[Any]]]
"""Takes a statement whose first argument is the tenant, and its other arguments. Returns the rows."""


async def read_run(fetch: Fetch, tenant: str, run: str) -> StoredRun:
    """Return what is stored about a run as of one moment. Raises as `read_rows`."""
    if not is_text(run):
        return StoredRun((), (), (), None)
    ((length, page, signed, lines, lease_version, lease),) = await fetch(_RUN, run, POSTGRES_PAGE_SEGMENTS)
    # The head before a segment is that of the row before it; `read_rows` checks that none is missing.
    rows = [(before, *row[2:]) for before, row in zip([None, *(one["head"] for one in page)], page, strict=False)]
    entries = list(read_rows(tenant, run, 0, rows))
    if len(rows) == POSTGRES_PAGE_SEGMENTS:
        # The run can have grown since.
        entries += await read_entries(fetch, tenant, run, len(entries), length - len(entries))
    return StoredRun(
        tuple(entries),
        [(head["seq"], head_hash(head["hash"]), head["kid"], head["sig"].hex()) for head in signed],
        [Entry(**dict(line)) for line in lines],
        Document(*LEASES.place(run), lease_version, lease) if lease is not None else None,
    )


async def read_entries(fetch: Fetch, tenant: str, run: str, after: int, limit: int | None) -> list[Entry]:
    """Return the entries of a run behind the entry `after`, at most `limit`. Raises as `read_rows`."""
    found: list[Entry] = []
    while is_text(run) and (limit is None or len(found) < limit):
        wanted = POSTGRES_PAGE_SEGMENTS if limit is None else min(POSTGRES_PAGE_SEGMENTS, limit - len(found))
        page = await fetch(SEGMENTS, run, clamped(after), wanted)
        found += read_rows(tenant, run, after, page, goes_on=bool(found))
        if len(page) < wanted:
            break
        after = found[-1].seq
    return found if limit is None else found[: max(limit, 0)]


def clamped(number: int) -> int:
    """Return the nearest number that PostgreSQL can store."""
    return max(-MAX_SQL_INTEGER, min(number, MAX_SQL_INTEGER))
