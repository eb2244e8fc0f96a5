"""Retrieve evidence from the graph at a pinned snapshot.

Each item is one edge: it has the edge's subject and predicate, and as its value the edge's `value` or else its `dst`.
Nodes have no evidence ref, so their properties are not evidence; a literal is evidence only as an edge with a `value`.
Different edges of one subject have the same ref and are distinguished by their digest.

A named requirement follows a path of predicates from `src` to `dst`, starting at a seed. Where a limit can have hidden
edges of a node on the path, all edges with the path's predicate are read, so a node with many edges hides no evidence.
An item gets the requirement's name only if every edge of the path is trusted and all values found are equal. Otherwise
the items are returned without the name.
This module has no clock: `drop_stale_names` removes the names of stale items, at the time of the caller's journal.
Source: docs/design/contracts.md, "Identifiers", "Compile".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

import orjson
from pydantic import ValidationError

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.instants import unix_us
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.linked import ASKED_BYTES, KEPT_BYTES, RecentlyUsed
from contextos.contracts.envelopes.evidence import (
    EvidenceItem,
    EvidencePath,
    RetrievalQuery,
    crowded_nodes,
    fact_digest,
    value_of_edge,
)
from contextos.contracts.ports.storage import Graph
from contextos.contracts.refs import kg_ref
from contextos.errors import Integrity, InvalidInput, NotFound

GraphEdge = Mapping[str, JsonValue]
GraphEdges = Sequence[GraphEdge]

MAX_STEP_EDGES: Final = 10_000
"""The most edges that are read for one step of a path. A path with more edges in a step answers no requirement."""

_RESULTS: Final[RecentlyUsed[tuple[EvidenceItem, ...]]] = RecentlyUsed(KEPT_BYTES)
"""The items of earlier queries, by query and the exact edges around its seeds. Only where no other edges were read."""
_ITEM_BYTES: Final = 4
"""The bytes that an item takes in memory, roughly, for each byte of its edge."""

_SNAPSHOT: Final = re.compile(r"kg_(0|[1-9][0-9]{0,15})")


class GraphKnowledge:
    """The port `Knowledge` over one tenant's graph. It holds no other graph, so it cannot read another tenant's
    facts.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, self._newest = graph, 0

    async def snapshot(self) -> str:
        """Return the newest snapshot, `kg_<commit number>`. A snapshot is only a number: pinning it stores nothing."""
        self._newest = await self._graph.head()
        return f"kg_{self._newest}"

    async def retrieve(self, query: RetrievalQuery) -> tuple[EvidenceItem, ...]:
        """Return the facts that `query` finds at its snapshot, ordered by hop, subject, predicate and digest.

        All facts that answer a requirement are returned. Other facts fill up the list to at most `query.limit`.

        Raises:
            NotFound: the snapshot does not exist in this graph.
            Integrity: an edge of the graph is not valid evidence.
        """
        match = _SNAPSHOT.fullmatch(query.snapshot)
        commit = int(match[1]) if match else -1
        # Commits are never removed, so a known snapshot stays valid.
        if commit > self._newest:
            self._newest = await self._graph.head()
        if not 0 <= commit <= self._newest:
            raise NotFound(f"there is no snapshot `{query.snapshot}` of this graph; pin one that `snapshot` returned")
        nearby = await self._graph.neighbourhood(
            query.seeds, at=commit, hops=query.hops, fan_out=query.fan_out, limit=query.limit
        )
        # Equal values of Python can differ as JSON (1, 1.0 and true), so the edges are compared as bytes.
        cache_key = query.model_dump_json(), (content := orjson.dumps(nearby))
        if (cached := _RESULTS.get(cache_key)) is not None:
            return cached
        paths = _PathEdges(self._graph, commit, nearby, query)
        answers = await _answer_requirements(paths, query)
        # One edge can answer several requirements, and each item has one name.
        names: dict[str, list[str | None]] = defaultdict(list)
        edges: dict[str, GraphEdge] = {}
        for name, answer in answers.items():
            if answer is not None:
                edges[str(answer["edge_id"])] = answer
                names[str(answer["edge_id"])].append(name)
        for edge in nearby:
            if len(edges) >= query.limit:
                break
            edges.setdefault(str(edge["edge_id"]), edge)
        refs: dict[str, str] = {}
        items = [
            _item(edge, refs, query.snapshot, paths.hop(edge), name)
            for edge_id, edge in edges.items()
            for name in names.get(edge_id) or [None]
        ]
        result = tuple(sorted(items, key=_sort_key))
        if not paths.read_more:
            _RESULTS.keep(cache_key, result, ASKED_BYTES + len(cache_key[0]) + len(content) * _ITEM_BYTES)
        return result


