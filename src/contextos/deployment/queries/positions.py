"""Cursors: opaque texts that name one line of a tenant's index, at which a list or a stream of events continues.

A cursor holds the number of the line and the end of its hash; in a list it also holds the beginning of the digest of
the search. The hash covers the tenant. So a cursor of another tenant or search, an invented one, and one of a line that
a restore lost are refused.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from contextos.contracts.journal import INDEX
from contextos.errors import InvalidInput, Problem
from contextos.trust.journal.chain import verify_chain

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.storage import Store

_HASH_CHARS: Final = 32
_CURSOR: Final = re.compile(r"([1-9][0-9]{0,15})\.([0-9a-f]{32})(\.[0-9a-f]{16})?")


def cursor_of(line: Entry, asked: object = None) -> str:
    """Return the cursor that names this line of the index. `asked` is the search that the line answers; None: no
    search.
    """
    search = "" if asked is None else f".{sha256(repr(asked).encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return f"{line.seq}.{line.hash[-_HASH_CHARS:]}{search}"


def number_of(cursor: str) -> int:
    """Return the number of the line that a cursor of `cursor_of` names; 0 for the empty one."""
    return int(cursor.partition(".")[0] or 0)


async def newest_cursor(store: Store) -> str:
    """Return the cursor of the newest line of a tenant's index; the empty one if there is none."""
    length = await store.length(INDEX)
    entries = await store.read(INDEX, after=length - 1, limit=1) if length else ()
    return cursor_of(entries[0]) if entries else ""


async def line_at(store: Store, tenant_id: str, cursor: str, asked: object = None) -> Entry | None:
    """Return the line that `cursor` names; None for the empty cursor, which names no line. `asked` as in `cursor_of`.

    Raises:
        InvalidInput: this tenant's index has no such line (`unknown_cursor`), or the cursor is from another search
            (`other_search`).
        ChainBroken: the line is not the one that its hash covers.
    """
    if not cursor:
        return None
    match = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    entries = await store.read(INDEX, after=int(match[1]) - 1, limit=1) if match else ()
    if not entries or cursor_of(entries[0]) != cursor[: cursor.find(".") + 1 + _HASH_CHARS]:
        remedy = "pass a cursor that was returned for this tenant, or none to begin anew"
        raise InvalidInput(Problem("/cursor", "unknown_cursor", f"`{str(cursor)[:64]}` names nothing here", remedy))
    entry = entries[0]
    if cursor != cursor_of(entry, asked):
        remedy = "pass it with the search that returned it, or none to begin anew"
        raise InvalidInput(Problem("/cursor", "other_search", "the cursor is that of another search", remedy))
    verify_chain(tenant_id, INDEX, [entry], after=entry._replace(seq=entry.seq - 1, hash=entry.prev_hash))
    return entry
