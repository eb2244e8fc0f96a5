"""`SqliteStores`: the `Stores` port on one SQLite file.

All writes go through one writer per process. Reads run on the caller's thread and see every commit that has
returned. One object can be shared by all threads and event loops.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.journal import CONTROL, INDEX, Batch, Document, Draft, Entry, SignedHead, Write, genesis, link
from contextos.errors import Conflict, InvalidInput, Problem, Untimely
from contextos.store.shared.batch import (
    MAX_SQL_INTEGER,
    nothing_signed,
    nothing_to_erase,
    refuse_erasure,
    refuse_misfit,
)
from contextos.store.shared.clock import SystemClock
from contextos.store.shared.key_range import after_prefix
from contextos.store.sqlite.artifacts import SqliteArtifacts, sqlite_selected_runs, sqlite_selections
from contextos.store.sqlite.database import (
    BUSY_TIMEOUT_MS,
    Connect,
    Readers,
    check_file,
    connect_read_only,
    connect_sqlite,
    open_file,
    reader_connection,
    writer_connection,
)
from contextos.store.sqlite.graph import SqliteGraph
from contextos.store.sqlite.writer import SQLITE_QUEUE_LIMIT, Writer

if TYPE_CHECKING:
    from contextos.contracts.envelopes.slots import SelectionAct
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Graph, Store

SQLITE_PAGE_ENTRIES: Final = 1000
_ROWS_PER_INSERT: Final = 16
# SQLite sorts every blob after every text.
_AFTER_ALL_TEXT: Final = b""

_FIELDS: Final = (
    "tenant",
    "run",
    "seq",
    "v",
    "kind",
    "key",
    "at_us",
    "by",
    "body_digest",
    "prev_hash",
    "hash",
    "salt",
    "body",
)
_Row = tuple[Any, ...]
_row_of = attrgetter(*_FIELDS)
_ENTRY_COLUMNS: Final = 'tenant, run, seq, kind, key, at_us, "by", body_digest, prev_hash, hash, body, salt, v'
_HEAD: Final = "SELECT seq, hash FROM journal WHERE tenant = ? AND run = ? ORDER BY seq DESC LIMIT 1"
_READ: Final = f"SELECT {_ENTRY_COLUMNS} FROM journal WHERE tenant = ? AND run = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
_ONE: Final = "SELECT collection, key, version, body FROM documents WHERE tenant = ? AND collection = ? AND key = ?"
_SCAN: Final = (
    "SELECT collection, key, version, body FROM documents WHERE tenant = ? AND collection = ?"
    " AND key >= ? AND key < ? ORDER BY key LIMIT ?"
)
_VERSION: Final = "SELECT version FROM documents WHERE tenant = ? AND collection = ? AND key = ?"
_ADD: Final = (
    "INSERT INTO documents (tenant, collection, key, version, body) VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING"
)
_SET: Final = (
    "UPDATE documents SET version = version + 1, body = ?"
    " WHERE tenant = ? AND collection = ? AND key = ? AND version = ?"
)
# A NULL parameter keeps the stored value. The number of a run never changes once it is set.
_SET_RUN: Final = (
    "INSERT INTO runs (tenant, run, wake_at_us, number, waiting)"
    " VALUES (?1, ?2, coalesce(?3, 0), ?4, coalesce(?5, 0)) ON CONFLICT (tenant, run) DO UPDATE SET"
    " wake_at_us = coalesce(?3, wake_at_us), waiting = coalesce(?5, waiting),"
    " number = CASE number WHEN 0 THEN ?4 ELSE number END"
)
_WAITING: Final = (
    "SELECT number, run FROM runs WHERE tenant = ? AND waiting = 1 AND number BETWEEN 1 AND ?"
    " ORDER BY number DESC LIMIT ?"
)
_DUE: Final = (
    "SELECT tenant, run FROM runs WHERE wake_at_us <> 0 AND wake_at_us <= ? ORDER BY wake_at_us, tenant, run LIMIT ?"
    " OFFSET ?"
)
_SIGN: Final = "INSERT INTO heads (tenant, stream, seq, kid, hash, sig) VALUES (?, ?, ?, ?, ?, ?)"
_SIGNED: Final = "SELECT 1 FROM heads WHERE tenant = ? AND stream = ? AND seq = ? AND kid = ?"
_SIGNATURES: Final = "SELECT seq, hash, kid, sig FROM heads WHERE tenant = ? AND stream = ? ORDER BY seq, kid"
# The first condition on `run` lets SQLite use the partial index.
_LINES: Final = (
    f"SELECT {_ENTRY_COLUMNS} FROM journal"  # noqa: S608
    " WHERE run IN ('index', 'control') AND tenant = ? AND run = ?"
    " AND key IN (SELECT value FROM json_each(?)) ORDER BY seq"
)
_LATEST: Final = (
    "SELECT at_us FROM journal WHERE tenant = ? AND run IN ('index', 'control') ORDER BY at_us DESC LIMIT 1"
)
_KEPT: Final = "SELECT body IS NOT NULL FROM journal WHERE tenant = ? AND run = ? AND seq = ?"
_ERASE: Final = "UPDATE journal SET body = NULL, salt = NULL WHERE tenant = ? AND run = ? AND seq = ?"


class SqliteStores:
    """A deployment's storage in the file `path`, which is created if it does not exist.

    The deadlines of writes are compared with `clock` while the write lock is held. With `read_only` the file must
    exist, and every write fails.

    Raises: `InvalidSettings` if the file cannot be used or its schema is newer.
    """

    name = ""

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock | None = None,
        connector: Connect = connect_sqlite,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        queue_limit: int = SQLITE_QUEUE_LIMIT,
        read_only: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        self._clock = clock if clock is not None else SystemClock()
        if read_only:
            connector = connect_read_only
            check_file(self.path, connector)
        else:
            open_file(self.path, connector)
        self._readers = Readers(self.path, connector)
        connect = reader_connection if read_only else writer_connection
        self._writer = Writer(
            partial(connect, self.path, connector), busy_timeout_ms=busy_timeout_ms, queue_limit=queue_limit
        )

    def tenant(self, tenant_id: str) -> Store:
        return SqliteStore(tenant_id, self._writer, self._readers, self._clock)

    def graph(self, tenant_id: str) -> Graph:
        """The graph of a tenant, in the same file."""
        return SqliteGraph(tenant_id, self._writer, self._readers, _append_act)

    def artifacts(self, tenant_id: str) -> SqliteArtifacts:
        """The artifacts of a tenant, in the same file."""
        return SqliteArtifacts(tenant_id, self._writer, self._readers, _append_shared)

    async def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        with self._readers.connection() as connection:
            rows = connection.execute(_DUE, (before_us, max(limit, 0), max(skip, 0))).fetchall()
        for tenant, run in rows:
            yield tenant, run

    async def erase(self, tenant_id: str, run: str, seq: int, record: Draft) -> None:
        """Record the erasure and delete the body and salt of one entry, also from the write-ahead log."""
        refuse_erasure(run, seq, record)

        def task(connection: sqlite3.Connection) -> None:
            place = (tenant_id, run, seq)
            row = connection.execute(_KEPT, place).fetchone()
            if row is None:
                raise nothing_to_erase(run, seq)
            if row[0]:
                _append_shared(connection, tenant_id, CONTROL, record)
                connection.execute(_ERASE, place)

        await self._writer.run(task)
        await asyncio.to_thread(self._empty_log)

    def close(self) -> None:
        """Finish the queued commits and close the file. Blocks; call it after the last coroutine is done."""
        self._writer.close()
        self._readers.close()

    def _empty_log(self) -> None:
        """Truncate the log, whose old pages contain erased bytes. If a reader blocks it, the next checkpoint does."""
        with self._readers.connection() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class SqliteStore:
    """One tenant's journal and documents (the `Store` port)."""

    def __init__(self, tenant_id: str, writer: Writer, readers: Readers, clock: Clock) -> None:
        if not tenant_id:
            raise InvalidInput(Problem("/tenant_id", "empty", "a store belongs to a tenant; name one"))
        self._tenant, self._writer, self._readers, self._clock = tenant_id, writer, readers, clock

    async def commit(self, batch: Batch) -> None:
        refuse_misfit(self._tenant, batch)
        # Make the rows on this thread: it can work while the writer waits for the disk.
        rows = [_row_of(entry) for entry in batch.entries]
        await self._writer.run(partial(_apply, self._tenant, batch, rows, self._clock), may_block=batch.may_block)

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        found: list[Entry] = []
        while limit is None or len(found) < limit:
            wanted = SQLITE_PAGE_ENTRIES if limit is None else min(SQLITE_PAGE_ENTRIES, limit - len(found))
            with self._readers.connection() as connection:
                page = connection.execute(_READ, (self._tenant, stream, after, wanted)).fetchall()
            found.extend(Entry(*row) for row in page)
            if len(page) < wanted:
                break
            after = found[-1].seq
            # Let other coroutines run between two pages. A stream only grows, so the pages stay consistent.
            await asyncio.sleep(0)
        return found

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        with self._readers.connection() as connection:
            if key is not None:
                rows = connection.execute(_ONE, (self._tenant, collection, key)).fetchall()
            else:
                start = prefix if after < prefix else f"{after}\0"
                bounds = (self._tenant, collection, start, after_prefix(prefix) or _AFTER_ALL_TEXT, max(limit, 0))
                rows = connection.execute(_SCAN, bounds).fetchall()
        return [Document(*row) for row in rows]

    async def find(self, places: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Document]:
        with self._readers.connection() as connection:
            rows = [row for place in places for row in connection.execute(_ONE, (self._tenant, *place))]
        return {(row[0], row[1]): Document(*row) for row in rows}

    async def signed_heads(self, stream: str) -> Sequence[SignedHead]:
        """Return (seq, hash, key id, signature in hex) of every signed head of a stream, in order."""
        with self._readers.connection() as connection:
            return connection.execute(_SIGNATURES, (self._tenant, stream)).fetchall()

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        with self._readers.connection() as connection:
            rows = connection.execute(_LINES, (self._tenant, stream, json.dumps(keys))).fetchall()
        return [Entry(*row) for row in rows]

    async def latest_us(self) -> int:
        with self._readers.connection() as connection:
            found = connection.execute(_LATEST, (self._tenant,)).fetchone()
        return found[0] if found else 0

    async def selected_runs(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        with self._readers.connection() as connection:
            return sqlite_selected_runs(connection, self._tenant, after, limit)

    async def selections(self, run: str) -> Sequence[SelectionAct]:
        with self._readers.connection() as connection:
            return sqlite_selections(connection, self._tenant, run)

    async def waiting(self, *, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str]]:
        newest = min(after - 1, MAX_SQL_INTEGER) if after else MAX_SQL_INTEGER
        with self._readers.connection() as connection:
            return connection.execute(_WAITING, (self._tenant, newest, max(limit, 0))).fetchall()


