"""`SqliteGraph`: the `Graph` port in the file of `SqliteStores`.

A snapshot is a commit number. The only change to a stored edge is the commit that withdraws it, so every earlier
snapshot stays readable and pinning one costs nothing. A walk runs one query per hop, for any size of the frontier.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from contextos.contracts.envelopes.evidence import EdgeRow, GraphCommit
from contextos.contracts.journal import Draft
from contextos.errors import InvalidInput, Problem
from contextos.store.shared.bfs import BreadthFirstWalk
from contextos.store.shared.graph_validation import (
    Edge,
    GraphChange,
    Node,
    StoredEdge,
    plan_change,
    planned_commit,
    refuse_other_head,
    stored_statement,
    validate_edges,
    validate_nodes,
)
from contextos.store.sqlite.database import Readers
from contextos.store.sqlite.writer import Writer

AppendAct = Callable[[sqlite3.Connection, str, Draft], object]

_HEAD: Final = "SELECT head FROM graph_commits WHERE tenant = ?"
_SET_HEAD: Final = (
    "INSERT INTO graph_commits (tenant, head) VALUES (?, ?) ON CONFLICT (tenant) DO UPDATE SET head = excluded.head"
)
_EDGE: Final = "SELECT body, valid_to IS NOT NULL FROM edges WHERE tenant = ? AND edge_id = ?"
_ADD_EDGE: Final = (
    "INSERT INTO edges (tenant, edge_id, src, predicate, dst, evidence_ref, body, valid_from)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_WITHDRAW: Final = "UPDATE edges SET valid_to = ?, withdrawn_ref = ? WHERE tenant = ? AND edge_id = ?"
_NODE: Final = (
    "SELECT ceid, type, body FROM nodes WHERE tenant = ? AND ceid = ? AND commit_no <= ?"
    " ORDER BY commit_no DESC LIMIT 1"
)
_ADD_NODE: Final = "INSERT INTO nodes (tenant, ceid, commit_no, type, body) VALUES (?, ?, ?, ?, ?)"
_END: Final = (
    "SELECT edge_id FROM (SELECT edge_id FROM edges WHERE tenant = ?1 AND {end} = frontier.value"
    " AND valid_from <= ?2 AND (valid_to IS NULL OR valid_to > ?2) ORDER BY edge_id LIMIT ?3)"
)
# Both indexes are in order of edge id, so reading a hub costs as much as the limit, not as much as the hub has edges.
_HOP: Final = (
    "SELECT frontier.value, edges.edge_id, edges.src, edges.dst, edges.body, edges.valid_from"  # noqa: S608
    " FROM json_each(?4) AS frontier"
    " JOIN edges ON edges.tenant = ?1 AND edges.edge_id IN ("
    f"{_END.format(end='src')} UNION {_END.format(end='dst')} ORDER BY edge_id LIMIT ?3)"
    " ORDER BY frontier.value, edges.edge_id"
)
_LIVE: Final = "valid_from <= :at AND (valid_to IS NULL OR valid_to > :at)"
_ENDED: Final = "valid_to <= :at"
# Each source is sought in an index of its own edges. An order by edge id alone would read the whole graph.
_STEP: Final = {
    (ended, unfiltered): (
        "SELECT edges.edge_id, body, valid_from FROM json_each(:sources) AS source"  # noqa: S608
        " CROSS JOIN edges ON edges.tenant = :tenant AND edges.edge_id IN ("
        f"SELECT edge_id FROM edges{' INDEXED BY edges_ended' if ended else ''}"
        " WHERE tenant = :tenant AND src = source.value AND edge_id > :after"
        f" AND {_ENDED if ended else _LIVE}{'' if unfiltered else ' AND predicate = :predicate'}"
        " ORDER BY edge_id LIMIT :limit) ORDER BY edges.edge_id LIMIT :limit"
    )
    for ended in (False, True)
    for unfiltered in (False, True)
}
_ROWS: Final = (
    "SELECT edge_id, src, predicate, dst, body, valid_from, valid_to, withdrawn_ref FROM edges"
    " WHERE tenant = ? AND edge_id > ? ORDER BY edge_id LIMIT ?"
)
_MAX_COMMIT: Final = 2**63 - 1


class SqliteGraph:
    """One tenant's append-only graph. Made by `SqliteStores.graph`.

    `append_act` adds an act to the stream `control`, in the transaction of the commit.
    """

    def __init__(self, tenant_id: str, writer: Writer, readers: Readers, append_act: AppendAct) -> None:
        if not tenant_id:
            raise InvalidInput(Problem("/tenant_id", "empty", "a graph belongs to a tenant; name one"))
        self._tenant, self._writer, self._readers, self._append_act = tenant_id, writer, readers, append_act

    async def head(self) -> int:
        with self._readers.connection() as connection:
            return _read_head(connection, self._tenant)

    async def plan(self, nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> GraphCommit:
        valid_nodes, valid_edges = validate_nodes(nodes), validate_edges(edges)
        with self._readers.connection() as connection:
            head = _read_head(connection, self._tenant)
            return planned_commit(head, *_plan_graph_change(connection, self._tenant, valid_nodes, valid_edges))

    async def put(
        self,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]],
        *,
        acts: Sequence[Draft] = (),
        expect: int | None = None,
    ) -> int:
        """Append nodes and edges as one commit; return its number, or the current commit number if nothing is new."""
        task = partial(_put, self._tenant, validate_nodes(nodes), validate_edges(edges), acts, expect, self._append_act)
        commit: int = await self._writer.run(task)
        return commit

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        walk = BreadthFirstWalk(seeds, fan_out=fan_out, limit=limit)
        with self._readers.connection() as connection:
            for _ in range(hops):
                if not (frontier := walk.frontier):
                    break
                parameters = (self._tenant, at, walk.wanted, orjson.dumps(frontier).decode())
                walk.take(connection.execute(_HOP, parameters))
        return walk.edges()

    async def step(
        self,
        sources: Sequence[str],
        predicate: str | None,
        *,
        at: int,
        limit: int,
        after: str = "",
        ended: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        parameters = {
            "tenant": self._tenant,
            "sources": orjson.dumps(sorted(set(sources))).decode(),
            "predicate": predicate,
            "after": after,
            "at": at,
            "limit": max(limit, 0),
        }
        with self._readers.connection() as connection:
            rows = connection.execute(_STEP[ended, predicate is None], parameters).fetchall()
        return [{**stored_statement(edge_id, body), "commit": commit} for edge_id, body, commit in rows]

    async def rows(self, *, after: str = "", limit: int = 1000) -> Sequence[EdgeRow]:
        with self._readers.connection() as connection:
            rows = connection.execute(_ROWS, (self._tenant, after, max(limit, 0))).fetchall()
        return [
            EdgeRow(edge_id, src, predicate, dst, stored_statement(edge_id, body), *ends)
            for edge_id, src, predicate, dst, body, *ends in rows
        ]

    async def nodes(self, ceids: Sequence[str], *, at: int) -> Sequence[Mapping[str, Any]]:
        """Return the nodes as they were at commit `at`, ordered by id; nodes that did not exist at `at`
        are left out.
        """
        with self._readers.connection() as connection:
            rows = [connection.execute(_NODE, (self._tenant, ceid, at)).fetchone() for ceid in sorted(set(ceids))]
        return [{"ceid": row[0], "type": row[1], "properties": orjson.loads(row[2])} for row in rows if row is not None]


def _plan_graph_change(
    connection: sqlite3.Connection, tenant_id: str, nodes: Sequence[Node], edges: Sequence[Edge]
) -> tuple[list[Node], GraphChange]:
    """Return the nodes and edges among these that the graph does not contain yet, and the edges to withdraw."""

    def lookup(edge_id: str) -> StoredEdge | None:
        row = connection.execute(_EDGE, (tenant_id, edge_id)).fetchone()
        return StoredEdge(row[0], bool(row[1])) if row is not None else None

    def newest_node(ceid: str) -> Node | None:
        row = connection.execute(_NODE, (tenant_id, ceid, _MAX_COMMIT)).fetchone()
        return Node(*row) if row is not None else None

    return [node for node in nodes if newest_node(node.ceid) != node], plan_change(edges, lookup)


def _put(
    tenant_id: str,
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    acts: Sequence[Draft],
    expect: int | None,
    append_act: AppendAct,
    connection: sqlite3.Connection,
) -> int:
    """Append one graph commit and its acts. Runs under the write lock, so commit numbers follow the order of the
    commits.
    """
    new_nodes, change = _plan_graph_change(connection, tenant_id, nodes, edges)
    head = _read_head(connection, tenant_id)
    refuse_other_head(expect, head)
    if not new_nodes and not change.appended and not change.withdrawn:
        return head
    commit = head + 1
    connection.execute(_SET_HEAD, (tenant_id, commit))
    for act in acts:
        append_act(connection, tenant_id, act)
    connection.executemany(_ADD_NODE, [(tenant_id, node.ceid, commit, node.type, node.body) for node in new_nodes])
    connection.executemany(_WITHDRAW, [(commit, ref, tenant_id, edge_id) for edge_id, ref in change.withdrawn.items()])
    connection.executemany(
        _ADD_EDGE,
        [
            (tenant_id, edge_id, edge.src, edge.predicate, edge.dst, edge.evidence_ref, edge.body, commit)
            for edge_id, edge in change.appended.items()
        ],
    )
    return commit


def _read_head(connection: sqlite3.Connection, tenant_id: str) -> int:
    row = connection.execute(_HEAD, (tenant_id,)).fetchone()
    return int(row[0]) if row is not None else 0
