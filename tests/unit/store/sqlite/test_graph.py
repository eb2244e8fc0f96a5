"""The graph in SQLite passes the suite of the port, refuses changes of its rows and serves hubs from an index."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contextos.errors import InvalidInput
from contextos.store.sqlite import graph
from contextos.store.sqlite.stores import SqliteStores
from tests.suites.graph_suite import GraphSuite, GraphWorld, edge


class TestSqliteGraph(GraphSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[GraphWorld]:
        stores = SqliteStores(tmp_path / "store.db")
        with asyncio.Runner() as runner:
            yield GraphWorld(stores.graph, lambda coroutine: runner.run(_awaited(coroutine)))
        stores.close()


async def _awaited(coroutine):
    return await coroutine


@pytest.fixture
def file(tmp_path: Path) -> Path:
    stores = SqliteStores(tmp_path / "store.db")

    async def fill() -> None:
        graph = stores.graph("acme")
        await graph.put([{"ceid": "a", "type": "t", "properties": {}}], [edge("a", "b", "e1"), edge("a", "c", "e2")])
        await graph.put([], [{"retracts": "e1", "evidence_ref": "artifact:a#2"}])
        with pytest.raises(InvalidInput):
            stores.graph("")

    asyncio.run(fill())
    stores.close()
    return tmp_path / "store.db"


@pytest.mark.requirement("I-SNAPSHOT", "I-EDGE-EVIDENCE")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM edges",
        "DELETE FROM nodes",
        "UPDATE nodes SET type = 'u'",
        "UPDATE edges SET valid_to = NULL, withdrawn_ref = NULL WHERE edge_id = 'e1'",
        "UPDATE edges SET valid_to = 9 WHERE edge_id = 'e1'",
        "UPDATE edges SET valid_to = 3 WHERE edge_id = 'e2'",
        "UPDATE edges SET valid_to = 1, withdrawn_ref = 'r' WHERE edge_id = 'e2'",
        "UPDATE edges SET valid_to = 3, withdrawn_ref = 'r', dst = 'z' WHERE edge_id = 'e2'",
        "UPDATE edges SET valid_to = 3, withdrawn_ref = 'r', valid_from = 0 WHERE edge_id = 'e2'",
        "UPDATE edges SET evidence_ref = 'artifact:b#1' WHERE edge_id = 'e2'",
        "INSERT OR REPLACE INTO edges VALUES ('acme', 'e2', 'a', 'knows', 'z', 'artifact:a#1', x'00', 1, NULL, NULL)",
        "INSERT INTO edges VALUES ('acme', 'e3', 'a', 'knows', 'z', '', x'00', 1, NULL, NULL)",
        "INSERT OR REPLACE INTO nodes SELECT tenant, ceid, commit_no, 'u', body FROM nodes",
    ],
)
def test_the_file_itself_refuses_to_change_the_history_of_a_graph(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        before = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("edges", "nodes")]
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(statement)
        assert [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("edges", "nodes")] == before


@pytest.mark.requirement("I-EDGE-EVIDENCE")
def test_the_evidence_for_a_withdrawal_is_kept(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        row = connection.execute("SELECT valid_to, withdrawn_ref FROM edges WHERE edge_id = 'e1'").fetchone()
    assert row == (2, "artifact:a#2")


def test_a_hop_reads_each_end_from_its_index_and_never_all_edges(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {graph._HOP}", ("acme", 1, 5, '["a"]')).fetchall()
    steps = " / ".join(row[3] for row in plan)
    assert "SEARCH edges USING COVERING INDEX edges_out (tenant=? AND src=?)" in steps
    assert "SEARCH edges USING COVERING INDEX edges_in (tenant=? AND dst=?)" in steps
    assert "SEARCH edges USING PRIMARY KEY (tenant=? AND edge_id=?)" in steps
    assert "SCAN edges" not in steps


def test_commit_numbers_of_concurrent_puts_have_no_gap(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "store.db")

    async def race() -> list[int]:
        graph = stores.graph("acme")
        return await asyncio.gather(*(graph.put([], [edge("a", f"n{number}")]) for number in range(40)))

    assert sorted(asyncio.run(race())) == list(range(1, 41))
    stores.close()
