"""`PostgresStores`: the `Stores` port on a PostgreSQL database whose schema `contextos migrate` has made.

Each event loop has its own connections and its own writer with group commit; reads see every commit that has
returned. Isolation of tenants does not rest on this module alone: every statement names its tenant, and row-level
security in the database refuses what does not (shared/spec/standards.md, B5). `due` is the one exception: a function
of the database's owner that names waiting runs and shows nothing else, because a sweep over all tenants as each of
them would cost a transaction per tenant.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.journal import Batch, Document, Entry, SignedHead, genesis
from contextos.errors import Conflict, InvalidInput, NotFound, Problem, Unavailable
from contextos.store.postgres.artifacts import PostgresArtifacts
from contextos.store.postgres.connections import (
    MAX_READERS,
    Connection,
    Connections,
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
from contextos.store.postgres.graph import PostgresGraph
from contextos.store.postgres.schema import check_schema
from contextos.store.postgres.writer import POSTGRES_QUEUE_LIMIT, GroupWriter
from contextos.store.shared.batch import MAX_SQL_INTEGER, refuse_misfit
from contextos.store.shared.key_range import after_prefix

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Graph, Store

POSTGRES_PAGE_ENTRIES: Final = 1000
# Each is locked by its name, and the server has room for some thousand locks.
MAX_BATCH_WRITES: Final = 1000
# Of so many tenants it is kept that they are here; any caller may name another.
MAX_HERE: Final = 65_536

_READ: Final = (
    "SELECT tenant, run, seq, kind, key, at_us, by, body_digest, prev_hash, hash, body, salt, v"
    " FROM contextos.read_stream($1, $2, $3, $4)"
)
_ONE: Final = "SELECT collection, key, version, body FROM contextos.read_document($1, $2, $3)"
_FIND: Final = (
    "SELECT found.collection, found.key, found.version, found.body"
    " FROM unnest($2::text[], $3::text[]) AS place (collection, key)"
    " CROSS JOIN LATERAL contextos.read_document($1, place.collection, place.key) AS found"
)
_SCAN: Final = "SELECT collection, key, version, body FROM contextos.scan_documents($1, $2, $3, $4, $5, $6)"
_SIGNATURES: Final = "SELECT seq, hash, kid, sig FROM contextos.signed_heads($1, $2)"
_WAITING: Final = "SELECT number, run FROM contextos.waiting_runs($1, $2, $3)"
_DUE: Final = "SELECT tenant, run FROM contextos.due($1, $2, $3)"
_ERASE: Final = "UPDATE contextos.journal SET body = NULL, salt = NULL WHERE tenant = $1 AND run = $2 AND seq = $3"


@dataclass(frozen=True, slots=True)
class Link:
    """What one event loop has of the database: connections for reading, and a writer."""

    connections: Connections
    writer: GroupWriter
    looks: dict[str, asyncio.Future[bool]] = field(default_factory=dict)


class PostgresStores:
    """A deployment's storage in the database at `url`. Made by `open`; made directly, nothing is checked before use.

    `clock` is what deadlines of writes are judged by; None is the server's own, the one clock that all machines share.
    At most `readers` connections and one for writing are open per event loop. `name` tells the store from every other
    one, once it is opened. `here` are tenants whose store was found to stand where it did.
    """

    name = ""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        readers: int = MAX_READERS,
        queue_limit: int = POSTGRES_QUEUE_LIMIT,
    ) -> None:
        self._url, self._clock, self._readers, self._queue_limit = url, clock, readers, queue_limit
        self._links: dict[asyncio.AbstractEventLoop, Link] = {}
        self._gate = threading.Lock()
        self._closed = False
        self._place: str | None = None
        self.here: set[str] = set()

    @classmethod
    async def open(cls, url: str, **bounds: Any) -> PostgresStores:
        """The storage at `url`, once its schema and the rights of our role are as they must be.

        Raises: `InvalidSettings` with one sentence on what to do; `Unavailable` if the server does not answer.
        """
        place = await check_schema(url)
        stores = cls(url, **bounds)
        stores.name = store_name(place)
        return stores

    def tenant(self, tenant_id: str) -> Store:
        return PostgresStore(tenant_id, self)

    def graph(self, tenant_id: str) -> Graph:
        """The graph of a tenant, in the same database."""
        return PostgresGraph(tenant_id, lambda: self.link().connections, self.changing)

    def artifacts(self, tenant_id: str) -> PostgresArtifacts:
        """The artifacts of a tenant, in the same database."""
        return PostgresArtifacts(tenant_id, lambda: self.link().connections)

    async def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        async with self.link().connections.connection() as connection:
            rows = await connection.fetch(_DUE, _whole(before_us), _whole(max(limit, 0)), _whole(max(skip, 0)))
        for tenant, run in rows:
            yield tenant, run

    async def erase(self, tenant_id: str, stream: str, seq: int) -> None:
        """Forget the body and salt of one entry. Raises `NotFound`.

        The bytes leave the table's pages with the next `VACUUM`, and the server's log and backups as those are kept.
        """
        if tenant_id and is_text(tenant_id, stream) and 0 < seq <= MAX_SQL_INTEGER:
            async with self.changing(tenant_id) as connection:
                if await connection.execute(_ERASE, tenant_id, stream, seq) == "UPDATE 1":
                    return
        raise NotFound(f"`{stream}` has no entry {seq}; look at the stream")

    def link(self) -> Link:
        """The running event loop's own connections and writer. Raises `Unavailable` once closed."""
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            with self._gate:
                if self._closed:
                    raise Unavailable("store", "it is closed")
                self._forget_ended()
                writer = GroupWriter(self._connect, self._clock, queue_limit=self._queue_limit)
                link = self._links[loop] = Link(Connections(self._url, limit=self._readers), writer)
        return link

    async def must_be_here(self, tenant: str, batch: Batch) -> None:
        """Refuses what would act on a store that was restored unsaid; asked of tenants that are not yet in `here`.

        Raises: `StoreRestored`.
        """
        looks = self.link().looks
        if tenant not in looks:
            looks[tenant] = asyncio.ensure_future(self._look(tenant))
            looks[tenant].add_done_callback(lambda _: looks.pop(tenant))
        # All that wait for one look go on together, in their order.
        if not await asyncio.shield(looks[tenant]) and not begins_epoch(batch):
            raise restore_not_recorded()

    @asynccontextmanager
    async def changing(self, tenant: str) -> AsyncIterator[Connection]:
        """A transaction for what is changed past the writer, rarely enough to look each time where the store stands.

        Raises: `StoreRestored` from a store that was restored unsaid.
        """
        async with self.link().connections.transaction(tenant) as connection:
            if not await is_same_database(connection, tenant, await connection.fetchval(DATABASE_IDENTITY)):
                raise restore_not_recorded()
            yield connection

    async def note_epoch(self, tenant: str) -> None:
        """Note at once where the new epoch began, or the next restore of it elsewhere would pass for this one."""
        self.here.discard(tenant)
        await self._look(tenant)

    async def _look(self, tenant: str) -> bool:
        connections = self.link().connections
        if self._place is None:
            async with connections.connection() as connection:
                self._place = await connection.fetchval(DATABASE_IDENTITY)
        place = self._place
        async with connections.transaction(tenant) as connection:
            here = await is_same_database(connection, tenant, place)
        if here and place == self._place:
            if len(self.here) >= MAX_HERE:
                self.here.clear()
            self.here.add(tenant)
        return here

    async def _connect(self) -> Connection:
        """A connection for writing. Refuses to go on elsewhere than before: what was queued is read again first."""
        connection, place = await connect_postgres(self._url), None
        try:
            place = await connection.fetchval(DATABASE_IDENTITY)
        finally:
            if place is None or self._place not in (None, place):
                terminate(connection)
        if self._place not in (None, place):
            self._place = place
            self.here.clear()
            raise Unavailable("store", "another server or database answers than before")
        return connection

    async def aclose(self) -> None:
        """Finish what this event loop has queued, then let go of the database everywhere."""
        with self._gate:
            self._closed = True
        link = self._links.get(asyncio.get_running_loop())
        try:
            if link is not None:
                await link.writer.close()
                await link.connections.close()
        finally:
            # Also for a caller that gives up waiting: what is still under way then is let go of with the rest.
            self.close()

    def close(self) -> None:
        """Let go of the database at once. What is under way is answered with `Unavailable`: not known, read again."""
        with self._gate:
            self._closed = True
            for link in self._links.values():
                link.writer.abandon()
                link.connections.abandon()

    def _forget_ended(self) -> None:
        for loop in [loop for loop in self._links if loop.is_closed()]:
            link = self._links.pop(loop)
            link.writer.abandon()
            link.connections.abandon()


