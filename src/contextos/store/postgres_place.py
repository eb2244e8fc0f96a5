"""Where a PostgreSQL database stands, and whether it is still where each tenant's store knows itself to be.

A dump that was restored into another database, and a server that was brought back to an earlier time or promoted, are
recognised by system identifier, database oid and timeline. Until an operator has begun a new epoch nothing is
committed for a tenant whose store stood elsewhere. What keeps all three cannot be told: a dump that was restored into
the same database, and the server's files put back as they were.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import orjson

from contextos.contracts.journal import CONTROL, EPOCH, Batch, Document, Write
from contextos.errors import Conflict, StoreRestored

PLACE: Final = (
    "SELECT (SELECT system_identifier FROM pg_control_system())::text"
    " || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text"
    " || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
)
_KEPT: Final = (EPOCH[0], "place")

Scan = Callable[[str, str], Awaitable[Sequence[Document]]]
Commit = Callable[[Batch], Awaitable[None]]


async def must_be_known(place: str, batch: Batch, scan: Scan, commit: Commit) -> bool:
    """Whether a tenant's store stands at `place`; what is there for the first time, or after a restore, is noted.

    False where `batch` itself begins a new epoch: it may be committed, and the next one is looked at again.

    Raises: `StoreRestored` where the store stood elsewhere and its epoch is the one of then.
    """
    kept, epochs = await scan(*_KEPT), await scan(*EPOCH)
    epoch = epochs[0].version if epochs else 0
    said: dict[str, Any] = orjson.loads(kept[0].body) if kept else {"place": "", "epoch": epoch}
    if said["place"] == place:
        return True
    if any((write.collection, write.key) == EPOCH for write in batch.writes):
        return False
    if kept and said["epoch"] >= epoch:
        raise StoreRestored(
            "the database is not the one that this store was in, so it was restored or failed over; stop what runs on"
            " it, compare what came after the backup, then run `contextos restored --by WHO`"
        )
    body = orjson.dumps({"place": place, "epoch": epoch})
    try:
        await commit(Batch(run=CONTROL, writes=(Write(*_KEPT, kept[0].version if kept else 0, body),)))
    except Conflict:
        # Another process noted it first; what it noted is looked at with the next commit.
        return False
    return True