def _apply(tenant: str, batch: Batch, rows: Sequence[_Row], clock: Clock, connection: sqlite3.Connection) -> None:
    """Write one batch inside the writer's transaction. Raises `Conflict`, which names the stream or document."""
    head = _continue(connection, tenant, batch.run, batch.entries, rows) if batch.entries or batch.signature else None
    if batch.writes:
        now_us = clock.now_us()
        for write in batch.writes:
            _write(connection, tenant, write, now_us)
    number = 0
    for stream, draft in batch.shared:
        seq = _append_shared(connection, tenant, stream, draft)
        if (stream, draft.key) == (INDEX, batch.run):
            number = number or seq
    if number or batch.wake_at_us is not None or batch.waiting is not None:
        connection.execute(_SET_RUN, (tenant, batch.run, batch.wake_at_us, number, batch.waiting))
    if batch.signature is not None and head is not None:
        _sign(connection, tenant, batch.run, head, batch.signature)


def _continue(
    connection: sqlite3.Connection, tenant: str, run: str, entries: Sequence[Entry], rows: Sequence[_Row]
) -> tuple[int, str]:
    """Append entries that continue the stream's head exactly; return the new head. Raises `Conflict`."""
    seq, head = _head(connection, tenant, run)
    for entry in entries:
        if entry.seq != seq + 1 or entry.prev_hash != head:
            raise Conflict(run)
        seq, head = entry.seq, entry.hash
    _insert(connection, rows)
    return seq, head


