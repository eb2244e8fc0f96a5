"""A database of its own for each test of the durable engine, on the session's PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest

from contextos.engine.durable.queue_connection import migrate_queue_tables
from tests.postgres import Database, Server

_databases = count()


@pytest.fixture(scope="session")
def queue_template(postgres: Server) -> str:
    """A database with the queue's tables: a copy of it takes a tenth of making them."""
    name = f"contextos_test_queue_{os.getpid()}"
    postgres.execute(f"CREATE DATABASE {name}")
    migrate_queue_tables(postgres.named(name), None)
    return name


@pytest.fixture
def queue(postgres: Server, queue_template: str) -> Iterator[Database]:
    """A fresh database with the queue's tables."""
    made = Database(postgres, f"{queue_template}_{next(_databases)}")
    postgres.execute(f"CREATE DATABASE {made.name} TEMPLATE {queue_template}")
    yield made
    made.drop()


@pytest.fixture
def url(queue: Database) -> str:
    return queue.owner
