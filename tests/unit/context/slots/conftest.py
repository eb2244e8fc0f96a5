"""Every store of artifacts, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from contextos.store.postgres.stores import PostgresStores
from contextos.store.sqlite.stores import SqliteStores
from contextos_sim.memory.stores import MemoryStores
from tests.postgres import Database, Server
from tests.slots import CuratedArtifacts, one_loop, run

_tenants = count()


@pytest.fixture(scope="package")
def shared(postgres: Server) -> Iterator[Database]:
    """One database for all; every test is a tenant of its own."""
    made = postgres.database()
    yield made
    made.drop()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CuratedArtifacts]:
    tenant = f"tenant_{next(_tenants)}"
    with one_loop():
        if request.param == "memory":
            yield MemoryStores().artifacts(tenant)
        elif request.param == "sqlite":
            file = SqliteStores(tmp_path / "slots.db")
            yield file.artifacts(tenant)
            file.close()
        else:
            server = PostgresStores(request.getfixturevalue("shared").app)
            yield server.artifacts(tenant)
            run(server.aclose())
