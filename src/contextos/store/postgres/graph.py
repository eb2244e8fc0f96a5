"""`PostgresGraph`: the `Graph` port in the database of `PostgresStores`.

A snapshot is a commit number, assigned under a lock on the tenant's row, so numbers follow the order of the commits.
The only change to a stored edge is the commit that withdraws it. A walk runs one query per hop, for any size of the
frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import orjson

from contextos.contracts.envelopes.evidence import EdgeRow, GraphCommit, derived_edge_id
from contextos.contracts.journal import Draft
from contextos.store.postgres.commit_calls import control_line
from contextos.store.postgres.connections import Connection, Connections, is_text, named_tenant
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

# Also locks the row until the commit. The head of an empty graph is 0.
_LOCK_HEAD: Final = (
    "INSERT INTO contextos.graph_commits AS mine (tenant, head) VALUES ($1, 0)"
    " ON CONFLICT (tenant) DO UPDATE SET head = mine.head RETURNING head"
)
_SET_HEAD: Final = "UPDATE contextos.graph_commits SET head = $2 WHERE tenant = $1"
_EDGES: Final = (
    "SELECT edge_id, body, valid_to IS NOT NULL FROM contextos.edges WHERE tenant = $1 AND edge_id = ANY($2::text[])"
)
_ADD_EDGES: Final = (
    "INSERT INTO contextos.edges (tenant, edge_id, src, predicate, dst, evidence_ref, body, valid_from)"
    " SELECT $1, made.*, $8"
    " FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[]) AS made"
)
_WITHDRAW: Final = (
    "UPDATE contextos.edges AS ended SET valid_to = $4, withdrawn_ref = given.ref"
    " FROM unnest($2::text[], $3::text[]) AS given (edge_id, ref)"
    " WHERE ended.tenant = $1 AND ended.edge_id = given.edge_id"
)
_NODES: Final = (
    "SELECT DISTINCT ON (ceid) ceid, type, body FROM contextos.nodes"
    " WHERE tenant = $1 AND ceid = ANY($2::text[]) AND commit_no <= $3 ORDER BY ceid, commit_no DESC"
)
_ADD_NODES: Final = (
    "INSERT INTO contextos.nodes (tenant, commit_no, ceid, type, body)"
    " SELECT $1, $2, made.* FROM unnest($3::text[], $4::text[], $5::bytea[]) AS made"
)
_HEAD: Final = "SELECT contextos.graph_head($1)"
_HOP: Final = "SELECT node, edge_id, src, dst, body, valid_from FROM contextos.graph_hop($1, $2, $3, $4)"
_STEP: Final = {
    (ended, unfiltered): (
        "SELECT found.* FROM unnest($2::text[]) AS source (src) CROSS JOIN LATERAL ("  # noqa: S608
        "SELECT edge_id, body, valid_from FROM contextos.edges WHERE tenant = $1 AND src = source.src AND edge_id > $3"
        f" AND {'valid_to <= $4' if ended else 'valid_from <= $4 AND (valid_to IS NULL OR valid_to > $4)'}"
        f"{'' if unfiltered else ' AND predicate = $6'} ORDER BY edge_id LIMIT $5) AS found ORDER BY edge_id LIMIT $5"
    )
    for ended in (False, True)
    for unfiltered in (False, True)
}
_ROWS: Final = (
    "SELECT edge_id, src, predicate, dst, body, valid_from, valid_to, withdrawn_ref FROM contextos.edges"
    " WHERE tenant = $1 AND edge_id > $2 ORDER BY edge_id LIMIT $3"
)
_APPEND_ACT: Final = "SELECT contextos.append_line($1, $2)"
_LOCK_CONTROL: Final = "SELECT pg_advisory_xact_lock($1)"
_MAX_COMMIT: Final = 2**63 - 1


class PostgresGraph:
    """One tenant's append-only graph. Made by `PostgresStores.graph`.

    `checked_transaction` raises `StoreRestored` if the store was restored and no operator has recorded that.
    """

    def __init__(
        self,
        tenant_id: str,
        connections: Callable[[], Connections],
        checked_transaction: Callable[[str], AbstractAsyncContextManager[Connection]],
    ) -> None:
        self._tenant, self._connections = named_tenant(tenant_id), connections
        self._checked_transaction = checked_transaction

    async def head(self) -> int:
        async with self._connections().connection() as connection:
            head: int = await connection.fetchval(_HEAD, self._tenant)
        return head

    async def plan(self, nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> GraphCommit:
        valid_nodes, valid_edges = validate_nodes(nodes), validate_edges(edges)
        async with self._connections().transaction(self._tenant) as connection:
            head: int = await connection.fetchval(_HEAD, self._tenant)
            return planned_commit(head, *await _plan_graph_change(connection, self._tenant, valid_nodes, valid_edges))

    async def put(
        self,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]],
        *,
        acts: Sequence[Draft] = (),
        expect: int | None = None,
    ) -> int:
        """Append nodes and edges as one commit; return its number, or the current commit number if nothing is new."""
        valid_nodes, valid_edges = validate_nodes(nodes), validate_edges(edges)
        async with self._checked_transaction(self._tenant) as connection:
            head: int = await connection.fetchval(_LOCK_HEAD, self._tenant)
            refuse_other_head(expect, head)
            new_nodes, change = await _plan_graph_change(connection, self._tenant, valid_nodes, valid_edges)
            if not new_nodes and not change.appended and not change.withdrawn:
                return head
            await _put(connection, self._tenant, head + 1, new_nodes, change)
            for lock, line in (control_line(self._tenant, act) for act in acts):
                await connection.execute(_LOCK_CONTROL, lock)
                await connection.execute(_APPEND_ACT, self._tenant, line)
            return head + 1

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        walk = BreadthFirstWalk(filter(is_text, seeds), fan_out=fan_out, limit=limit)
        # A snapshot never changes, so the hops need no common transaction.
        async with self._connections().connection() as connection:
            for _ in range(hops):
                if not (frontier := walk.frontier):
                    break
                walk.take(await connection.fetch(_HOP, self._tenant, at, walk.wanted, frontier))
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
        if not is_text(after) or not (predicate is None or is_text(predicate)):
            return []
        arguments = [self._tenant, sorted(set(filter(is_text, sources))), after, at, max(limit, 0)]
        arguments += [] if predicate is None else [predicate]
        async with self._connections().transaction(self._tenant) as connection:
            rows = await connection.fetch(_STEP[ended, predicate is None], *arguments)
        return [{**stored_statement(edge_id, body), "commit": commit} for edge_id, body, commit in rows]

    async def rows(self, *, after: str = "", limit: int = 1000) -> Sequence[EdgeRow]:
        async with self._connections().transaction(self._tenant) as connection:
            rows = await connection.fetch(_ROWS, self._tenant, after, max(limit, 0))
        return [
            EdgeRow(edge_id, src, predicate, dst, stored_statement(edge_id, body), *ends)
            for edge_id, src, predicate, dst, body, *ends in rows
        ]

    async def nodes(self, ceids: Sequence[str], *, at: int) -> Sequence[Mapping[str, Any]]:
        """Return the nodes as they were at commit `at`, ordered by id; nodes that did not exist at `at`
        are left out.
        """
        async with self._connections().transaction(self._tenant) as connection:
            rows = await connection.fetch(_NODES, self._tenant, [ceid for ceid in ceids if is_text(ceid)], at)
        return [{"ceid": ceid, "type": kind, "properties": orjson.loads(body)} for ceid, kind, body in rows]


async def _plan_graph_change(
    connection: Connection, tenant_id: str, nodes: Sequence[Node], edges: Sequence[Edge]
) -> tuple[list[Node], GraphChange]:
    """Return the nodes that the graph does not contain yet, and the change of its edges: new ones and withdrawals."""
    rows = await connection.fetch(_NODES, tenant_id, [node.ceid for node in nodes], _MAX_COMMIT)
    newest = {row[0]: Node(*row) for row in rows}
    new_nodes = [node for node in nodes if newest.get(node.ceid) != node]
    return new_nodes, await _plan_edge_change(connection, tenant_id, edges)


async def _put(
    connection: Connection, tenant_id: str, commit: int, new_nodes: Sequence[Node], change: GraphChange
) -> None:
    """Append one graph commit. The caller has locked the tenant's head, so numbers follow the order of the commits."""
    await connection.execute(_SET_HEAD, tenant_id, commit)
    if new_nodes:
        columns = [[getattr(node, name) for node in new_nodes] for name in ("ceid", "type", "body")]
        await connection.execute(_ADD_NODES, tenant_id, commit, *columns)
    if change.withdrawn:
        await connection.execute(_WITHDRAW, tenant_id, list(change.withdrawn), list(change.withdrawn.values()), commit)
    if change.appended:
        names = ("src", "predicate", "dst", "evidence_ref", "body")
        columns = [[getattr(edge, name) for edge in change.appended.values()] for name in names]
        await connection.execute(_ADD_EDGES, tenant_id, list(change.appended), *columns, commit)


class _NotLookedUp(LookupError):
    """An edge id that was not yet looked up in the database."""


async def _plan_edge_change(connection: Connection, tenant_id: str, edges: Sequence[Edge]) -> GraphChange:
    """Plan the change of `edges`. Ids that they name are looked up first; after any other id planning starts again."""
    stored_edges: dict[str, StoredEdge | None] = {}

    async def look_up(edge_ids: Iterable[str]) -> None:
        new_ids = list(edge_ids)
        rows = await connection.fetch(_EDGES, tenant_id, new_ids)
        stored_edges.update(dict.fromkeys(new_ids))
        stored_edges.update({edge_id: StoredEdge(body, withdrawn) for edge_id, body, withdrawn in rows})

    def lookup(edge_id: str) -> StoredEdge | None:
        if edge_id not in stored_edges:
            raise _NotLookedUp(edge_id)
        return stored_edges[edge_id]

    edge_ids = {edge_id for edge in edges for edge_id in (edge.edge_id, edge.retracts) if edge_id is not None}
    await look_up(edge_ids | {derived_edge_id(edge.body, 0) for edge in edges if edge.edge_id is None})
    while True:
        try:
            return plan_change(edges, lookup)
        except _NotLookedUp as error:
            await look_up(error.args)
