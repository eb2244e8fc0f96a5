"""Opens, checks and reads the SQLite file of a store, and translates the errors of SQLite."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Final

from contextos.errors import ContextOSError, Integrity, InvalidSettings, Problem, Unavailable

SQLITE_SCHEMA_VERSION: Final = 7
APPLICATION_ID: Final = 0x63747838
PAGE_BYTES: Final = 1024
"""The size of a page in bytes. A row of several such pages fills them; a third of larger pages would be empty."""
BUSY_TIMEOUT_MS: Final = 10_000
MAX_IDLE_READERS: Final = 8
_POLL_S: Final = 0.001
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_NO_UTF8: Final = "Could not decode to UTF-8"

Connect = Callable[[Path], sqlite3.Connection]


def connect_sqlite(path: Path) -> sqlite3.Connection:
    """Open a connection that starts no transaction by itself. Any thread can use it, one at a time."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=0)


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write, as `connect_sqlite` otherwise.

    On media that cannot be written SQLite cannot make the files beside a write-ahead log. There nobody else writes
    either, so a file without a log is read as one that does not change.
    """
    uri = path.absolute().as_uri()
    connection = _connect_uri(f"{uri}?mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as fault:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if _result_code(fault) != sqlite3.SQLITE_CANTOPEN or not path.exists() or (log.exists() and log.stat().st_size):
            raise
        return _connect_uri(f"{uri}?mode=ro&immutable=1")
    return connection


def connect_memory(path: Path) -> sqlite3.Connection:
    """Open a connection to the database of this name in the memory of this process. The name begins with `/`. The
    database exists as long as a connection to it is open.
    """
    return _connect_uri(f"file:{path.as_posix()}?vfs=memdb")


def memory_database(path: Path) -> sqlite3.Connection:
    """Make a database of this name with the tables of a store, and return the connection that keeps it alive."""
    connection = connect_memory(path)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.executescript(_read_sql("schema.sql"))
    return connection


def _connect_uri(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=0
    )


def sqlite_error(fault: sqlite3.Error, stream: str = "") -> ContextOSError:
    """Translate an error of SQLite: `Integrity` for a damaged file, and for a row whose text is not UTF-8; otherwise
    `Unavailable`. `stream` is the stream that was read, if one was.
    """
    if _result_code(fault) in _DAMAGED or str(fault).startswith(_NO_UTF8):
        place = f"`{stream[:64]}` in the store" if stream else "the store"
        detail = str(fault).partition(" with text ")[0]
        return Integrity(f"{place} is damaged ({detail}); stop, keep the file and restore a backup")
    return Unavailable("store", str(fault) or type(fault).__name__)


def begin_immediate(connection: sqlite3.Connection, *, timeout_ms: int) -> None:
    """Take the write lock. Polls, because SQLite's own back-off starves a process while another one is busy."""
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as fault:
            if _result_code(fault) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)


def check_file(path: Path, connector: Connect) -> None:
    """Check that the file is a store of this schema, and change nothing.

    Raises: `InvalidSettings` if it is missing, is not a store, or has another schema; `Unavailable` while another
    process has locked it.
    """
    if not path.is_file():
        raise _unusable(path, "it does not exist yet; make it with `contextos apply`")
    try:
        connection = connector(path)
        try:
            version = _checked_version(path, connection)
        finally:
            connection.close()
    except sqlite3.Error as fault:
        if _result_code(fault) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise sqlite_error(fault) from fault
        remedy = "check that the file is a store, that it can be read, and that the disk has room"
        raise _unusable(path, f"{fault}; {remedy}") from fault
    if not version:
        raise _unusable(path, "it is empty; make it with `contextos apply`")


