"""Storage that fails from its Nth operation on: an SQLite file by its driver, PostgreSQL by real causes.

Between client and server stands a relay that counts what the client sends; at the Nth it cuts the connection, before
the server has heard it or after the server has done it, or lets something happen to the server.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from tests.postgres import Database

FULL = """
CREATE FUNCTION public.extend() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  IF (SELECT is_full FROM public.disk) THEN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
  END IF;
  RETURN true;
END $$"""
FILLS = "ALTER TABLE contextos.documents ADD CONSTRAINT extends CHECK (public.extend())"
WRITES = ("BEGIN IMMEDIATE", "INSERT", "UPDATE", "COMMIT")


class FaultySqlite:
    """Faults of a file: `io` and `lost reply` strike once, the others from the Nth operation on that they concern."""

    KINDS = {
        "io": "disk I/O error",
        "lost reply": "disk I/O error",
        "full": "database or disk is full",
        "read-only": "attempt to write a readonly database",
        "gone": "unable to open database file",
    }

    def __init__(self, kind: str) -> None:
        self._kind, self._countdown, self._armed = kind, 0, False
        self.struck = 0

    async def arm(self, nth: int) -> None:
        self._countdown, self._armed, self.struck = nth, True, 0

    async def disarm(self) -> None:
        self._armed = False

    def connector(self, path: Path) -> sqlite3.Connection:
        faults = self

        class Faulty(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                return faults._around(sql, lambda: super(Faulty, self).execute(sql, *values))

            def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
                return faults._around(sql, lambda: super(Faulty, self).executemany(sql, *values))

        opened: sqlite3.Connection = self._around(
            "connect",
            lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0, factory=Faulty),
        )
        return opened

    def _around(self, sql: str, operation: Callable[[], Any]) -> Any:
        concerned = sql.startswith(WRITES) if self._kind in ("full", "read-only") else True
        if not (self._armed and concerned):
            return operation()
        self._countdown -= 1
        if self._countdown > 0 or (self._countdown < 0 and self._kind in ("io", "lost reply")):
            return operation()
        self.struck += 1
        if self._kind == "lost reply":
            operation()
        raise sqlite3.OperationalError(self.KINDS[self._kind])


class FaultyPostgres:
    """A relay to the server of `database`, and what happens at the Nth message that comes through it.

    `heard` counts the messages of clients, `relays` the connections.
    """

    KINDS = ("cut before", "cut after", "terminated", "read-only", "full")

    def __init__(self, database: Database, kind: str) -> None:
        self._database, self._kind = database, kind
        self._countdown, self._armed = 0, False
        self.relays: set[asyncio.Task[None]] = set()
        self.struck = 0
        self.heard = 0
        parts = urlsplit(database.app)
        host = parse_qs(parts.query).get("host", [""])[0]
        self._socket = f"{host}/.s.PGSQL.5432" if host.startswith("/") else ""
        self._host, self._port, self._parts = parts.hostname or "localhost", parts.port or 5432, parts

    async def start(self) -> str:
        """Listen; the URL of the database by way of the relay."""
        if self._kind == "full":
            await self._prepare_disk()
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        login = self._parts.netloc.rpartition("@")[0]
        return urlunsplit(self._parts._replace(netloc=f"{login}@127.0.0.1:{port}", query=""))

    async def stop(self) -> None:
        self._server.close()
        for relay in self.relays:
            relay.cancel()
        await asyncio.gather(*self.relays, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports close their sockets now

    async def arm(self, nth: int) -> None:
        self._countdown, self._armed, self.struck = nth, True, 0

    async def disarm(self) -> None:
        self._armed = False
        if self.struck and self._kind == "read-only":
            elsewhere = self._database.server.named("postgres")
            reset = f"ALTER DATABASE {self._database.name} RESET default_transaction_read_only"
            await self._database.fetch(reset, elsewhere)
            await self._terminate()
        if self.struck and self._kind == "full":
            await self._database.fetch("UPDATE public.disk SET is_full = false")

    async def _prepare_disk(self) -> None:
        """What the owner of a database can do to be out of space: the server's own error at every append."""
        for statement in (
            "CREATE TABLE public.disk (is_full boolean)",
            "INSERT INTO public.disk VALUES (false)",
            "GRANT SELECT ON public.disk TO PUBLIC",
            FULL,
            FILLS,
        ):
            await self._database.fetch(statement)

    async def _terminate(self) -> None:
        await self._database.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{self._database.name}' AND application_name = 'contextos'"
        )

    async def _strike(self) -> None:
        if self._kind == "read-only":
            await self._database.fetch(f"ALTER DATABASE {self._database.name} SET default_transaction_read_only = on")
        if self._kind in ("read-only", "terminated"):
            await self._terminate()
        if self._kind == "full":
            await self._database.fetch("UPDATE public.disk SET is_full = true")

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.relays.add(task)
        ends = [writer]
        back: asyncio.Future[None] | None = None
        try:
            there = (
                asyncio.open_unix_connection(self._socket)
                if self._socket
                else asyncio.open_connection(self._host, self._port)
            )
            server_reader, server_writer = await there
            ends.append(server_writer)
            cut = asyncio.Event()
            back = asyncio.ensure_future(_pass_on(server_reader, writer, lambda data: _unless(cut, data)))
            await _pass_on(reader, server_writer, lambda data: self._heard(data, server_writer, cut, server_reader))
        except asyncio.CancelledError:
            # It ends here; asyncio's own streams cannot say of a cancelled task what came of it.
            pass
        finally:
            if back is not None:
                back.cancel()
            for one in ends:
                one.transport.abort()
            self.relays.discard(task)

    async def _heard(
        self, data: bytes, server: asyncio.StreamWriter, cut: asyncio.Event, answers: asyncio.StreamReader
    ) -> bytes | None:
        """What the server gets of one message of the client; None cuts the connection."""
        self.heard += 1
        if self._kind == "deaf" and b"LISTEN" in data:
            # As behind a pooler: another session listens than the one that this client keeps.
            return data.replace(b"contextos_due", b"contextos_not")
        if not self._armed:
            return data
        self._countdown -= 1
        if self._countdown < 0 and self._kind == "silent":
            return b""  # as a network that drops what is sent
        if self._countdown != 0:
            return data
        self.struck += 1
        if self._kind == "cut before":
            return None
        if self._kind == "cut after":
            # The server does it, and nobody hears of it.
            cut.set()
            server.write(data)
            await server.drain()
            await asyncio.sleep(0.05)
            return None
        await self._strike()
        return data


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Callable[[bytes], Awaitable[bytes | None]]
) -> None:
    """Pass on what comes until either side ends or `heard` gives None."""
    try:
        while data := await reader.read(1 << 20):
            passed = await heard(data)
            if passed is None:
                return
            writer.write(passed)
            await writer.drain()
        writer.transport.abort()
    except OSError:
        writer.transport.abort()


async def _unless(cut: asyncio.Event, data: bytes) -> bytes | None:
    return None if cut.is_set() else data
