"""`PostgresStores`: the `Stores` port on a PostgreSQL database whose schema `contextos store migrate` has made.

Each event loop has its own connections and its own writer, which commits many batches as one transaction; reads see
every commit that has returned. Tenants are isolated twice: every statement names its tenant, and row-level security in
the database hides the rows of all others (docs/design/standards.md). Only `due` reads across tenants, because one
transaction for each tenant would cost too much: it calls a function that runs as the owner of the schema and returns
only the tenants and ids of due runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.journal import (
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
from contextos.errors import InvalidSettings, Problem, Unavailable
from contextos.store.postgres.artifacts import PostgresArtifacts, postgres_selected_runs, postgres_selections
from contextos.store.postgres.commit_calls import control_line, stream_lock
from contextos.store.postgres.connections import (
    MAX_READERS,
    Connection,
    Connections,
    DiskRoom,
    connect_postgres,
    is_text,
    named_tenant,
    terminate,
)
from contextos.store.postgres.database_identity import (
    DATABASE_IDENTITY,
    begins_epoch,
    is_same_database,
    restore_not_recorded,
    store_name,
)
from contextos.store.postgres.erasure import erase_in_segment
from contextos.store.postgres.graph import PostgresGraph
from contextos.store.postgres.refusals import refuse_broken_chain, refuse_unstorable
from contextos.store.postgres.runs import look, read_entries, read_run
from contextos.store.postgres.schema import check_schema
from contextos.store.postgres.terms import postgres_change_terms, postgres_found, postgres_terms
from contextos.store.postgres.writer import POSTGRES_QUEUE_LIMIT, GroupWriter
from contextos.store.shared.batch import MAX_SQL_INTEGER, clamped, nothing_to_erase, refuse_erasure, refuse_misfit
from contextos.store.shared.key_range import after_prefix

if TYPE_CHECKING:
    from contextos.contracts.envelopes.slots import SelectionAct
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Graph, Store

POSTGRES_PAGE_ENTRIES: Final = 1000
# Cache size in tenants. It is bounded because any caller can name another tenant.
MAX_CONFIRMED_TENANTS: Final = 65_536

_READ: Final = (
    "SELECT tenant, run, seq, kind, key, at_us, by, body_digest, prev_hash, hash, body, salt, v"
    " FROM contextos.read_stream($1, $2, $3, $4)"
)
_DOCUMENT: Final = "SELECT collection, key, version, body FROM contextos.read_document($1, $2, $3)"
_SCAN: Final = "SELECT collection, key, version, body FROM contextos.scan_documents($1, $2, $3, $4, $5, $6)"
_LOCK: Final = "SELECT pg_advisory_xact_lock(l) FROM unnest($1::bigint[]) AS l"
_WAITING: Final = "SELECT number, run FROM contextos.waiting_runs($1, $2, $3)"
_DUE: Final = "SELECT tenant, run FROM contextos.due($1, $2, $3)"
_KEYED_ENTRIES: Final = (
    "SELECT tenant, run, seq, kind, key, at_us, by, body_digest, prev_hash, hash, body, salt, v"
    " FROM contextos.read_lines($1, $2, $3)"
)
_LATEST: Final = "SELECT contextos.latest_us($1)"
_LENGTH: Final = "SELECT max(seq) FROM contextos.segments WHERE tenant = $1 AND run = $2"
_LENGTHS: Final = (
    "SELECT named.run, (SELECT max(seq) FROM contextos.segments WHERE tenant = $1 AND run = named.run)"
    " FROM unnest($2::text[]) AS named (run)"
)
_SHARED_LENGTH: Final = "SELECT max(seq) FROM contextos.journal WHERE tenant = $1 AND run = $2"
_CAN_ERASE: Final = (
    "SELECT has_function_privilege(oid, 'EXECUTE') FROM pg_proc"
    " WHERE pronamespace = 'contextos'::regnamespace AND proname = 'erase_entry'"
)


@dataclass(frozen=True, slots=True)
class LoopResources:
    """The resources of one event loop: connections for reads, a writer, and, by tenant, the running checks whether its
    store was restored.
    """

    connections: Connections
    writer: GroupWriter
    checks: dict[str, asyncio.Future[bool]] = field(default_factory=dict)


class PostgresStores:
    """All tenants' storage in the PostgreSQL database at `url`. Use `open`: the constructor checks nothing.

    The deadlines of writes are compared with `clock`; if it is None, with the server's clock, which all machines share.
    Each event loop opens at most `readers` connections for reads, and its writer opens its own. `open` sets `name`,
    which differs for every database. `confirmed_tenants` are the tenants whose store was found to be in this database.
    """

    name = ""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        readers: int = MAX_READERS,
        queue_limit: int = POSTGRES_QUEUE_LIMIT,
        read_only: bool = False,
    ) -> None:
        self._url, self._clock, self._readers, self._queue_limit = url, clock, readers, queue_limit
        self._read_only, self._room = read_only, DiskRoom()
        self._loops: dict[asyncio.AbstractEventLoop, LoopResources] = {}
        self._lock, self._closed = threading.Lock(), False
        self._identity: str | None = None
        self.confirmed_tenants: set[str] = set()

    @classmethod
    async def open(cls, url: str, *, read_only: bool = False, **bounds: Any) -> PostgresStores:
        """Check the schema at `url` and the rights of its role, and return the storage.

        With `read_only` the server refuses every write.

        Raises: `InvalidSettings` with one sentence on what to do; `Unavailable` if the server does not answer.
        """
        identity = await check_schema(url, read_only=read_only)
        stores = cls(url, read_only=read_only, **bounds)
        stores.name = store_name(identity)
        return stores

    def tenant(self, tenant_id: str) -> Store:
        return PostgresStore(tenant_id, self)

    def graph(self, tenant_id: str) -> Graph:
        """Return the graph of a tenant, in the same database."""
        return PostgresGraph(tenant_id, lambda: self.for_loop().connections, self.checked_transaction)

    def artifacts(self, tenant_id: str) -> PostgresArtifacts:
        """Return the artifacts of a tenant, in the same database."""
        return PostgresArtifacts(tenant_id, lambda: self.for_loop().connections)

    async def require_room(self) -> None:
        """Raise `Unavailable` if a write of this process found the disk of the server full, and it is still full."""
        await self.for_loop().connections.require_room()

    async def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        async with self.for_loop().connections.connection() as connection:
            rows = await connection.fetch(_DUE, clamped(before_us), clamped(max(limit, 0)), clamped(max(skip, 0)))
        for tenant_id, run_id in rows:
            yield tenant_id, run_id

    async def erase(self, tenant_id: str, run: str, seq: int, record: Draft, terms: TermChange | None = None) -> None:
        """Record the erasure and delete the body and salt of one entry.

        The next `VACUUM` removes the bytes from the table's pages. The server's log and backups keep them until they
        are deleted themselves.

        Raises: `InvalidSettings` unless the role of the store is a member of `contextos_eraser`; `NotFound` if there is
        no such entry; `InvalidInput` without a valid record.
        """
        refuse_erasure(run, seq, record)
        if tenant_id and is_text(tenant_id, run, record.key, record.by) and 0 < seq <= MAX_SQL_INTEGER:
            lock, line = control_line(tenant_id, record)
            async with self.checked_transaction(tenant_id) as connection:
                if not await connection.fetchval(_CAN_ERASE):
                    raise InvalidSettings(
                        Problem("/store", "cannot_erase", "its role cannot erase", "run `GRANT contextos_eraser TO` it")
                    )
                # An open commit of the run ends first, so that the next reader of the run sees all that it stated.
                await connection.execute(_LOCK, sorted((lock, stream_lock(tenant_id, run))))
                if await erase_in_segment(connection, tenant_id, run, seq, lock, line):
                    if terms is not None:
                        await postgres_change_terms(connection, tenant_id, run, terms)
                    return
        raise nothing_to_erase(run, seq)

    def for_loop(self) -> LoopResources:
        """Return the resources of the running event loop. Raises `Unavailable` once the stores are closed."""
        loop = asyncio.get_running_loop()
        resources = self._loops.get(loop)
        if resources is None:
            with self._lock:
                if self._closed:
                    raise Unavailable("store", "it is closed")
                self._abandon_closed_loops()
                writer = GroupWriter(self._connect, self._clock, queue_limit=self._queue_limit, room=self._room)
                connections = Connections(self._url, limit=self._readers, read_only=self._read_only, room=self._room)
                resources = self._loops[loop] = LoopResources(connections, writer)
        return resources

    async def refuse_if_restored(self, tenant: str, batch: Batch) -> None:
        """Refuse to commit to a store that was restored from a backup, unless `batch` begins a new epoch.

        Call it for tenants that are not in `confirmed_tenants`. Raises: `StoreRestored`.
        """
        checks = self.for_loop().checks
        if tenant not in checks:
            checks[tenant] = asyncio.ensure_future(self._check_identity(tenant))
            checks[tenant].add_done_callback(lambda _: checks.pop(tenant))
        # All callers that wait for one check continue in the order in which they came.
        if not await asyncio.shield(checks[tenant]) and not begins_epoch(batch):
            raise restore_not_recorded()

    @asynccontextmanager
    async def checked_transaction(self, tenant: str) -> AsyncIterator[Connection]:
        """Open a transaction for rare changes that bypass the writer. Checks the identity of the database each time.

        Raises: `StoreRestored` if the store was restored and no operator has recorded that.
        """
        async with self.for_loop().connections.transaction(tenant) as connection:
            if not await is_same_database(connection, tenant, await connection.fetchval(DATABASE_IDENTITY)):
                raise restore_not_recorded()
            yield connection

    async def record_epoch(self, tenant: str) -> None:
        """Record in which database a tenant's new epoch began. Without it, the next restore elsewhere would not be
        detected.
        """
        self.confirmed_tenants.discard(tenant)
        await self._check_identity(tenant)

    async def _check_identity(self, tenant_id: str) -> bool:
        connections = self.for_loop().connections
        if self._identity is None:
            async with connections.connection() as connection:
                self._identity = await connection.fetchval(DATABASE_IDENTITY)
        identity = self._identity
        async with connections.transaction(tenant_id) as connection:
            is_confirmed = await is_same_database(connection, tenant_id, identity)
        if is_confirmed and identity == self._identity:
            if len(self.confirmed_tenants) >= MAX_CONFIRMED_TENANTS:
                self.confirmed_tenants.clear()
            self.confirmed_tenants.add(tenant_id)
        return is_confirmed

    async def _connect(self) -> Connection:
        """Open a connection for writes. Raises `Unavailable` if it reaches another database than before."""
        if self._read_only:
            raise Unavailable("store", "it is open for reading only")
        connection, identity = await connect_postgres(self._url), None
        try:
            identity = await connection.fetchval(DATABASE_IDENTITY)
        finally:
            if identity is None or self._identity not in (None, identity):
                terminate(connection)
        if self._identity not in (None, identity):
            self._identity = identity
            self.confirmed_tenants.clear()
            raise Unavailable("store", "the server or database is not the same as before")
        return connection

    async def leave_loop(self) -> None:
        """Finish the queued batches of the running event loop, and close its connections. Call it before the loop ends
        if other event loops go on using these stores.
        """
        with self._lock:
            resources = self._loops.pop(asyncio.get_running_loop(), None)
        if resources is not None:
            await resources.writer.close()
            await resources.connections.close()

    async def aclose(self) -> None:
        """Finish the queued batches of this event loop, then close all connections of all event loops."""
        with self._lock:
            self._closed = True
        resources = self._loops.get(asyncio.get_running_loop())
        try:
            if resources is not None:
                await resources.writer.close()
                await resources.connections.close()
        finally:
            # Also if the caller is cancelled while it waits: commits still in progress are abandoned then.
            self.close()

    def close(self) -> None:
        """Close all connections at once. Commits in progress raise `Unavailable` (outcome unknown, read again)."""
        with self._lock:
            self._closed = True
            for resources in self._loops.values():
                resources.writer.abandon()
                resources.connections.abandon()

    def _abandon_closed_loops(self) -> None:
        for loop in [loop for loop in self._loops if loop.is_closed()]:
            resources = self._loops.pop(loop)
            resources.writer.abandon()
            resources.connections.abandon()


class PostgresStore:
    """One tenant's journal and documents (the `Store` port)."""

    def __init__(self, tenant_id: str, stores: PostgresStores) -> None:
        self._tenant, self._stores = named_tenant(tenant_id), stores

    async def commit(self, batch: Batch) -> None:
        refuse_misfit(self._tenant, batch)
        refuse_unstorable(self._tenant, batch)
        refuse_broken_chain(self._tenant, batch)
        if self._tenant not in self._stores.confirmed_tenants:
            await self._stores.refuse_if_restored(self._tenant, batch)
        await self._stores.for_loop().writer.commit(self._tenant, batch)
        if begins_epoch(batch):
            await self._stores.record_epoch(self._tenant)

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        if stream not in SHARED_STREAMS:
            return await read_entries(self._fetch, self._tenant, stream, after, limit)
        entries: list[Entry] = []
        while limit is None or len(entries) < limit:
            page_size = POSTGRES_PAGE_ENTRIES if limit is None else min(POSTGRES_PAGE_ENTRIES, limit - len(entries))
            page = await self._fetch(_READ, stream, clamped(after), page_size)
            entries.extend(Entry(*row) for row in page)
            if len(page) < page_size:
                break
            after = entries[-1].seq
        return entries

    async def read_run(self, run: str) -> StoredRun:
        return await read_run(self._fetch, self._tenant, run)

    async def length(self, stream: str) -> int:
        if not is_text(stream):
            return 0
        query = _SHARED_LENGTH if stream in SHARED_STREAMS else _LENGTH
        async with self._stores.for_loop().connections.transaction(self._tenant) as connection:
            return int(await connection.fetchval(query, self._tenant, stream) or 0)

    async def lengths(self, runs: Sequence[str]) -> Mapping[str, int]:
        async with self._stores.for_loop().connections.transaction(self._tenant) as connection:
            rows = await connection.fetch(_LENGTHS, self._tenant, list(filter(is_text, runs)))
        return {run: length for run, length in rows if length is not None}

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        if not is_text(collection, key or "", prefix, after):
            return []
        if key is not None:
            rows = await self._fetch(_DOCUMENT, collection, key)
        else:
            rows = await self._fetch(_SCAN, collection, prefix, after, after_prefix(prefix), clamped(max(limit, 0)))
        return [Document(*row) for row in rows]

    async def look(
        self,
        places: Sequence[tuple[str, str]],
        *,
        prefixes: Sequence[tuple[str, str, int]] = (),
        lines: Sequence[tuple[str, int]] = (),
    ) -> Look:
        return await look(self._fetch, self._tenant, places, prefixes, lines)

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        if not is_text(stream):
            return []
        return [Entry(*row) for row in await self._fetch(_KEYED_ENTRIES, stream, list(filter(is_text, keys)))]

    async def latest_us(self) -> int:
        return int((await self._fetch(_LATEST))[0][0])

    async def selected_runs(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        async with self._stores.for_loop().connections.transaction(self._tenant) as connection:
            return await postgres_selected_runs(connection, self._tenant, after, clamped(max(limit, 0)))

    async def selections(self, run: str) -> Sequence[SelectionAct]:
        async with self._stores.for_loop().connections.transaction(self._tenant) as connection:
            return await postgres_selections(connection, self._tenant, run)

    async def waiting(self, *, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str]]:
        newest = after - 1 if after else MAX_SQL_INTEGER
        return [tuple(row) for row in await self._fetch(_WAITING, clamped(newest), clamped(max(limit, 0)))]

    async def found(self, sought: Sought, *, limit: int = 1000) -> Sequence[int]:
        async with self._stores.for_loop().connections.transaction(self._tenant) as connection:
            return await postgres_found(connection, self._tenant, sought, limit)

    async def terms(self, first: int, last: int) -> Sequence[tuple[int, int, int]]:
        async with self._stores.for_loop().connections.transaction(self._tenant) as connection:
            return await postgres_terms(connection, self._tenant, first, last)

    async def _fetch(self, statement: str, *arguments: Any) -> Sequence[Any]:
        async with self._stores.for_loop().connections.connection() as connection:
            rows: Sequence[Any] = await connection.fetch(statement, self._tenant, *arguments)
        return rows
