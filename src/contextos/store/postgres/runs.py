"""Reads runs from a PostgreSQL store: their entries from segments, and all about a run as of one moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import CONTROL, Document, Entry, Look, StoredRun
from contextos.store.postgres.connections import is_text
from contextos.store.postgres.erasure import SEGMENTS
from contextos.store.shared.batch import clamped
from contextos.store.shared.key_range import after_prefix
from contextos.store.shared.segments import head_hash, read_rows

POSTGRES_PAGE_SEGMENTS: Final = 100
_RUN: Final = "SELECT length, segments, heads, lines, lease_version, lease FROM contextos.read_run($1, $2, $3)"
_LOOK: Final = (
    "SELECT found.collection, found.key, found.version, found.body, NULL::text, NULL::bigint, NULL::text, NULL::text,"
    " NULL::text, NULL::text, NULL::bytea, NULL::integer"
    " FROM unnest($2::text[], $3::text[]) AS place (collection, key)"
    " CROSS JOIN LATERAL contextos.read_document($1, place.collection, place.key) AS found"
    " UNION ALL SELECT found.collection, found.key, found.version, found.body, NULL, NULL, NULL, NULL, NULL, NULL,"
    " NULL, NULL FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[]) AS page (collection, prefix, until, n)"
    " CROSS JOIN LATERAL contextos.scan_documents($1, page.collection, page.prefix, '', page.until, page.n) AS found"
    " UNION ALL SELECT NULL, line.key, line.seq, line.body, line.kind, line.at_us, line.by, line.body_digest,"
    " line.prev_hash, line.hash, line.salt, line.v FROM unnest($8::text[], $9::bigint[]) AS sought (key, seq)"
    " CROSS JOIN LATERAL contextos.read_lines($1, 'control', ARRAY[sought.key]) AS line WHERE line.seq > sought.seq"
)
_SEQ: Final = attrgetter("seq")

Fetch = Callable[..., Awaitable[Sequence[Any]]]
"""Runs a statement whose first argument is the tenant, with its other arguments, and returns the rows."""


async def read_run(fetch: Fetch, tenant: str, run: str) -> StoredRun:
    """Return all that is stored about a run as of one moment. Raises as `read_rows`."""
    if not is_text(run):
        return StoredRun((), (), (), None)
    ((length, page, heads, lines, lease_version, lease),) = await fetch(_RUN, run, POSTGRES_PAGE_SEGMENTS)
    # The head before a segment is the head of the previous row; `read_rows` checks that none is missing.
    rows = [(head, *row[2:]) for head, row in zip([None, *(row["head"] for row in page)], page, strict=False)]
    entries = list(read_rows(tenant, run, 0, rows))
    if len(rows) == POSTGRES_PAGE_SEGMENTS:
        # The run can have grown since: read only as far as it was then.
        entries += await read_entries(fetch, tenant, run, len(entries), length - len(entries))
    return StoredRun(
        tuple(entries),
        [(head["seq"], head_hash(head["hash"]), head["kid"], head["sig"].hex()) for head in heads],
        [Entry(**dict(line)) for line in lines],
        Document(*LEASES.place(run), lease_version, lease) if lease is not None else None,
    )


async def read_entries(fetch: Fetch, tenant: str, run: str, after: int, limit: int | None) -> list[Entry]:
    """Return the entries of a run after the entry `after`, at most `limit`. Raises as `read_rows`."""
    entries: list[Entry] = []
    while is_text(run) and (limit is None or len(entries) < limit):
        page_size = POSTGRES_PAGE_SEGMENTS if limit is None else min(POSTGRES_PAGE_SEGMENTS, limit - len(entries))
        page = await fetch(SEGMENTS, run, clamped(after), page_size)
        entries += read_rows(tenant, run, after, page, goes_on=bool(entries))
        if len(page) < page_size:
            break
        after = entries[-1].seq
    return entries if limit is None else entries[: max(limit, 0)]


async def look(
    fetch: Fetch,
    tenant: str,
    places: Sequence[tuple[str, str]],
    prefixes: Sequence[tuple[str, str, int]],
    lines: Sequence[tuple[str, int]],
) -> Look:
    """Return the documents and the entries of `control` that `Store.look` returns, from one statement."""
    storable = [place for place in places if is_text(*place)]
    pages = [page for page in prefixes if is_text(page[0], page[1])]
    sought = [line for line in lines if is_text(line[0])]
    rows = await fetch(
        _LOOK,
        [collection for collection, _ in storable],
        [key for _, key in storable],
        [collection for collection, _, _ in pages],
        [prefix for _, prefix, _ in pages],
        [after_prefix(prefix) for _, prefix, _ in pages],
        [clamped(max(limit, 0)) for _, _, limit in pages],
        [key for key, _ in sought],
        [clamped(after) for _, after in sought],
    )
    entries = [
        Entry(tenant, CONTROL, seq, kind, key, at_us, by, digest, prev_hash, this_hash, body, salt, v)
        for name, key, seq, body, kind, at_us, by, digest, prev_hash, this_hash, salt, v in rows
        if name is None
    ]
    documents = {(row[0], row[1]): Document(*row[:4]) for row in rows if row[0] is not None}
    return Look(documents, sorted(entries, key=_SEQ))
