"""Public MCP servers of the table of `make mcp-tools` are called for real: drafted, published, pinned, and called
through the gate of a session, reads at once and writes after a person approved exactly that call. With the four of
`test_stock_mcp_servers.py` these are more than ten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.mcp_tools import KEPT_AT_LEAST, SERVERS_AT_LEAST, Server, servers
from contextos.adapters.foreign.drafting import plain_name
from contextos.contracts.ports.gates import Done
from tests.e2e import test_stock_mcp_servers as stock
from tests.e2e.test_stock_mcp_servers import approved, published, session

pytestmark = stock.pytestmark
workspace = stock.workspace


class Called(NamedTuple):
    """A tool, its arguments with `{folder}` for the folder of the server, and what its answer has."""

    tool: str
    args: dict[str, Any]
    answer: str


THOUGHT = {"thought": "Repot it.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
FERN = {"name": "fern", "entityType": "plant", "observations": ["needs a pot"]}
BOOK = "{folder}/plants.xlsx"
EXPECTED: dict[str, tuple[list[Called], list[Called]]] = {
    "@modelcontextprotocol/server-memory": (
        [Called("create_entities", {"entities": [FERN]}, "fern")],
        [Called("read_graph", {}, "needs a pot"), Called("search_nodes", {"query": "pot"}, "fern")],
    ),
    "@modelcontextprotocol/server-sequential-thinking": ([], [Called("sequentialthinking", THOUGHT, "thoughtNumber")]),
    "@modelcontextprotocol/server-everything": (
        [],
        [Called("echo", {"message": "a fern"}, "a fern"), Called("get-sum", {"a": 2, "b": 40}, "42")],
    ),
    "mcp-hello-world": ([], [Called("echo", {"message": "a fern"}, "a fern")]),
    "time-mcp": ([], [Called("days_in_month", {"date": "2024-02-01"}, "29")]),
    "mcp-server-time": (
        [],
        [
            Called(
                "convert_time",
                {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                "21:00:00+09:00",
            )
        ],
    ),
    "mcp-server-calculator": ([], [Called("calculate", {"expression": "6*7"}, "42")]),
    "mcp-server-duckdb": ([Called("query", {"query": "CREATE TABLE plants AS SELECT 'fern' AS name"}, "")], []),
    "excel-mcp-server": (
        [
            Called("create_workbook", {"path": BOOK}, "plants.xlsx"),
            Called("write_range", {"path": BOOK, "sheet": "Sheet1", "at": "A1", "rows": [["fern"]]}, ""),
        ],
        [Called("read_range", {"path": BOOK, "sheet": "Sheet1"}, "fern")],
    ),
    "cli-mcp-server": ([Called("run_command", {"command": "cat plan.txt"}, "Repot the fern.")], []),
}
"""The writes and then the reads of each server."""


@pytest.mark.parametrize("package", EXPECTED)
def test_a_public_server_is_called_through_the_gate(package: str, workspace: Path) -> None:
    folder = workspace / "data"
    (folder / "plan.txt").write_text("Repot the fern.", encoding="utf-8")
    writes, reads = EXPECTED[package]
    [server] = [one for one in servers() if one.package == package]
    connection = server.connection(folder)
    named = "tools"
    adapter = published(workspace, named, [], [one.tool for one in reads], connection=connection)
    with session(adapter, {}) as (app, gate):
        for one in writes:
            done = approved(app, gate, f"{named}.{one.tool}", filled(one.args, folder), call_id=one.tool)
            said(done, one)
        for one in reads:
            said(gate.call(f"{named}.{plain_name(one.tool)}", filled(one.args, folder), call_id=one.tool), one)


def filled(args: dict[str, Any], folder: Path) -> dict[str, Any]:
    filled: dict[str, Any] = json.loads(json.dumps(args).replace("{folder}", str(folder)))
    return filled


def said(answer: Any, expected: Called) -> None:
    assert isinstance(answer, Done), answer
    assert answer.error is None, answer
    assert expected.answer in json.dumps(answer.output, ensure_ascii=False), answer


def test_the_table_has_enough_servers_and_each_is_pinned() -> None:
    found = servers()
    assert len(found) >= SERVERS_AT_LEAST
    assert KEPT_AT_LEAST == 0.98
    assert len({one.package for one in found}) == len(found)
    assert all(map(Server.version, found))
