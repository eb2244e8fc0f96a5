"""A breadth-first walk for the SQL graphs. The caller queries one hop at a time and passes the rows to `take`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextos.store.shared.graph_validation import stored_statement

FoundRow = tuple[str, str, str, str, bytes, int]
"""(node of the frontier, edge id, src, dst, body, commit)."""


class BreadthFirstWalk:
    """A breadth-first walk over a graph, hop by hop.

    From each node it follows the first `fan_out` edges, by id, that no earlier hop has found; at most `limit` in all.
    """

    def __init__(self, seeds: Iterable[str], *, fan_out: int, limit: int) -> None:
        self._fan_out, self._limit = max(fan_out, 0), max(limit, 0)
        self._visited = set(seeds)
        self._frontier = set(self._visited)
        self._edge_counts: Counter[str] = Counter()
        self._edges: dict[str, tuple[int, FoundRow]] = {}
        self._hop = 0

    @property
    def frontier(self) -> Sequence[str]:
        """Return the nodes to query next, sorted; empty when the walk is over."""
        return sorted(self._frontier) if len(self._edges) < self._limit else ()

    @property
    def wanted(self) -> int:
        """Return how many edges to query per node: `fan_out` new edges, plus the edges that earlier hops found."""
        return self._fan_out + max((self._edge_counts[node] for node in self._frontier), default=0)

    def take(self, rows: Iterable[FoundRow]) -> None:
        """Add the edges of one hop to the walk, ordered by node and edge id."""
        self._hop += 1
        edges, new_rows, fan_out = self._edges, dict[str, FoundRow](), self._fan_out
        new_edges: defaultdict[str, int] = defaultdict(int)
        for row in rows:
            node, edge_id = row[0], row[1]
            if edge_id not in edges and new_edges[node] < fan_out:
                new_edges[node] += 1
                new_rows[edge_id] = row
        for edge_id in sorted(new_rows):
            edges[edge_id] = self._hop, new_rows[edge_id]
        ends = [end for row in new_rows.values() for end in {row[2], row[3]}]
        self._edge_counts.update(ends)
        self._frontier = set(ends) - self._visited
        self._visited |= self._frontier

    def edges(self) -> Sequence[Mapping[str, Any]]:
        """Return the found edges, nearest first, then by id."""
        nearest = list(self._edges.items())[: self._limit]
        return [{**stored_statement(edge_id, row[4]), "commit": row[5], "hop": hop} for edge_id, (hop, row) in nearest]
