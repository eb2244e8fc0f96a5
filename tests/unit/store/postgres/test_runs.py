"""Runs are read from PostgreSQL with everything about them as of one moment."""

from __future__ import annotations

from contextos.store.postgres.stores import PostgresStores
from tests.postgres import Server, awaited
from tests.suites.store_suite import read_while_it_is_written


def test_a_run_is_read_as_of_one_moment_while_others_write_it(postgres: Server) -> None:
    database = postgres.database()

    async def history() -> None:
        stores = PostgresStores(database.app)
        await read_while_it_is_written(stores.tenant("acme"), "acme")
        await stores.aclose()

    awaited(history())
    database.drop()
