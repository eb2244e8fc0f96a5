"""`SqliteMemoryStores`: a store in memory, for tests of packs and for deployments whose store is not made yet.

Tables, statements, writer and readers are the same as for a file. Only the write-ahead log is missing, which SQLite has
only for files: here the writer and the readers of other threads wait for each other.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from contextos.errors import Unavailable
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.database import (
    BUSY_TIMEOUT_MS,
    PAGE_BYTES,
    Readers,
    connect_memory,
    memory_database,
    writer_connection,
)
from contextos.store.sqlite.stores import SqliteStores
from contextos.store.sqlite.writer import Writer

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock


MAX_MEMORY_BYTES: Final = 992 << 20
"""SQLite allows a database in memory 1 GiB; the rest of it is kept for commits in progress."""


class SqliteMemoryStores(SqliteStores):
    """A store in the memory of this process, empty at first. `close` deletes it; it never writes to a disk."""

    unsafe: tuple[str, ...] = ("unsafe_memory_store",)

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.path = Path(f"/contextos-{uuid4().hex}")
        self._clock = clock if clock is not None else SystemClock()
        self._keeper = memory_database(self.path)
        self._readers = Readers(self.path, connect_memory)
        self._writer = Writer(partial(_waiting_writer, self.path), busy_timeout_ms=BUSY_TIMEOUT_MS)

    async def require_room(self) -> None:
        """Raise `Unavailable` near the GiB that SQLite allows a database in memory."""
        with self._readers.connection() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        if pages * PAGE_BYTES > MAX_MEMORY_BYTES:
            raise Unavailable("store", "a store in memory holds 1 GiB at most; open one in a file")

    def close(self) -> None:
        super().close()
        self._keeper.close()


def _waiting_writer(path: Path) -> sqlite3.Connection:
    """Open the writer's connection, whose `COMMIT` waits for the readers."""
    connection = writer_connection(path, connect_memory)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return connection
