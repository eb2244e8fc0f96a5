"""Erases one entry in a PostgreSQL store: stores its segment again without the body and salt of the entry."""

from __future__ import annotations

from typing import Any, Final

from contextos.errors import Unavailable
from contextos.store.postgres.connections import Connection
from contextos.store.shared.segments import Segment, without

ERASE_ATTEMPTS: Final = 8
SEGMENTS: Final = (
    "SELECT before, seq, entries, v, format, dictionary, head, marks, salts, body, erased"
    " FROM contextos.read_segments($1, $2, $3, $4)"
)
_ERASE: Final = "SELECT contextos.erase_entry($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"


async def erase_in_segment(
    connection: Connection, tenant: str, run: str, seq: int, lock: int, line: tuple[Any, ...]
) -> bool:
    """Erase one entry inside a transaction; return False if it does not exist. Tries again if its segment changed."""
    for _ in range(ERASE_ATTEMPTS):
        rows = await connection.fetch(SEGMENTS, tenant, run, seq - 1, 1)
        row = Segment(*rows[0][1:]) if rows else None
        if row is None or not row.holds(seq):
            return False
        erased = without(tenant, run, rows[0][0], row, seq)
        if erased is None:
            return True
        columns = (row.body, erased.salts, erased.body, erased.erased)
        if await connection.fetchval(_ERASE, tenant, lock, run, seq, row.seq, *columns, line):
            return True
    raise Unavailable("store", "other erasures changed the same commit each time")
