"""A pooler in transaction mode, as PgBouncer is one: a client has one of its sessions until its transaction ends.

Its sessions have the settings of the role.
What a session hears while no client has it is lost, as are statements that a client prepared in another session.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from contextos.store.postgres.connections import SESSION_SETTINGS
from tests.postgres import LOGIN, PASSWORD, Database

START = 196608


@dataclass(eq=False)
class Session:
    """A connection to the server, and the client that has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    client: asyncio.StreamWriter | None = None


class TransactionPooler:
    """Pools `size` sessions on `database`."""

    def __init__(self, database: Database, size: int) -> None:
        self._database, self._size = database, size
        self._sessions: list[Session] = []
        self._free: asyncio.Queue[Session] = asyncio.Queue()
        self._greeting = b""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; the URL of the database by way of the pooler."""
        for _ in range(self._size):
            await self._begin_session()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{LOGIN}:{PASSWORD}@127.0.0.1:{port}/{self._database.name}?sslmode=disable"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions:
            session.writer.transport.abort()
        await asyncio.sleep(0)  # aborted transports close their sockets now

    async def _begin_session(self) -> None:
        host = parse_qs(urlsplit(self._database.app).query)["host"][0]
        session = Session(*await asyncio.open_unix_connection(f"{host}/.s.PGSQL.5432"))
        self._sessions.append(session)
        session.writer.write(_start_message(user=LOGIN, database=self._database.name, **SESSION_SETTINGS))
        greeting = []
        while (message := await _message(session.reader))[:1] != b"Z":
            assert message[:1] != b"E", message
            greeting.append(message)
        self._greeting = b"".join([*greeting, message])
        self._tasks.add(asyncio.ensure_future(self._answer(session)))
        self._free.put_nowait(session)

    async def _answer(self, session: Session) -> None:
        while True:
            message = await _message(session.reader)
            if session.client is None:
                continue
            session.client.write(message)
            if message[:1] == b"Z" and message[-1:] == b"I":
                session.client = None
                self._free.put_nowait(session)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session: Session | None = None
        try:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            await reader.readexactly(length - 4)
            writer.write(self._greeting)
            while (message := await _message(reader))[:1] != b"X":
                if session is None or session.client is not writer:
                    session = await self._free.get()
                    session.client = writer
                session.writer.write(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


def _start_message(**options: str) -> bytes:
    body = struct.pack("!I", START) + b"".join(f"{name}\0{text}\0".encode() for name, text in options.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body
