"""`MemoryGraph`: the reference model of the `Graph` port. Its coroutines never suspend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from contextos.contracts.envelopes.evidence import EdgeRow, GraphCommit
from contextos.contracts.journal import Draft
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


@dataclass(frozen=True, slots=True)
class _MemoryEdge:
    edge: Edge
    valid_from: int
    valid_to: int | None = None
    withdrawn_ref: str | None = None

    def valid_at(self, commit: int) -> bool:
        return self.valid_from <= commit and (self.valid_to is None or self.valid_to > commit)


class MemoryGraph:
    """One tenant's append-only graph in memory. `append` adds the acts of a commit to the stream `control`."""

    def __init__(self, append: Callable[[Sequence[Draft]], None] = lambda _acts: None) -> None:
        self._append = append
        self._head = 0
        self._nodes: dict[str, list[tuple[int, Node]]] = {}
        self._edges: dict[str, _MemoryEdge] = {}

    async def head(self) -> int:
        return self._head

    async def plan(self, nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> GraphCommit:
        return planned_commit(self._head, *self._change(nodes, edges))

    async def put(
        self,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]],
        *,
        acts: Sequence[Draft] = (),
        expect: int | None = None,
    ) -> int:
        """Append nodes and edges as one commit; return its number, or the current commit number if nothing is new."""
        new_nodes, change = self._change(nodes, edges)
        refuse_other_head(expect, self._head)
        if not new_nodes and not change.appended and not change.withdrawn:
            return self._head
        self._append(acts)
        self._head += 1
        for node in new_nodes:
            self._nodes.setdefault(node.ceid, []).append((self._head, node))
        for edge_id, ref in change.withdrawn.items():
            self._edges[edge_id] = replace(self._edges[edge_id], valid_to=self._head, withdrawn_ref=ref)
        for edge_id, edge in change.appended.items():
            self._edges[edge_id] = _MemoryEdge(edge, self._head)
        return self._head

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        """Return the edges valid at commit `at` within `hops` of `seeds`, nearest first.

        Each hop follows, for each node, its first `fan_out` edges by id that no earlier hop has found; `limit` edges
        in all.
        """
        found: dict[str, int] = {}
        reached, frontier = set(seeds), set(seeds)
        for hop in range(1, hops + 1):
            valid = [edge_id for edge_id, stored in sorted(self._edges.items()) if stored.valid_at(at)]
            taken: set[str] = set()
            for node in frontier:
                fresh = [edge_id for edge_id in valid if edge_id not in found and node in self._ends(edge_id)]
                taken.update(fresh[: max(fan_out, 0)])
            found.update(dict.fromkeys(sorted(taken), hop))
            frontier = {end for edge_id in taken for end in self._ends(edge_id)} - reached
            reached |= frontier
        first = list(found)[: max(limit, 0)]
        return [
            {
                **stored_statement(edge_id, self._edges[edge_id].edge.body),
                "commit": self._edges[edge_id].valid_from,
                "hop": found[edge_id],
            }
            for edge_id in first
        ]

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
        found = [
            (edge_id, stored.edge.body, stored.valid_from)
            for edge_id, stored in sorted(self._edges.items())
            if stored.edge.src in sources
            and predicate in (None, stored.edge.predicate)
            and edge_id > after
            and stored.valid_from <= at
            and stored.valid_at(at) != ended
        ]
        return [
            {**stored_statement(edge_id, body), "commit": commit} for edge_id, body, commit in found[: max(limit, 0)]
        ]

    async def rows(self, *, after: str = "", limit: int = 1000) -> Sequence[EdgeRow]:
        found = sorted(edge_id for edge_id in self._edges if edge_id > after)[: max(limit, 0)]
        return [self._row(edge_id, self._edges[edge_id]) for edge_id in found]

    async def nodes(self, ceids: Sequence[str], *, at: int) -> Sequence[Mapping[str, Any]]:
        """Return the nodes as they were at commit `at`, ordered by id; nodes that did not exist at `at`
        are left out.
        """
        found = []
        for ceid in sorted(set(ceids)):
            versions = [node for commit, node in self._nodes.get(ceid, []) if commit <= at]
            if versions:
                latest = versions[-1]
                found.append({"ceid": ceid, "type": latest.type, "properties": orjson.loads(latest.body)})
        return found

    def _change(
        self, nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Node], GraphChange]:
        new_nodes = [node for node in validate_nodes(nodes) if self._newest(node.ceid) != node]
        return new_nodes, plan_change(validate_edges(edges), self._lookup)

    @staticmethod
    def _row(edge_id: str, stored: _MemoryEdge) -> EdgeRow:
        edge = stored.edge
        statement = stored_statement(edge_id, edge.body)
        ends = (edge.src, edge.predicate, edge.dst)
        return EdgeRow(edge_id, *ends, statement, stored.valid_from, stored.valid_to, stored.withdrawn_ref)

    def _newest(self, ceid: str) -> Node | None:
        return self._nodes[ceid][-1][1] if ceid in self._nodes else None

    def _lookup(self, edge_id: str) -> StoredEdge | None:
        stored = self._edges.get(edge_id)
        return StoredEdge(stored.edge.body, stored.valid_to is not None) if stored is not None else None

    def _ends(self, edge_id: str) -> tuple[str, str]:
        edge = self._edges[edge_id].edge
        return edge.src, edge.dst
