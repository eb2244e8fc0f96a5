"""Opens connections to one PostgreSQL database, keeps them in a bounded pool, and translates their errors.

A connection belongs to one event loop. After an error it is closed and replaced, because its state is unknown; so a
store works again as soon as its server does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
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
    # A role that can create functions in another schema must not be able to shadow a function or operator we call.
    "search_path": "pg_catalog, pg_temp",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    # Longest wait for a lock of another session. The writer sets its own limit.
    "lock_timeout": "2s",
    # A process that stops inside a transaction keeps its locks for at most this time.
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
}

UNSAFE_TO_LOSE: Final = tuple(name for name in SESSION_SETTINGS if name not in ("application_name", "jit"))
"""The settings without which a store is not used: a pooler can drop them silently."""

Connection = Any
"""An `asyncpg` connection; asyncpg has no type annotations."""

FAULTS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError)
"""The errors that asyncpg raises for a failed server, connection or statement. A timeout is an `OSError`."""

_DAMAGED: Final = frozenset({"XX001", "XX002"})
_DATA_ERRORS: Final = frozenset({"22", "23", "54"})
_RETRYABLE: Final = frozenset({"40"})
_LOCKED: Final = "55P03"
_LOST_STATEMENT: Final = frozenset({"26000", "42P05"})
_DISK_FULL: Final = "53100"
"""The SQLSTATE of a full disk. The other states of class 53 are about one statement, or refuse a connection, which
`due` notices."""
_PROBE: Final = (
    "CREATE TEMPORARY TABLE contextos_room ON COMMIT DROP AS SELECT number FROM generate_series(1, 40000) AS g (number)"
)
"""A statement that writes more than one MiB beside the tables of the database, until its transaction ends."""
SOON_MS: Final = 100
SETTINGS_LOST: Final = "a pooler between drops settings of the connection"
STATEMENTS_LOST: Final = "a pooler between loses the prepared statements of its clients"


def _set_statement(name: str) -> str:
    value = SESSION_SETTINGS[name]
    # A quoted list would be one name.
    return f"SET {name} = {value}" if "," in value else f"SET {name} = '{value}'"


class SettingsLost(asyncpg.InterfaceError):  # type: ignore[misc]  # asyncpg has no types
    """The server has other settings in force for a connection than were asked for."""


async def connect_postgres(url: str) -> Connection:
    """Open a connection, and read its settings back: its commits are durable when they return. Raises `SettingsLost` if
    the server has other settings, and the errors of asyncpg.
    """
    connection = await asyncpg.connect(
        url, timeout=CONNECT_TIMEOUT_S, command_timeout=STATEMENT_TIMEOUT_S, server_settings=SESSION_SETTINGS
    )
    columns = ", ".join(f"pg_catalog.current_setting('{name}') AS {name}" for name in UNSAFE_TO_LOSE)
    lost_settings: list[str] | None = None
    try:
        row = await connection.fetchrow(f"SELECT {columns}")
        lost_settings = [name for name in UNSAFE_TO_LOSE if row[name] != SESSION_SETTINGS[name]]
    finally:
        if lost_settings != []:
            terminate(connection)
    if lost_settings:
        raise SettingsLost(f"{SETTINGS_LOST}: {'; '.join(map(_set_statement, lost_settings))}")
    return connection


def postgres_error(fault: BaseException) -> ContextOSError:
    """Translate an error of asyncpg.

    `Integrity` for damaged pages, `InvalidInput` for values that PostgreSQL cannot store, otherwise `Unavailable`.
    """
    state = getattr(fault, "sqlstate", None) or ""
    if state in _DAMAGED:
        return Integrity(f"the store is damaged ({fault}); stop, keep the server's files and restore a backup")
    if state[:2] in _DATA_ERRORS or isinstance(fault, ValueError):
        return InvalidInput(Problem("", "not_storable", f"PostgreSQL refuses it: {first_line(fault)}"))
    if loses_statements(fault):
        return Unavailable("store", f"{STATEMENTS_LOST}; let it pool sessions")
    if state[:2] in _RETRYABLE:
        return Unavailable("store", first_line(fault), retry_after_ms=SOON_MS)
    if isinstance(fault, ConnectionRefusedError):
        return Unavailable("store", "no server answers at its address")
    if isinstance(fault, ConnectionError | asyncpg.ConnectionDoesNotExistError):
        return Unavailable("store", "its server ended the connection")
    return Unavailable("store", first_line(fault))


def loses_statements(fault: BaseException) -> bool:
    """Return whether the server lacks a statement that this connection prepared, or has another under its name."""
    return getattr(fault, "sqlstate", None) in _LOST_STATEMENT


def is_callers_fault(fault: BaseException) -> bool:
    """Return whether the error is due to one caller's input or a conflict of transactions, not to the server or
    connection.
    """
    state = getattr(fault, "sqlstate", None) or ""
    return state[:2] in _DATA_ERRORS | _RETRYABLE or state == _LOCKED or isinstance(fault, ValueError)


def is_locked(fault: BaseException) -> bool:
    """Return whether another session held a lock for too long."""
    return getattr(fault, "sqlstate", None) == _LOCKED


def is_repeatable(fault: BaseException) -> bool:
    """Return whether the server rolled the transaction back in favour of another (deadlock, serialization), so a
    retry helps.
    """
    return (getattr(fault, "sqlstate", None) or "")[:2] in _RETRYABLE


class DiskRoom:
    """What the last writes of a store showed about the disk of its server. All event loops of the store share it.

    A server whose data disk is full goes on answering reads, and nobody can ask it how much room it has. So only a
    write shows that the disk is full. A server without room for its log does not answer at all.
    """

    def __init__(self) -> None:
        self._fault = ""
        self._cannot_probe = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether a write found the disk full, and nothing has shown since that there is room."""
        return self._fault != ""

    def note_fault(self, fault: BaseException | None) -> None:
        """Take note of the error of a write."""
        if getattr(fault, "sqlstate", None) == _DISK_FULL:
            assert fault is not None
            self._fault = first_line(fault)

    def note_commit(self) -> None:
        """Take note of a commit. It counts only if the role may not probe: a small commit can find room on a page where
        a large one finds none.
        """
        if self._cannot_probe:
            self._fault = ""

    async def probe(self, connection: Connection) -> None:
        """Raise `Unavailable` if the disk is still full. A role that may not make a temporary table cannot probe: then
        only a commit shows that there is room.
        """
        if not self._cannot_probe:
            try:
                async with connection.transaction():
                    await connection.execute(_PROBE)
                self._fault = ""
            except asyncpg.InsufficientPrivilegeError:
                self._cannot_probe = True
            except asyncpg.DiskFullError as fault:
                self.note_fault(fault)
        if self._fault:
            raise Unavailable("store", f"the disk of its server is full: {self._fault}")


