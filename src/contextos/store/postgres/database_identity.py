"""Reads the identity of a PostgreSQL database, and checks that a tenant's store is still in its recorded database.

The identity is the system identifier, the database oid and the timeline. It changes when a dump is restored into
another database, and when a server is recovered to an earlier time or promoted. After such a change nothing is
committed for a tenant until an operator begins a new epoch. Two restores keep all three and are not detected: a dump
restored into the same database, and an unchanged copy of the server's files.
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
_RECORD: Final = (
    "INSERT INTO contextos.documents (tenant, collection, key, version, body) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (tenant, collection, key) DO UPDATE SET version = excluded.version, body = excluded.body"
    " WHERE documents.version = excluded.version - 1"
)


def store_name(identity: str) -> str:
    """Return the store's name: server and database, without the timeline that a failover changes.

    >>> store_name("7409/16385/00000002")
    '7409/16385'
    """
    return identity.rpartition("/")[0]


async def is_same_database(connection: Connection, tenant: str, identity: str) -> bool:
    """Return whether a tenant's store belongs to the database `identity`; call inside the tenant's transaction.

    Records the identity if the store is new or has begun a new epoch (as after a recorded restore). Returns False if
    the store records another identity and has begun no epoch since.
    """
    rows = await connection.fetch(_READ, tenant, EPOCHS.name)
    documents = {key: (version, body) for key, version, body in rows}
    epoch = documents[EPOCH_KEY][0] if EPOCH_KEY in documents else 0
    version, body = documents.get(DATABASE_PLACE_KEY, (0, None))
    recorded_place = DATABASE_PLACES.decoded(DATABASE_PLACE_KEY, body) if body else None
    current = DatabasePlace(identity, epoch)
    if recorded_place == current:
        return True
    if recorded_place and recorded_place.place != identity and recorded_place.epoch >= epoch:
        return False
    # If another process has recorded an identity meanwhile, this changes nothing, and the next start compares with it.
    await connection.execute(
        _RECORD, tenant, *DATABASE_PLACES.place(DATABASE_PLACE_KEY), version + 1, DATABASE_PLACES.encode(current)
    )
    return True


def begins_epoch(batch: Batch) -> bool:
    """Return whether a batch begins a new epoch of the store, as an operator does after a restore."""
    return any(is_epoch_write(write) for write in batch.writes)


def restore_not_recorded() -> StoreRestored:
    """Return the error for a commit to a store that was restored from a backup, while no operator has recorded the
    restore.
    """
    return StoreRestored(
        "the database is not the one that this store was in, so it was restored or failed over; stop what runs on"
        " it, compare what came after the backup, then run `contextos store restored --by WHO`"
    )
