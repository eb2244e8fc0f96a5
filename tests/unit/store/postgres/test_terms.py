"""Terms in PostgreSQL: the suite of stores tests what is found; here, which rows the application's role reaches."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from contextos.contracts.journal import INDEX, Batch, Sought, TermChange
from contextos.store.postgres.connections import connect_postgres
from contextos.store.postgres.stores import PostgresStores
from contextos.store.postgres.terms import postgres_change_terms, postgres_found, postgres_terms
from tests.postgres import Database
from tests.suites.store_suite import draft


def test_no_statement_reaches_the_terms_of_another_tenant(database: Database) -> None:
    async def go() -> None:
        stores = await PostgresStores.open(database.app)
        line = (INDEX, draft(kind="run.indexed", key="run_a"))
        for tenant in ("a", "b"):
            await stores.tenant(tenant).commit(Batch("run_a", shared=(line,), terms=TermChange([1, 2], (), 5)))
        connection = await connect_postgres(database.app)
        async with connection.transaction():
            await connection.execute("SELECT set_config('contextos.tenant', 'a', true)")
            assert await postgres_found(connection, "b", Sought([[1]]), 9) == []
            assert await postgres_terms(connection, "b", 0, 9) == []
            await postgres_change_terms(connection, "b", "run_a", TermChange((), (1, 2), 5))
            await connection.execute("DELETE FROM contextos.run_terms WHERE term = 2")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("INSERT INTO contextos.run_terms VALUES ('b', 7, 1, 5)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("UPDATE contextos.run_terms SET number = 2")
        await connection.close()
        assert await stores.tenant("a").terms(0, 9) == [(1, 1, 5)]
        assert await stores.tenant("b").terms(0, 9) == [(1, 1, 5), (1, 2, 5)]
        await stores.aclose()

    asyncio.run(go())
