"""`SqliteStores`: the `Stores` port on one SQLite file.

All writes go through one writer per process. Reads run on the caller's thread and see every commit that has
returned. One object can be shared by all threads and event loops.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from errno import ENOSPC
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from os import strerror
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import (
    CONTROL,
    INDEX,
    SHARED_STREAMS,
    Batch,
    Document,
    Draft,
    Entry,
    Look,
    Sought,
    StoredRun,
    TermChange,
)
from contextos.errors import InvalidInput, Problem, Unavailable
from contextos.store.shared.batch import MAX_SQL_INTEGER, is_storable, nothing_to_erase, refuse_erasure, refuse_misfit
from contextos.store.shared.clock import SystemClock
from contextos.store.shared.key_range import after_prefix
from contextos.store.shared.segments import Segment, read_rows, segments, without
from contextos.store.sqlite.artifacts import SqliteArtifacts, sqlite_selected_runs, sqlite_selections
from contextos.store.sqlite.commits import HEAD, SEGMENT_COLUMNS, SHARED_HEAD, append_act, append_shared, apply_batch
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
from contextos.store.sqlite.terms import sqlite_change_terms, sqlite_found, sqlite_terms
from contextos.store.sqlite.writer import SQLITE_QUEUE_LIMIT, Writer

if TYPE_CHECKING:
    from contextos.contracts.envelopes.slots import SelectionAct
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Graph, Store

SQLITE_PAGE_ENTRIES: Final = 1000
SQLITE_PAGE_SEGMENTS: Final = 100
PAIRS_AT_ONCE: Final = 16
"""The most pairs that one statement looks up. A connection keeps a prepared statement for each number of pairs."""
# SQLite sorts every blob after every text.
_AFTER_ALL_TEXT: Final = b""

_ENTRY_COLUMNS: Final = 'tenant, run, seq, kind, key, at_us, "by", body_digest, prev_hash, hash, body, salt, v'
_SEGMENTS: Final = (
    f"SELECT (SELECT before.head FROM segments AS before WHERE before.tenant = s.tenant AND before.run = s.run"  # noqa: S608
    f" AND before.seq = s.seq - s.entries), {SEGMENT_COLUMNS} FROM segments AS s"
    " WHERE s.tenant = ? AND s.run = ? AND s.seq > ? ORDER BY s.seq LIMIT ?"
)
_READ: Final = f"SELECT {_ENTRY_COLUMNS} FROM journal WHERE tenant = ? AND run = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
_DOCUMENTS: Final = (
    "SELECT collection, key, version, body FROM documents WHERE tenant = ?1 AND collection = ?{} AND key = ?{}"
)
_DOCUMENT: Final = _DOCUMENTS.format(2, 3)
_SCAN: Final = (
    "SELECT collection, key, version, body FROM documents WHERE tenant = ? AND collection = ?"
    " AND key >= ? AND key < ? ORDER BY key LIMIT ?"
)
_WAITING: Final = (
    "SELECT number, run FROM runs WHERE tenant = ? AND waiting = 1 AND number BETWEEN 1 AND ?"
    " ORDER BY number DESC LIMIT ?"
)
_NUMBER: Final = "SELECT number FROM runs WHERE tenant = ? AND run = ? AND number > 0"
_DUE: Final = (
    "SELECT tenant, run FROM runs WHERE wake_at_us <> 0 AND wake_at_us <= ? ORDER BY wake_at_us, tenant, run LIMIT ?"
    " OFFSET ?"
)
_SIGNATURES: Final = (
    "SELECT seq, 'sha256:' || lower(hex(hash)), kid, lower(hex(sig)) FROM heads WHERE tenant = ? AND stream = ?"
    " ORDER BY seq, kid"
)
# Without the name of the index SQLite uses another index, which needs no sorting, and reads the whole stream.
_BY_KEY: Final = {
    stream: f"SELECT {_ENTRY_COLUMNS} FROM journal INDEXED BY journal_lines WHERE tenant = ?1 AND run = '{stream}'"  # noqa: S608
    " AND key = ?{} AND seq > ?{}"
    for stream in SHARED_STREAMS
}
_LATEST: Final = "SELECT at_us FROM journal WHERE tenant = ? ORDER BY at_us DESC LIMIT 1"
_SEQ: Final = attrgetter("seq")
ROOM_BYTES: Final = 1 << 20
"""The room in bytes that must be free: the largest size of a request, or of a tool's answer."""
_ERASE: Final = "UPDATE segments SET salts = ?, body = ?, erased = ? WHERE tenant = ? AND run = ? AND seq = ?"