class PostgresStore:
    """One tenant's journal and documents (the `Store` port)."""

    def __init__(self, tenant_id: str, stores: PostgresStores) -> None:
        self._tenant, self._stores = named_tenant(tenant_id), stores

    async def commit(self, batch: Batch) -> None:
        refuse_misfit(self._tenant, batch)
        _refuse_unstorable(self._tenant, batch)
        _refuse_broken_chain(self._tenant, batch)
        if self._tenant not in self._stores.here:
            await self._stores.must_be_here(self._tenant, batch)
        await self._stores.link().writer.commit(self._tenant, batch)
        if begins_epoch(batch):
            await self._stores.note_epoch(self._tenant)

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        found: list[Entry] = []
        while is_text(stream) and (limit is None or len(found) < limit):
            wanted = POSTGRES_PAGE_ENTRIES if limit is None else min(POSTGRES_PAGE_ENTRIES, limit - len(found))
            page = await self._fetch(_READ, stream, _whole(after), wanted)
            found.extend(Entry(*row) for row in page)
            if len(page) < wanted:
                break
            after = found[-1].seq
        return found

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        if not is_text(collection, key or "", prefix, after):
            return []
        if key is not None:
            rows = await self._fetch(_ONE, collection, key)
        else:
            rows = await self._fetch(_SCAN, collection, prefix, after, after_prefix(prefix), _whole(max(limit, 0)))
        return [Document(*row) for row in rows]

    async def find(self, places: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Document]:
        known = [place for place in places if is_text(*place)]
        rows = await self._fetch(_FIND, [collection for collection, _ in known], [key for _, key in known])
        return {(row[0], row[1]): Document(*row) for row in rows}

    async def signed_heads(self, stream: str) -> Sequence[SignedHead]:
        """(seq, hash, kid, signature) of every signed head of a stream, in order."""
        if not is_text(stream):
            return []
        return [tuple(row) for row in await self._fetch(_SIGNATURES, stream)]

    async def waiting(self, *, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str]]:
        newest = after - 1 if after else MAX_SQL_INTEGER
        return [tuple(row) for row in await self._fetch(_WAITING, _whole(newest), _whole(max(limit, 0)))]

    async def _fetch(self, statement: str, *arguments: Any) -> Sequence[Any]:
        async with self._stores.link().connections.connection() as connection:
            rows: Sequence[Any] = await connection.fetch(statement, self._tenant, *arguments)
        return rows


