"""A breadth-first walk for the SQL graphs. The caller queries one hop at a time and passes the rows to `take`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextos.store.shared.graph_validation import stored_statement

FoundRow = tuple[str, str, str, str, bytes, int]
"""(node of the frontier, edge id, src, dst, body, commit)."""


class BreadthFirstWalk:
    """A breadth-first walk over a graph, hop by hop.

    It follows, from each node, the first `fan_out` edges by id that no earlier hop has found; `limit` edges in all.
    """

    def __init__(self, seeds: Iterable[str], *, fan_out: int, limit: int) -> None:
        self._fan_out, self._limit = max(fan_out, 0), max(limit, 0)
        self._reached = set(seeds)
        self._frontier = set(self._reached)
        self._edge_counts = defaultdict[str, int](int)
        self._found: dict[str, tuple[int, bytes, int]] = {}
        self._hop = 0

    @property
    def frontier(self) -> Sequence[str]:
        """Return the nodes to query next, sorted; empty when the walk is over."""
        return sorted(self._frontier) if len(self._found) < self._limit else ()

    @property
    def wanted(self) -> int:
        """Return how many edges to query per node: `fan_out` new ones, plus those that earlier hops have already
        found.
        """
        return self._fan_out + max((self._edge_counts[node] for node in self._frontier), default=0)

    def take(self, rows: Iterable[FoundRow]) -> None:
        """Add the edges of one hop to the walk, ordered by node and edge id."""
        self._hop += 1
        hop, found, fan_out, counts = self._hop, self._found, self._fan_out, self._edge_counts
        new: dict[str, tuple[str, str, bytes, int]] = {}
        of_node = defaultdict[str, int](int)
        for node, edge_id, src, dst, body, commit in rows:
            if edge_id not in found and of_node[node] < fan_out:
                of_node[node] += 1
                new[edge_id] = src, dst, body, commit
        ends = set[str]()
        for edge_id in sorted(new):
            src, dst, body, commit = new[edge_id]
            found[edge_id] = (hop, body, commit)
            counts[src] += 1
            if dst != src:
                counts[dst] += 1
            ends |= {src, dst}
        self._frontier = ends - self._reached
        self._reached |= self._frontier

    def edges(self) -> Sequence[Mapping[str, Any]]:
        """Return the found edges, nearest first, then by id."""
        first = list(self._found.items())[: self._limit]
        return [
            {**stored_statement(edge_id, body), "commit": commit, "hop": hop} for edge_id, (hop, body, commit) in first
        ]