class Connections:
    """A pool of at most `limit` connections for one event loop. With `read_only` each connection is lent in a
    transaction in which the server refuses every write.

    Methods raise `Unavailable` if no connection is free within `wait_timeout_s` seconds, if `MAX_WAITING` callers wait
    already, or once the pool is closed.
    """

    def __init__(
        self,
        url: str,
        *,
        limit: int = MAX_READERS,
        wait_timeout_s: float = WAIT_TIMEOUT_S,
        read_only: bool = False,
        room: DiskRoom | None = None,
    ) -> None:
        self._room = room or DiskRoom()
        self._url, self._limit, self._wait_timeout_s = url, limit, wait_timeout_s
        self._read_only = read_only
        self._idle: deque[Connection] = deque()
        self._in_use: set[Connection] = set()
        self._slots = asyncio.Semaphore(limit)
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection. An error of asyncpg inside the block closes it and is raised as its `ContextOSError`."""
        await self._acquire_slot()
        connection, healthy = None, False
        try:
            connection = await self._take_connection()
            async with connection.transaction(readonly=True) if self._read_only else nullcontext():
                yield connection
            healthy = True
        except ContextOSError:
            healthy = True
            raise
        except FAULTS as fault:
            self._room.note_fault(fault)
            raise postgres_error(fault) from fault
        finally:
            self._return_connection(connection, healthy=healthy)
            self._slots.release()

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Connection]:
        """Open a transaction that sees and writes only rows of `tenant`. Commits at the end, rolls back on an error."""
        async with self.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('contextos.tenant', $1, true)", tenant)
            yield connection

    async def require_room(self) -> None:
        """Raise `Unavailable` if a write found the server's disk full, and nothing has shown since that it has room."""
        if self._room.is_in_doubt:
            async with self.connection() as connection:
                await self._room.probe(connection)

    async def close(self) -> None:
        """Close the idle connections; a lent one is closed when it is returned."""
        self._closed = True
        while self._idle:
            with suppress(*FAULTS):
                await self._idle.pop().close(timeout=CONNECT_TIMEOUT_S)

    def abandon(self) -> None:
        """Close every connection at once. Works from outside the event loop and after its end."""
        self._closed = True
        for connection in [*self._idle, *self._in_use]:
            terminate(connection)
        self._idle.clear()

    async def _acquire_slot(self) -> None:
        if self._slots.locked():
            await self._wait_for_slot()
        else:
            await self._slots.acquire()
        if self._closed:
            self._slots.release()
            raise Unavailable("store", "it is closed")

    async def _wait_for_slot(self) -> None:
        if self._waiting >= MAX_WAITING:
            raise Unavailable("store", f"more than {MAX_WAITING} reads are waiting", retry_after_ms=SOON_MS)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable("store", f"its {self._limit} connections are all in use") from None
        finally:
            self._waiting -= 1

    async def _take_connection(self) -> Connection:
        connection = None
        while self._idle and connection is None:
            connection = self._idle.pop()
            if connection.is_closed():
                connection = None
        if connection is None:
            connection = await connect_postgres(self._url)
        self._in_use.add(connection)
        return connection

    def _return_connection(self, connection: Connection | None, *, healthy: bool) -> None:
        if connection is None:
            return
        self._in_use.discard(connection)
        if healthy and not self._closed and not connection.is_closed():
            self._idle.append(connection)
        else:
            terminate(connection)


def terminate(connection: Connection) -> None:
    """Close a connection at once, without a message to the server, which then rolls back its open transaction."""
    # If its loop is closed, so is the transport, and this raises.
    with suppress(RuntimeError, *FAULTS):
        connection.terminate()


def is_text(*texts: str) -> bool:
    r"""Return whether PostgreSQL can store these texts. A lookup of any other text finds nothing.

    >>> is_text("run_a", "ä"), is_text("run\0")
    (True, False)
    """
    joined = "".join(texts)
    return "\0" not in joined and (joined.isascii() or not any("\ud800" <= char <= "\udfff" for char in joined))


def named_tenant(tenant_id: str) -> str:
    """Return `tenant_id`. Raises `InvalidInput` if it is empty or not a text that PostgreSQL can store."""
    if not tenant_id or not is_text(tenant_id):
        raise InvalidInput(Problem("/tenant_id", "empty", "what is stored belongs to a tenant; name one"))
    return tenant_id


def first_line(fault: BaseException) -> str:
    """Return the first line of the server's message, without the details that quote rows."""
    message = (str(fault).splitlines() or [""])[0].strip().rstrip(".")
    return message or ("the server does not answer" if isinstance(fault, TimeoutError) else type(fault).__name__)