def _head(connection: sqlite3.Connection, tenant: str, stream: str) -> tuple[int, str]:
    row = connection.execute(_HEAD, (tenant, stream)).fetchone()
    return row if row is not None else (0, genesis(tenant, stream))


def _insert(connection: sqlite3.Connection, rows: Sequence[_Row]) -> None:
    # Few statements with many rows: each statement releases the interpreter lock and has to take it again.
    for start in range(0, len(rows), _ROWS_PER_INSERT):
        part = rows[start : start + _ROWS_PER_INSERT]
        connection.execute(_INSERTS[len(part)], [value for row in part for value in row])


def _insert_statement(count: int) -> str:
    columns = ", ".join(f'"{name}"' for name in _FIELDS)
    placeholders = ", ".join("?" for _ in _FIELDS)
    return f"INSERT INTO journal ({columns}) VALUES " + ", ".join([f"({placeholders})"] * count)  # noqa: S608


_INSERTS: Final = [_insert_statement(count) for count in range(_ROWS_PER_INSERT + 1)]


def _write(connection: sqlite3.Connection, tenant: str, write: Write, now_us: int) -> None:
    late = write.not_after_us is not None and now_us > write.not_after_us
    early = write.not_before_us is not None and now_us < write.not_before_us
    if late or early:
        raise Untimely(f"{write.collection}/{write.key}", now_us)
    if not _swap(connection, tenant, write):
        raise Conflict(f"{write.collection}/{write.key}")