def _whole(number: int) -> int:
    """A number as near to `number` as PostgreSQL can hold."""
    return max(-MAX_SQL_INTEGER, min(number, MAX_SQL_INTEGER))


def _refuse_unstorable(tenant: str, batch: Batch) -> None:
    """Refuses texts that PostgreSQL cannot hold and more writes than it can lock. Raises `InvalidInput`."""
    texts = [tenant, batch.run, *(batch.signature or ())]
    for entry in batch.entries:
        texts += (entry.kind, entry.key, entry.by, entry.body_digest, entry.prev_hash, entry.hash)
    for write in batch.writes:
        texts += (write.collection, write.key)
    for _, draft in batch.shared:
        texts += (draft.kind, draft.key, draft.by)
    if not is_text(*texts):
        raise InvalidInput(Problem("", "not_storable", "a name holds a null character or half a surrogate pair"))
    if len(batch.writes) > MAX_BATCH_WRITES:
        raise InvalidInput(Problem("/writes", "too_many", f"a batch has at most {MAX_BATCH_WRITES} writes", "split it"))


def _refuse_broken_chain(tenant: str, batch: Batch) -> None:
    """What no stored head could make right: entries that do not follow each other. Raises `Conflict`.

    That the first of them follows what is stored is checked by the insert itself.
    """
    for one, two in pairwise(batch.entries):
        if one.seq + 1 != two.seq or one.hash != two.prev_hash:
            raise Conflict(batch.run)
    if batch.entries:
        first = batch.entries[0]
        if first.seq < 1 or (first.seq == 1 and first.prev_hash != genesis(tenant, batch.run)):
            raise Conflict(batch.run)
