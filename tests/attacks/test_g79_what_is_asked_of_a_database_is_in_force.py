"""G79: a pooler that drops the settings of a connection, as PgBouncer does with `ignore_startup_parameters`, is refused
with that reason; where the role has them, commits are durable and reads are reads.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from contextos.contracts.journal import Batch
from contextos.contracts.ports.claims import ClaimLimits
from contextos.errors import ContextOSError, InvalidSettings, Unavailable
from contextos.store.postgres.claims import PostgresClaims
from contextos.store.postgres.schema import migrate_schema
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.clock import SystemClock
from tests.postgres import LOGIN, PASSWORD, Database
from tests.suites.store_suite import entries_after

PASSED_ON = (b"user", b"database", b"client_encoding", b"application_name")
"""What PgBouncer passes on of a startup message."""


class DroppingPooler:
    """One session of the server for each client, and none of its other settings."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; the URL of the database by way of the pooler."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{LOGIN}:{PASSWORD}@127.0.0.1:{port}/{self._database.name}?sslmode=disable"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        host = parse_qs(urlsplit(self._database.app).query)["host"][0]
        server, to_server = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.5432")
        try:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            sent = await reader.readexactly(length - 4)
            words = sent[4:].split(b"\0")
            kept = [(name, value) for name, value in zip(words[::2], words[1::2], strict=False) if name in PASSED_ON]
            body = sent[:4] + b"".join(name + b"\0" + value + b"\0" for name, value in kept) + b"\0"
            to_server.write(struct.pack("!I", len(body) + 4) + body)
            await asyncio.gather(_relay(reader, to_server), _relay(server, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # one of both has gone
        finally:
            for end in (writer, to_server):
                end.transport.abort()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    raise ConnectionResetError


def one(run: str) -> Batch:
    """A commit of one entry."""
    return Batch(run, entries_after("acme", run, [], 1))


def through(database: Database, use: Callable[[str], Awaitable[None]]) -> None:
    """Use a pooler over a database whose default loses commits."""
    database.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = off")

    async def go() -> None:
        pooler = DroppingPooler(database)
        try:
            await use(await pooler.start())
        finally:
            await pooler.stop()

    asyncio.run(go())


def do_what_is_said(database: Database) -> None:
    """Set for the role what the refusal names."""

    async def use(url: str) -> None:
        with pytest.raises(InvalidSettings) as refused:
            await PostgresStores.open(url)
        statements = refused.value.problems[0].detail.partition("connection: ")[2].split("; ")
        assert len(statements) >= 5
        for statement in statements:
            await database.fetch(f"ALTER ROLE {LOGIN} IN DATABASE {database.name} {statement}")

    through(database, use)


def test_a_store_without_its_settings_is_not_opened(database: Database) -> None:
    async def use(url: str) -> None:
        for open_store in (PostgresStores.open(url), PostgresStores.open(url, read_only=True), migrate_schema(url)):
            with pytest.raises(InvalidSettings) as refused:
                await open_store
            said = str(refused.value)
            for name in ("synchronous_commit = 'on'", "search_path", "statement_timeout", "ALTER ROLE"):
                assert name in said
            assert PASSWORD not in said

    through(database, use)


def test_nor_used_where_they_are_lost_later(database: Database) -> None:
    async def use(url: str) -> None:
        stores = PostgresStores(url)
        with pytest.raises(Unavailable, match="drops settings"):
            await stores.tenant("acme").commit(one("run_a"))
        with pytest.raises(Unavailable, match="drops settings"):
            await stores.tenant("acme").read("run_a")
        claims = PostgresClaims(url, "first", SystemClock(), ClaimLimits())
        with pytest.raises(Unavailable, match="drops settings"):
            await claims.exchange({}, [], free=5)
        await stores.aclose()

    through(database, use)
    assert database.execute("SELECT count(*) FROM contextos.segments")[0][0] == 0


def test_where_the_role_has_them_commits_are_durable_and_reads_are_reads(database: Database) -> None:
    do_what_is_said(database)

    async def use(url: str) -> None:
        stores = await PostgresStores.open(url)
        await stores.tenant("acme").commit(one("run_a"))
        async with stores.for_loop().connections.transaction("acme") as connection:
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
        await stores.aclose()
        reading = await PostgresStores.open(url, read_only=True)
        assert len(await reading.tenant("acme").read("run_a")) == 1
        with pytest.raises(ContextOSError):
            await reading.tenant("acme").commit(one("run_b"))
        for lent in (reading.for_loop().connections.connection(), reading.for_loop().connections.transaction("acme")):
            with pytest.raises(Unavailable, match="read-only transaction"):
                async with lent as connection:
                    await connection.execute("DELETE FROM contextos.workers")
        await reading.aclose()

    through(database, use)