def drop_stale_names(
    items: Sequence[EvidenceItem], named: Sequence[EvidencePath], now_us: int
) -> tuple[EvidenceItem, ...]:
    """Return the items. An item that is older at `now_us` (Unix µs) than its requirement allows loses its name.

    An item without a name satisfies no requirement. An item that was observed after `now_us` also loses its name. The
    maximum age is inclusive.
    """
    max_ages = {path.name: path.max_age_s for path in named}
    if not any(max_ages.values()):
        return tuple(items)
    return tuple(
        item.model_copy(update={"name": None}) if _is_stale(item, max_ages.get(item.name or ""), now_us) else item
        for item in items
    )


def _is_stale(item: EvidenceItem, max_age_s: int | None, now_us: int) -> bool:
    return max_age_s is not None and not 0 <= now_us - item.observed_at_us <= max_age_s * 1_000_000


class _PathEdges:
    """The edges by which paths continue from a set of nodes: all of them, even if a limit of the query hid some."""

    def __init__(self, graph: Graph, commit: int, nearby: GraphEdges, query: RetrievalQuery) -> None:
        self._graph, self._commit, self._nearby, self.read_more = graph, commit, nearby, False
        # A limit that is reached counts as exceeded, because one more edge would not be visible.
        crowded_ids = crowded_nodes(nearby, query.fan_out)
        self._is_cut = bool(crowded_ids) or len(nearby) >= query.limit
        if self._is_cut:
            self._distances = _distances(nearby, query.seeds)
            inner_nodes = {node for node, distance in self._distances.items() if distance < query.hops}
            self._complete_nodes = inner_nodes - crowded_ids if len(nearby) < query.limit else set()

    async def step(self, nodes: Set[str], predicate: str) -> GraphEdges | None:
        """Return every edge with this predicate from one of these nodes; None if there are more than can be read."""
        # No path is longer than the hops of the walk, so a walk that no limit cut has all edges of the path.
        if not self._is_cut or nodes <= self._complete_nodes:
            return [edge for edge in self._nearby if edge["src"] in nodes and edge["predicate"] == predicate]
        self.read_more = True
        edges = await self._graph.step(sorted(nodes), predicate, at=self._commit, limit=MAX_STEP_EDGES + 1)
        for edge in edges:
            self._distances.setdefault(edge["dst"], self._distances[edge["src"]] + 1)
        return edges if len(edges) <= MAX_STEP_EDGES else None

    def hop(self, edge: GraphEdge) -> int:
        """Return the distance of an edge from the nearest seed, in edges. It counts in both directions."""
        return 1 + min(self._distances[edge["src"]], self._distances[edge["dst"]]) if self._is_cut else edge["hop"]


async def _answer_requirements(paths: _PathEdges, query: RetrievalQuery) -> dict[str, GraphEdge | None]:
    """Return, for each name, the edge that answers it, or None.

    Two requirements with the same name must both be met by the same value; otherwise they conflict.
    """
    answers: dict[str, GraphEdge | None] = {}
    for requirement in query.named:
        answer, name = await _answer_requirement(paths, query, requirement), requirement.name
        if name in answers and _value_of(answers[name]) != _value_of(answer):
            answer = None
        answers[name] = answer
    return answers