@cache
def _union_query(query: str, count: int) -> str:
    """Return a statement that unites `query` for `count` pairs of parameters, which follow the tenant."""
    return " UNION ALL ".join([query.format(2 * number, 2 * number + 1) for number in range(1, count + 1)])


def _fetch(
    connection: sqlite3.Connection, query: str, tenant_id: str, pairs: Sequence[tuple[str, str | int]]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that the statement `query` finds for each pair of parameters, `PAIRS_AT_ONCE` pairs at a time."""
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        chunk = pairs[start : start + PAIRS_AT_ONCE]
        try:
            yield from connection.execute(_union_query(query, len(chunk)), (tenant_id, *chain(*chunk)))
        except UnicodeEncodeError:
            # Nothing is stored under a name with half a surrogate pair.
            storable = [pair for pair in chunk if is_storable("".join(map(str, pair)))]
            if len(storable) == len(chunk):
                raise
            yield from _fetch(connection, query, tenant_id, storable)


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
        """Return the graph of a tenant, in the same file."""
        return SqliteGraph(tenant_id, self._writer, self._readers, append_act)

    def artifacts(self, tenant_id: str) -> SqliteArtifacts:
        """Return the artifacts of a tenant, in the same file."""
        return SqliteArtifacts(tenant_id, self._writer, self._readers, append_shared)

    async def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        with self._readers.connection() as connection:
            rows = connection.execute(_DUE, (before_us, max(limit, 0), max(skip, 0))).fetchall()
        for tenant_id, run_id in rows:
            yield tenant_id, run_id

    async def require_room(self) -> None:
        """Raise `Unavailable` unless `ROOM_BYTES` more can be stored beside the file."""
        try:
            with TemporaryFile(dir=self.path.parent, buffering=0) as probe:
                # A write that takes the last of the room is shorter than asked for.
                if probe.write(bytes(ROOM_BYTES)) < ROOM_BYTES:
                    raise OSError(ENOSPC, strerror(ENOSPC))
        except OSError as fault:
            raise Unavailable("store", f"nothing more can be stored beside `{self.path.name}`: {fault}") from None

    async def erase(self, tenant_id: str, run: str, seq: int, record: Draft, terms: TermChange | None = None) -> None:
        """Record the erasure and delete the body and salt of one entry, also from the write-ahead log."""
        refuse_erasure(run, seq, record)

        def task(connection: sqlite3.Connection) -> None:
            rows = connection.execute(_SEGMENTS, (tenant_id, run, seq - 1, 1)).fetchall()
            matches = [(head, Segment(*columns)) for head, *columns in rows]
            if not matches or not matches[0][1].holds(seq):
                raise nothing_to_erase(run, seq)
            row = without(tenant_id, run, *matches[0], seq)
            if row is not None:
                append_shared(connection, tenant_id, CONTROL, record)
                connection.execute(_ERASE, (row.salts, row.body, row.erased, tenant_id, run, row.seq))
            if terms is not None:
                for (number,) in connection.execute(_NUMBER, (tenant_id, run)).fetchall():
                    sqlite_change_terms(connection, tenant_id, run, number, terms)

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
        # Compress on this thread: it can work while the writer waits for the disk.
        rows = segments(batch.entries)
        await self._writer.run(partial(apply_batch, self._tenant, batch, rows, self._clock), may_block=batch.may_block)

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        is_shared, entries = stream in SHARED_STREAMS, list[Entry]()
        query, size = (_READ, SQLITE_PAGE_ENTRIES) if is_shared else (_SEGMENTS, SQLITE_PAGE_SEGMENTS)
        while limit is None or len(entries) < limit:
            page_size = size if limit is None else min(size, limit - len(entries))
            with self._readers.connection(stream) as connection:
                page = connection.execute(query, (self._tenant, stream, after, page_size)).fetchall()
            shared = (Entry(*row) for row in page)
            entries += shared if is_shared else read_rows(self._tenant, stream, after, page, goes_on=bool(entries))
            if len(page) < page_size:
                break
            after = entries[-1].seq
            # Let other coroutines run between two pages. A stream only grows, so the pages stay consistent.
            await asyncio.sleep(0)
        return entries if limit is None else entries[: max(limit, 0)]

    async def read_run(self, run: str) -> StoredRun:
        with self._readers.connection(run) as connection:
            # Each statement of a transaction reads as of its first one.
            connection.execute("BEGIN")
            rows = connection.execute(_SEGMENTS, (self._tenant, run, 0, -1)).fetchall()
            heads = connection.execute(_SIGNATURES, (self._tenant, run)).fetchall()
            index_rows = connection.execute(_BY_KEY[INDEX].format(2, 3), (self._tenant, run, 0)).fetchall()
            lease = connection.execute(_DOCUMENT, (self._tenant, *LEASES.place(run))).fetchone()
            connection.execute("COMMIT")
        entries: list[Entry] = []
        for start in range(0, len(rows), SQLITE_PAGE_SEGMENTS):
            if start:
                # Let other coroutines run between two pages.
                await asyncio.sleep(0)
            page = rows[start : start + SQLITE_PAGE_SEGMENTS]
            entries += read_rows(self._tenant, run, len(entries), page, goes_on=True)
        lease_document = Document(*lease) if lease else None
        return StoredRun(tuple(entries), heads, sorted((Entry(*row) for row in index_rows), key=_SEQ), lease_document)

    async def length(self, stream: str) -> int:
        query = SHARED_HEAD if stream in SHARED_STREAMS else HEAD
        with self._readers.connection() as connection:
            row = connection.execute(query, (self._tenant, stream)).fetchone()
        return row[0] if row is not None else 0

    async def lengths(self, runs: Sequence[str]) -> Mapping[str, int]:
        with self._readers.connection() as connection:
            heads = ((run, connection.execute(HEAD, (self._tenant, run)).fetchone()) for run in runs)
            return {run: row[0] for run, row in heads if row is not None}

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        with self._readers.connection() as connection:
            if key is not None:
                rows = connection.execute(_DOCUMENT, (self._tenant, collection, key)).fetchall()
            else:
                start = prefix if after < prefix else f"{after}\0"
                bounds = (self._tenant, collection, start, after_prefix(prefix) or _AFTER_ALL_TEXT, max(limit, 0))
                rows = connection.execute(_SCAN, bounds).fetchall()
        return [Document(*row) for row in rows]

    async def look(
        self,
        places: Sequence[tuple[str, str]],
        *,
        prefixes: Sequence[tuple[str, str, int]] = (),
        lines: Sequence[tuple[str, int]] = (),
    ) -> Look:
        tenant_id = self._tenant
        with self._readers.connection(CONTROL if lines else "") as connection:
            # Several statements read one state.
            connection.execute("BEGIN")
            documents = {(row[0], row[1]): Document(*row) for row in _fetch(connection, _DOCUMENTS, tenant_id, places)}
            for collection, prefix, limit in prefixes:
                bounds = (tenant_id, collection, prefix, after_prefix(prefix) or _AFTER_ALL_TEXT, max(limit, 0))
                documents |= {(row[0], row[1]): Document(*row) for row in connection.execute(_SCAN, bounds)}
            entries = [Entry(*row) for row in _fetch(connection, _BY_KEY[CONTROL], tenant_id, lines)] if lines else []
            connection.execute("COMMIT")
        return Look(documents, sorted(entries, key=_SEQ))

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        pairs = [*dict.fromkeys(keys, 0).items()] if stream in SHARED_STREAMS else []
        with self._readers.connection(stream) as connection:
            connection.execute("BEGIN")
            entries = [Entry(*row) for row in _fetch(connection, _BY_KEY.get(stream, ""), self._tenant, pairs)]
            connection.execute("COMMIT")
        return sorted(entries, key=_SEQ)

    async def latest_us(self) -> int:
        with self._readers.connection() as connection:
            row = connection.execute(_LATEST, (self._tenant,)).fetchone()
        return row[0] if row else 0

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

    async def found(self, sought: Sought, *, limit: int = 1000) -> Sequence[int]:
        with self._readers.connection() as connection:
            return sqlite_found(connection, self._tenant, sought, limit)

    async def terms(self, first: int, last: int) -> Sequence[tuple[int, int, int]]:
        with self._readers.connection() as connection:
            return sqlite_terms(connection, self._tenant, first, last)
