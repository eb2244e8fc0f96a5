"""Where a PostgreSQL database stands, and whether it is still where each tenant's store knows itself to be.

A dump that was restored into another database, and a server that was brought back to an earlier time or promoted, are
recognised by system identifier, database oid and timeline. Until an operator has begun a new epoch nothing is
committed for a tenant whose store stood elsewhere. What keeps all three cannot be told: a dump that was restored into
the same database, and the server's files put back as they were.
"""

from __future__ import annotations

from typing import Final

from contextos.contracts.documents.epochs import (
    DATABASE_PLACE_KEY,
    DATABASE_PLACES,
    EPOCH_KEY,
    EPOCHS,
    DatabasePlace,
    is_epoch_write,
)
from contextos.contracts.journal import Batch
from contextos.errors import StoreRestored
from contextos.store.postgres.connections import Connection

DATABASE_IDENTITY: Final = (
    "SELECT (SELECT system_identifier FROM pg_control_system())::text"
    " || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text"
    " || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
)
_READ: Final = "SELECT key, version, body FROM contextos.documents WHERE tenant = $1 AND collection = $2"
_NOTE: Final = (
    "INSERT INTO contextos.documents (tenant, collection, key, version, body) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (tenant, collection, key) DO UPDATE SET version = excluded.version, body = excluded.body"
    " WHERE documents.version = excluded.version - 1"
)


def store_name(place: str) -> str:
    """The name of the store at a place: server and database, for a failover leaves it what it was.

    >>> store_name("7409/16385/00000002")
    '7409/16385'
    """
    return place.rpartition("/")[0]


async def is_same_database(connection: Connection, tenant: str, place: str) -> bool:
    """Whether a tenant's store stands at `place`; what is there for the first time, or after a restore, is noted.

    False where it stood elsewhere and its epoch is still the one of then. Part of the tenant's transaction.
    """
    rows = await connection.fetch(_READ, tenant, EPOCHS.name)
    found = {key: (version, body) for key, version, body in rows}
    epoch = found[EPOCH_KEY][0] if EPOCH_KEY in found else 0
    version, body = found.get(DATABASE_PLACE_KEY, (0, None))
    known = DATABASE_PLACES.decoded(DATABASE_PLACE_KEY, body) if body else None
    here = DatabasePlace(place, epoch)
    if known == here:
        return True
    if known and known.place != place and known.epoch >= epoch:
        return False
    # Another process may have noted it first: where it is not this place, the next start of it will tell.
    await connection.execute(
        _NOTE, tenant, *DATABASE_PLACES.place(DATABASE_PLACE_KEY), version + 1, DATABASE_PLACES.encode(here)
    )
    return True


def begins_epoch(batch: Batch) -> bool:
    """Whether a batch begins a new epoch."""
    return any(is_epoch_write(write) for write in batch.writes)


def restore_not_recorded() -> StoreRestored:
    """The refusal of all but the beginning of a new epoch."""
    return StoreRestored(
        "the database is not the one that this store was in, so it was restored or failed over; stop what runs on"
        " it, compare what came after the backup, then run `contextos restored --by WHO`"
    )