async def _answer_requirement(paths: _PathEdges, query: RetrievalQuery, requirement: EvidencePath) -> GraphEdge | None:
    if len(requirement.path) > query.hops or requirement.seed >= len(query.seeds):
        return None
    nodes, trusted = {query.seeds[requirement.seed]}, list[GraphEdge]()
    for predicate in requirement.path:
        step = await paths.step(nodes, predicate)
        if step is None:
            return None
        trusted = [edge for edge in step if edge["integrity"] == "trusted"]
        nodes = {str(edge["dst"]) for edge in trusted}
    if len(trusted) < 2:
        return trusted[0] if trusted else None
    if len({_edge_digest(edge, value_only=True) for edge in trusted}) > 1:
        return None
    return min(trusted, key=_newest_first)


def _newest_first(edge: GraphEdge) -> tuple[int, str, str]:
    return -_observed_at_us(edge), _edge_digest(edge), str(edge["evidence_ref"])


def _value_of(answer: GraphEdge | None) -> str | None:
    return None if answer is None else _edge_digest(answer, value_only=True)


def _distances(edges: GraphEdges, seeds: Sequence[str]) -> dict[str, int]:
    """Return the number of edges between each node and its nearest seed. Edges count in both directions."""
    neighbours = defaultdict(set)
    for edge in edges:
        neighbours[edge["src"]].add(edge["dst"])
        neighbours[edge["dst"]].add(edge["src"])
    distances, frontier, distance = dict.fromkeys(seeds, 0), set(seeds), 0
    while frontier:
        distance += 1
        frontier = {neighbour for node in frontier for neighbour in neighbours[node]} - distances.keys()
        distances.update(dict.fromkeys(frontier, distance))
    return distances


def _item(edge: GraphEdge, refs: dict[str, str], snapshot: str, hop: int, name: str | None) -> EvidenceItem:
    """Return the evidence item of an edge. `refs` holds the references that were already made, by subject."""
    subject, predicate, value = edge["src"], edge["predicate"], value_of_edge(edge)
    try:
        return EvidenceItem(
            evidence_ref=refs.get(subject) or refs.setdefault(subject, kg_ref(subject, snapshot)),
            name=name,
            subject=subject,
            predicate=predicate,
            value=value,
            origin=edge["evidence_ref"],
            integrity=edge["integrity"],
            classification=edge["classification"],
            observed_at_us=_observed_at_us(edge),
            digest=fact_digest(subject, predicate, value),
            hop=hop,
        )
    except (ValidationError, InvalidInput):
        detail = f"edge `{predicate}` of `{subject}` is not valid evidence; withdraw it and add one between entities"
        raise Integrity(detail) from None


def _sort_key(item: EvidenceItem) -> tuple[Any, ...]:
    """Return the sort key of an item. Among equal statements, named items come first."""
    return (
        item.hop,
        item.subject,
        item.predicate,
        item.digest,
        item.name is None,
        -item.observed_at_us,
        item.origin,
        item.integrity,
        item.classification,
    )


def _edge_digest(edge: Mapping[str, JsonValue], *, value_only: bool = False) -> str:
    return (
        content_address([value_of_edge(edge)])
        if value_only
        else fact_digest(edge["src"], edge["predicate"], value_of_edge(edge))
    )


def _observed_at_us(edge: Mapping[str, JsonValue]) -> int:
    """Return the Unix time of an edge in microseconds. Raises `Integrity` for a text that is not a time of a store."""
    observed = edge["observed_at"]
    at_us = observed if isinstance(observed, int) else unix_us(observed)
    if at_us is None:
        raise Integrity(f"edge `{edge['predicate']}` of `{edge['src']}` has no time of observation; write it again")
    return at_us