def open_file(path: Path, connector: Connect) -> None:
    """Create the file and its schema, or check the existing ones.

    Raises: `InvalidSettings` if the directory is missing or not writable, the file is not a store, or its schema is
    newer; `Unavailable` while another process has locked the file.
    """
    if not path.parent.is_dir():
        raise _unusable(path, f"the directory `{path.parent}` does not exist; create it")
    # SQLite gives the files beside this one the same mode.
    with suppress(FileExistsError, OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        connection = connector(path)
        try:
            _prepare_file(path, connection)
        finally:
            connection.close()
    except sqlite3.Error as fault:
        if _result_code(fault) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise sqlite_error(fault) from fault
        remedy = "check that the file is a store, that file and directory are writable, and that the disk has room"
        raise _unusable(path, f"{fault}; {remedy}") from fault


def writer_connection(path: Path, connector: Connect) -> sqlite3.Connection:
    """Open the writer's connection. Each commit is synced to disk, and erased bytes are overwritten."""
    connection = connector(path)
    # A pragma that reads the file can meet the last other process closing it, so SQLite waits for that process here.
    # Later statements run after `begin_immediate`, which does its own waiting.
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
        "trusted_schema = OFF",
        "busy_timeout = 0",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def reader_connection(path: Path, connector: Connect) -> sqlite3.Connection:
    """Open a read-only connection."""
    connection = connector(path)
    for pragma in (f"busy_timeout = {BUSY_TIMEOUT_MS}", "query_only = ON", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


class Readers:
    """A pool of read-only connections, one for each concurrent reader. Reads run on the caller's thread.

    A point read takes about 20 µs, which is less than a switch to another thread takes.
    """

    def __init__(self, path: Path, connector: Connect) -> None:
        self._path, self._connector = path, connector
        self.idle: deque[LentReader] = deque()
        self.closed = False

    def connection(self, stream: str = "") -> LentReader:
        """Lend a connection for one read, of one stream if it is named. Errors of SQLite inside the block become
        `Unavailable` or `Integrity`.
        """
        if self.closed:
            raise Unavailable("store", "it is closed")
        try:
            reader = self.idle.pop()
        except IndexError:
            reader = self._open_reader(stream)
        reader.stream = stream
        return reader

    def close(self) -> None:
        self.closed = True
        while self.idle:
            self.idle.pop().lent.close()

    def _open_reader(self, stream: str) -> LentReader:
        try:
            return LentReader(self, reader_connection(self._path, self._connector))
        except sqlite3.Error as fault:
            raise sqlite_error(fault, stream) from fault


class LentReader:
    """A read-only connection of a pool. Its `with` block is one read, of the stream `stream` if it is named."""

    def __init__(self, pool: Readers, lent: sqlite3.Connection) -> None:
        self._pool, self.lent, self.stream = pool, lent, ""

    def __enter__(self) -> sqlite3.Connection:
        return self.lent

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        if fault is not None:
            # The connection can be inside a transaction, whose old snapshot no later reader must see.
            self.lent.close()
            if isinstance(fault, sqlite3.Error):
                raise sqlite_error(fault, self.stream) from fault
            return
        idle = self._pool.idle
        if self._pool.closed or len(idle) >= MAX_IDLE_READERS:
            self.lent.close()
        else:
            idle.append(self)


def _checked_version(path: Path, connection: sqlite3.Connection) -> int:
    """Return the version of the file's schema; 0 for an empty file. Refuses other databases and other schemas."""
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("BEGIN")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.execute("COMMIT")
    if tables and application != APPLICATION_ID:
        raise _unusable(path, "it is a database of another application; choose another path")
    if version > SQLITE_SCHEMA_VERSION:
        raise _unusable(path, f"its schema {version} is newer than {SQLITE_SCHEMA_VERSION}; run a newer contextos")
    if tables and version < SQLITE_SCHEMA_VERSION:
        remedy = "keep it for the contextos that wrote it, and choose a new path"
        detail = f"its schema {version} is older than {SQLITE_SCHEMA_VERSION}; {remedy}"
        raise _unusable(path, detail)
    return int(version)


def _prepare_file(path: Path, connection: sqlite3.Connection) -> None:
    version = _checked_version(path, connection)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    _switch_to_wal(path, connection)
    if not version:
        connection.executescript(_read_sql("schema.sql"))
    # Take the lock once, so that a file that cannot be written is refused now and not at the first run.
    begin_immediate(connection, timeout_ms=BUSY_TIMEOUT_MS)
    connection.execute("ROLLBACK")


def _read_sql(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _switch_to_wal(path: Path, connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as fault:
            # Another process is switching the mode, and SQLite does not wait for it.
            if _result_code(fault) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)
    if mode != "wal":
        raise _unusable(path, "its file system has no write-ahead log; choose a local disk")


def _unusable(path: Path, detail: str) -> InvalidSettings:
    return InvalidSettings(Problem("/store", "unusable_store", f"the store `{path}` cannot be used: {detail}"))


def _result_code(fault: sqlite3.Error) -> int:
    """Return the primary result code; 0 for an error that Python's own layer raised."""
    return int(getattr(fault, "sqlite_errorcode", 0)) & 0xFF
