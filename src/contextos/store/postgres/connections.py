"""Connections to one PostgreSQL database: how they are set up, bounded and lent, and what their faults mean.

A connection belongs to one event loop. What fails on it is never worth guessing about: it is closed and the next one
is fresh, so a store works again as soon as its server does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import asyncpg

from contextos.errors import ContextOSError, Integrity, InvalidInput, Problem, Unavailable

CONNECT_TIMEOUT_S: Final = 5.0
STATEMENT_TIMEOUT_S: Final = 30.0
WAIT_TIMEOUT_S: Final = 10.0
MAX_READERS: Final = 8
MAX_WAITING: Final = 4096
SESSION_SETTINGS: Final = {
    "application_name": "contextos",
    # Whoever may make functions in another schema must not be able to slip one under a name or an operator of ours.
    "search_path": "pg_catalog, pg_temp",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    # So long anybody waits for what another session keeps locked; the writer sets its own.
    "lock_timeout": "2s",
    # A process that is stopped inside a transaction keeps its locks no longer than this.
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
}

Connection = Any
"""asyncpg brings no types."""

FAULTS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError)
"""All that asyncpg raises when something outside failed; a time-out is an `OSError`."""

_DAMAGED: Final = frozenset({"XX001", "XX002"})
_DATA: Final = frozenset({"22", "23", "54"})
_AGAIN: Final = frozenset({"40"})
_LOCKED: Final = "55P03"
SOON_MS: Final = 100


async def connect_postgres(url: str) -> Connection:
    """A connection whose commits are durable when they return. Raises what asyncpg raises."""
    return await asyncpg.connect(
        url, timeout=CONNECT_TIMEOUT_S, command_timeout=STATEMENT_TIMEOUT_S, server_settings=SESSION_SETTINGS
    )


def postgres_error(fault: BaseException) -> ContextOSError:
    """What a fault of asyncpg means to a caller.

    `Integrity` for damaged pages, `InvalidInput` for what PostgreSQL cannot hold, else `Unavailable`.
    """
    state = getattr(fault, "sqlstate", None) or ""
    if state in _DAMAGED:
        return Integrity(f"the store is damaged ({fault}); stop, keep the server's files and restore a backup")
    if state[:2] in _DATA or isinstance(fault, ValueError):
        return InvalidInput(Problem("", "not_storable", f"PostgreSQL refuses it: {first_line(fault)}"))
    if state[:2] in _AGAIN:
        return Unavailable("store", first_line(fault), retry_after_ms=SOON_MS)
    return Unavailable("store", first_line(fault))


def is_callers_own(fault: BaseException) -> bool:
    """Whether a fault comes of one caller's input or of its order with others, and not of server or connection."""
    state = getattr(fault, "sqlstate", None) or ""
    return state[:2] in _DATA | _AGAIN or state == _LOCKED or isinstance(fault, ValueError)


def is_locked(fault: BaseException) -> bool:
    """Whether another session kept something locked for too long."""
    return getattr(fault, "sqlstate", None) == _LOCKED


def may_be_repeated(fault: BaseException) -> bool:
    """Whether the server rolled back for the sake of somebody else (deadlock, serialization)."""
    return (getattr(fault, "sqlstate", None) or "")[:2] in _AGAIN


class Connections:
    """At most `limit` connections of one event loop, lent for one piece of work each.

    Raises `Unavailable` after `wait_timeout_s` without a free one, if more than `MAX_WAITING` wait, and once closed.
    """

    def __init__(self, url: str, *, limit: int = MAX_READERS, wait_timeout_s: float = WAIT_TIMEOUT_S) -> None:
        self._url, self._limit, self._wait_timeout_s = url, limit, wait_timeout_s
        self._idle: deque[Connection] = deque()
        self._lent: set[Connection] = set()
        self._free = asyncio.Semaphore(limit)
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for one piece of work. A fault inside closes it and is raised as its typed error."""
        await self._turn()
        connection, whole = None, False
        try:
            connection = await self._take()
            yield connection
            whole = True
        except ContextOSError:
            whole = True
            raise
        except FAULTS as fault:
            raise postgres_error(fault) from fault
        finally:
            self._give_back(connection, whole=whole)
            self._free.release()

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Connection]:
        """A transaction that sees and writes `tenant` alone; committed on the way out, undone by what is raised."""
        async with self.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('contextos.tenant', $1, true)", tenant)
            yield connection

    async def close(self) -> None:
        """Say goodbye to the server; what is lent out is closed when it comes back."""
        self._closed = True
        while self._idle:
            with suppress(*FAULTS):
                await self._idle.pop().close(timeout=CONNECT_TIMEOUT_S)

    def abandon(self) -> None:
        """Let go of everything at once, also from outside of the event loop or after its end."""
        self._closed = True
        for connection in [*self._idle, *self._lent]:
            terminate(connection)
        self._idle.clear()

    async def _turn(self) -> None:
        if self._waiting >= MAX_WAITING:
            raise Unavailable("store", f"more than {MAX_WAITING} reads are waiting", retry_after_ms=SOON_MS)
        self._waiting += 1
        try:
            # Most find one free at once, and no timer is set for them.
            async with asyncio.timeout(self._wait_timeout_s if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable("store", f"its {self._limit} connections are all in use") from None
        finally:
            self._waiting -= 1
        if self._closed:
            self._free.release()
            raise Unavailable("store", "it is closed")

    async def _take(self) -> Connection:
        connection = None
        while self._idle and connection is None:
            connection = self._idle.pop()
            if connection.is_closed():
                connection = None
        if connection is None:
            connection = await connect_postgres(self._url)
        self._lent.add(connection)
        return connection

    def _give_back(self, connection: Connection | None, *, whole: bool) -> None:
        if connection is None:
            return
        self._lent.discard(connection)
        if whole and not self._closed and not connection.is_closed():
            self._idle.append(connection)
        else:
            terminate(connection)


def terminate(connection: Connection) -> None:
    """Drop a connection without a word; the server undoes what was not committed."""
    # Its loop may be closed already, and then so is the transport.
    with suppress(RuntimeError, *FAULTS):
        connection.terminate()


def is_text(*texts: str) -> bool:
    """Whether PostgreSQL can hold these names; what it cannot hold is not there.

    >>> is_text("run_a", "ä"), is_text("run\\0")
    (True, False)
    """
    joined = "".join(texts)
    return "\0" not in joined and (joined.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in joined))


def named_tenant(tenant_id: str) -> str:
    """The tenant's name. Refuses the empty one and one that is no text. Raises `InvalidInput`."""
    if not tenant_id or not is_text(tenant_id):
        raise InvalidInput(Problem("/tenant_id", "empty", "what is stored belongs to a tenant; name one"))
    return tenant_id


def first_line(fault: BaseException) -> str:
    """The server's words on one line, without the details that quote rows."""
    first = (str(fault).splitlines() or [""])[0].strip().rstrip(".")
    return first or type(fault).__name__
