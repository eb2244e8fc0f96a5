"""`PostgresStores` passes the suite of the port, and keeps what PostgreSQL alone must keep."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from contextos.store.postgres import PostgresStores
from tests.postgres import Server
from tests.suites.store_suite import SettableClock, StoreSuite, World


class TestPostgresStores(StoreSuite):
    @pytest.fixture
    def world(self, postgres: Server) -> Iterator[World]:
        database, clock = postgres.database(), SettableClock()
        stores = PostgresStores(database.app, clock=clock)
        with asyncio.Runner() as runner:
            yield World(stores, clock, lambda coroutine: runner.run(_awaited(coroutine)))
            runner.run(stores.aclose())
        database.drop()


async def _awaited(coroutine):
    return await coroutine
