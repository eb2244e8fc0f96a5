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

from contextos.store.postgres.connections import Connection, Connections, is_text, named_tenant
from contextos.store.shared.bfs import BreadthFirstWalk
from contextos.store.shared.graph_validation import (
    Edge,
    GraphChange,
    Node,
    StoredEdge,
    derived_edge_id,
    plan_change,
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
_HOP: Final = "SELECT node, edge_id, src, dst, body FROM contextos.graph_hop($1, $2, $3, $4)"
_MAX_COMMIT: Final = 2**63 - 1


class PostgresGraph:
    """One tenant's append-only graph. Made by `PostgresStores.graph`.

    `checked_transaction` raises `StoreRestored` if the store was restored and no new epoch has begun.
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

    async def put(self, nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> int:
        """Append as one commit and return its number, or the current head if nothing is new."""
        valid_nodes, valid_edges = validate_nodes(nodes), validate_edges(edges)
        async with self._checked_transaction(self._tenant) as connection:
            return await _put(connection, self._tenant, valid_nodes, valid_edges)

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

    async def nodes(self, ceids: Sequence[str], *, at: int) -> Sequence[Mapping[str, Any]]:
        """Return the nodes as of commit `at`, ordered by ceid; nodes without a version at `at` are left out."""
        async with self._connections().transaction(self._tenant) as connection:
            rows = await connection.fetch(_NODES, self._tenant, [ceid for ceid in ceids if is_text(ceid)], at)
        return [{"ceid": ceid, "type": kind, "properties": orjson.loads(body)} for ceid, kind, body in rows]


async def _put(connection: Connection, tenant: str, nodes: Sequence[Node], edges: Sequence[Edge]) -> int:
    """Append one graph commit. Locks the tenant's head, so commit numbers follow the order of the commits."""
    head: int = await connection.fetchval(_LOCK_HEAD, tenant)
    rows = await connection.fetch(_NODES, tenant, [node.ceid for node in nodes], _MAX_COMMIT)
    newest = {row[0]: Node(*row) for row in rows}
    new_nodes = [node for node in nodes if newest.get(node.ceid) != node]
    change = await _planned_change(connection, tenant, edges)
    if not new_nodes and not change.appended and not change.withdrawn:
        return head
    commit = head + 1
    await connection.execute(_SET_HEAD, tenant, commit)
    if new_nodes:
        columns = [[getattr(node, name) for node in new_nodes] for name in ("ceid", "type", "body")]
        await connection.execute(_ADD_NODES, tenant, commit, *columns)
    if change.withdrawn:
        await connection.execute(_WITHDRAW, tenant, list(change.withdrawn), list(change.withdrawn.values()), commit)
    if change.appended:
        names = ("src", "predicate", "dst", "evidence_ref", "body")
        columns = [[getattr(edge, name) for edge in change.appended.values()] for name in names]
        await connection.execute(_ADD_EDGES, tenant, list(change.appended), *columns, commit)
    return commit


class _NotLookedUp(LookupError):
    """An edge id that was not yet looked up in the database."""


async def _planned_change(connection: Connection, tenant: str, edges: Sequence[Edge]) -> GraphChange:
    """Plan the change. Planning starts again after each id that it needs and lacks; usually all are looked up first."""
    known: dict[str, StoredEdge | None] = {}

    async def look_up(edge_ids: Iterable[str]) -> None:
        wanted = list(edge_ids)
        rows = await connection.fetch(_EDGES, tenant, wanted)
        known.update(dict.fromkeys(wanted))
        known.update({edge_id: StoredEdge(body, withdrawn) for edge_id, body, withdrawn in rows})

    def lookup(edge_id: str) -> StoredEdge | None:
        if edge_id not in known:
            raise _NotLookedUp(edge_id)
        return known[edge_id]

    named = {edge_id for edge in edges for edge_id in (edge.edge_id, edge.retracts) if edge_id is not None}
    await look_up(named | {derived_edge_id(edge.body, 0) for edge in edges if edge.edge_id is None})
    while True:
        try:
            return plan_change(edges, lookup)
        except _NotLookedUp as missing:
            await look_up(missing.args)
