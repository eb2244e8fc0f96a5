"""`PostgresGraph` passes the suite of the port, keeps its rows, and serves hubs from an index."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from contextos.errors import InvalidInput
from contextos.store.postgres import graph
from contextos.store.postgres.stores import PostgresStores
from tests.postgres import Database, Server, awaited
from tests.suites.graph_suite import GraphSuite, GraphWorld, edge


@pytest.fixture(scope="module")
def shared(postgres: Server) -> Iterator[Database]:
    """One database for the suite, whose tests have a tenant each."""
    database = postgres.database()
    yield database
    database.drop()


class TestPostgresGraph(GraphSuite):
    @pytest.fixture
    def world(self, shared: Database) -> Iterator[GraphWorld]:
        stores = PostgresStores(shared.app)
        with asyncio.Runner() as runner:
            yield GraphWorld(stores.graph, lambda coroutine: runner.run(_awaited(coroutine)))
            runner.run(stores.aclose())


async def _awaited(coroutine):
    return await coroutine


@pytest.fixture
def filled(database: Database) -> Database:
    async def fill() -> None:
        stores = PostgresStores(database.app)
        graph = stores.graph("acme")
        await graph.put([{"ceid": "a", "type": "t", "properties": {}}], [edge("a", "b", "e1"), edge("a", "c", "e2")])
        await graph.put([], [{"retracts": "e1", "evidence_ref": "artifact:a#2"}])
        with pytest.raises(InvalidInput):
            stores.graph("")
        await stores.aclose()

    asyncio.run(fill())
    return database


def rows(database: Database) -> list[list[tuple[object, ...]]]:
    return [
        [tuple(row) for row in database.execute(f"SELECT * FROM contextos.{table} ORDER BY 1, 2, 3")]
        for table in ("edges", "nodes")
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM contextos.edges",
        "DELETE FROM contextos.nodes",
        "TRUNCATE contextos.edges",
        "TRUNCATE contextos.nodes",
        "UPDATE contextos.nodes SET type = 'u'",
        "UPDATE contextos.edges SET valid_to = NULL, withdrawn_ref = NULL WHERE edge_id = 'e1'",
        "UPDATE contextos.edges SET valid_to = 9 WHERE edge_id = 'e1'",
        "UPDATE contextos.edges SET valid_to = 3 WHERE edge_id = 'e2'",
        "UPDATE contextos.edges SET valid_to = 1, withdrawn_ref = 'r' WHERE edge_id = 'e2'",
        "UPDATE contextos.edges SET valid_to = 3, withdrawn_ref = '' WHERE edge_id = 'e2'",
        "UPDATE contextos.edges SET valid_to = 3, withdrawn_ref = 'r', dst = 'z' WHERE edge_id = 'e2'",
        "UPDATE contextos.edges SET valid_to = 3, withdrawn_ref = 'r', valid_from = 0 WHERE edge_id = 'e2'",
        "UPDATE contextos.edges SET evidence_ref = 'artifact:b#1' WHERE edge_id = 'e2'",
        (
            "INSERT INTO contextos.edges VALUES ('acme', 'e2', 'a', 'knows', 'z', 'artifact:a#1', '', 1, NULL, NULL)"
            " ON CONFLICT (tenant, edge_id) DO UPDATE SET dst = excluded.dst"
        ),
        "INSERT INTO contextos.edges VALUES ('acme', 'e3', 'a', 'knows', 'z', '', '', 1, NULL, NULL)",
        "INSERT INTO contextos.nodes SELECT tenant, ceid, commit_no, 'u', body FROM contextos.nodes",
    ],
)
def test_the_database_itself_refuses_to_change_the_history_of_a_graph_even_for_its_owner(
    filled: Database, statement: str
) -> None:
    before = rows(filled)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        filled.execute(statement)
    assert rows(filled) == before


def test_the_evidence_for_a_withdrawal_is_kept(filled: Database) -> None:
    (row,) = filled.execute("SELECT valid_to, withdrawn_ref FROM contextos.edges WHERE edge_id = 'e1'")
    assert tuple(row) == (2, "artifact:a#2")


def test_a_hop_reads_each_end_from_its_index_and_never_all_edges(filled: Database) -> None:
    async def read() -> tuple[int, int, int]:
        stores = PostgresStores(filled.app)
        await stores.graph("hub").put([], [edge("hub", f"n{number}", f"e{number:03}") for number in range(400)])
        await stores.aclose()
        connection = await asyncpg.connect(filled.app)
        async with connection.transaction():
            # A small table is read whole unless that is made dear; what matters is that an index can serve.
            await connection.execute("SET LOCAL enable_seqscan = off")
            found = await connection.fetch(graph._HOP, "hub", 1, 5, ["hub", "n7"])
            assert [row["edge_id"] for row in found] == ["e000", "e001", "e002", "e003", "e004", "e007"]
            counts = await connection.fetchrow(
                "SELECT seq_scan, idx_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'edges'"
            )
        await connection.close()
        return tuple(counts)

    whole, by_index, edges = asyncio.run(read())
    assert (whole, by_index) == (0, 4), "each end of each node"
    assert edges <= 10


def test_commit_numbers_of_concurrent_puts_have_no_gap(database: Database) -> None:
    async def race() -> list[int]:
        stores = PostgresStores(database.app)
        graph = stores.graph("acme")
        numbers = await asyncio.gather(*(graph.put([], [edge("a", f"n{number}")]) for number in range(40)))
        await stores.aclose()
        return numbers

    assert sorted(asyncio.run(race())) == list(range(1, 41))


def test_a_name_that_postgres_cannot_hold_is_refused_and_the_graph_goes_on(database: Database) -> None:
    async def history() -> int:
        stores = PostgresStores(database.app)
        graph = stores.graph("acme")
        with pytest.raises(InvalidInput):
            await graph.put([], [edge("a\0b", "c")])
        assert await graph.neighbourhood(["a\0b"], at=9, hops=1, fan_out=9, limit=9) == []
        commit = await graph.put([], [edge("a", "c")])
        await stores.aclose()
        return commit

    assert awaited(history()) == 1
