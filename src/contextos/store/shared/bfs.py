"""A walk through a graph, hop by hop, for every implementation over SQL: it asks for rows and tells them here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

EdgeRow = tuple[str, str, str, str, bytes]
"""(node of the frontier, edge id, src, dst, body)."""


class BreadthFirstWalk:
    """Of each node the first `fan_out` edges, by id, that no earlier hop has found; `limit` edges in all."""

    def __init__(self, seeds: Iterable[str], *, fan_out: int, limit: int) -> None:
        self._fan_out, self._limit = max(fan_out, 0), max(limit, 0)
        self._reached = set(seeds)
        self._frontier = set(self._reached)
        self._touched: Counter[str] = Counter()
        self._found: dict[str, tuple[int, bytes]] = {}
        self._hop = 0

    @property
    def frontier(self) -> Sequence[str]:
        """The nodes to ask about next, sorted; none when the walk is over."""
        return sorted(self._frontier) if len(self._found) < self._limit else ()

    @property
    def wanted(self) -> int:
        """How many edges of each node to ask for: those that it has from before crowd out nobody."""
        return self._fan_out + max((self._touched[node] for node in self._frontier), default=0)

    def take(self, rows: Iterable[EdgeRow]) -> None:
        """One hop: what was found at the frontier, by node and edge id."""
        self._hop += 1
        fresh: dict[str, tuple[str, str]] = {}
        bodies: dict[str, bytes] = {}
        led: defaultdict[str, int] = defaultdict(int)
        for node, edge_id, src, dst, body in rows:
            if edge_id not in self._found and led[node] < self._fan_out:
                led[node] += 1
                fresh[edge_id], bodies[edge_id] = (src, dst), body
        for edge_id in sorted(fresh):
            self._found[edge_id] = (self._hop, bodies[edge_id])
            self._touched.update(set(fresh[edge_id]))
        self._frontier = {end for ends in fresh.values() for end in ends} - self._reached
        self._reached |= self._frontier

    def edges(self) -> Sequence[Mapping[str, Any]]:
        """All that was found, nearest first, then by id."""
        first = list(self._found.items())[: self._limit]
        return [{**orjson.loads(body), "edge_id": edge_id, "hop": hop} for edge_id, (hop, body) in first]