def _swap(connection: sqlite3.Connection, tenant: str, write: Write) -> bool:
    """Write or check a document if its version is the expected one; return whether it was."""
    key = (tenant, write.collection, write.key)
    if write.body is None:
        row = connection.execute(_VERSION, key).fetchone()
        return bool((row[0] if row is not None else 0) == write.expect)
    if write.expect == 0:
        return connection.execute(_ADD, (*key, write.body)).rowcount == 1
    return connection.execute(_SET, (write.body, *key, write.expect)).rowcount == 1


def _append_act(connection: sqlite3.Connection, tenant: str, act: Draft) -> None:
    _append_shared(connection, tenant, CONTROL, act)


def _append_shared(connection: sqlite3.Connection, tenant: str, stream: str, draft: Draft) -> int:
    """Append a draft to a shared stream; return its sequence."""
    seq, head = _head(connection, tenant, stream)
    _insert(connection, [_row_of(link(tenant, stream, seq + 1, head, draft))])
    return seq + 1


def _sign(
    connection: sqlite3.Connection, tenant: str, stream: str, head: tuple[int, str], signature: tuple[str, str]
) -> None:
    (seq, digest), (kid, sig) = head, signature
    if seq == 0:
        raise nothing_signed(stream)
    if connection.execute(_SIGNED, (tenant, stream, seq, kid)).fetchone() is None:
        connection.execute(_SIGN, (tenant, stream, seq, kid, digest, sig))
