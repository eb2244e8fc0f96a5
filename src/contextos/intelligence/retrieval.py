"""Evidence from the graph at a pinned snapshot.

Each item is one edge: it has the edge's subject and predicate, and as its value the edge's `value` or else its `dst`.
Nodes have no evidence ref, so their properties are not evidence; a literal is evidence only as an edge with a `value`.
Different edges of one subject have the same ref and are distinguished by their digest.

A named requirement follows predicates from `src` to `dst`, starting at a seed. An item gets the requirement's name only
if every edge of the path is trusted, no limit can have hidden edges of a node of the path, and all values found are
equal. Otherwise no item gets the name: the items are returned without one, and `explain` returns the reason.
This module has no clock: `drop_stale_names` removes the names of stale items, at the time of the caller's journal.
Source: docs/design/contracts.md, "Identifiers", "Compile".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import ValidationError

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.evidence import EvidenceItem, EvidencePath, RetrievalQuery
from contextos.contracts.ids import TIMESTAMP
from contextos.contracts.ports.storage import Graph
from contextos.contracts.refs import kg_ref
from contextos.errors import Integrity, InvalidInput, NotFound

GraphEdges = Sequence[Mapping[str, JsonValue]]
UnmetReason = Literal["missing", "untrusted", "conflict", "cut_off"]


_SNAPSHOT: Final = re.compile(r"kg_(0|[1-9][0-9]{0,15})")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def fact_digest(subject: str, predicate: str, value: JsonValue) -> str:
    """Return the content address of a statement. Two statements are equal if their digests are."""
    return content_address({"subject": subject, "predicate": predicate, "value": value})


class GraphKnowledge:
    """Implements the port `Knowledge` over one tenant's graph. It has no other graph, so it cannot cross tenants."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._newest = graph, 0

    async def snapshot(self) -> str:
        """Return the newest snapshot, `kg_<commit number>`. A snapshot is only a number: pinning it stores nothing."""
        self._newest = await self._graph.head()
        return f"kg_{self._newest}"

    async def retrieve(self, query: RetrievalQuery) -> tuple[EvidenceItem, ...]:
        """Return the items within the query's limits at its snapshot, ordered by hop, subject, predicate and digest.

        Raises:
            NotFound: the snapshot does not exist in this graph.
            Integrity: an edge of the graph is not valid evidence.
        """
        edges = await self._edges(query)
        distances = _distances(edges, query.seeds)
        answers = _answers(edges, query, distances)
        # One edge can answer several requirements, and each item has one name.
        names: list[list[str | None]] = [
            [name for name, answer in answers.items() if answer == index] for index in range(len(edges))
        ]
        items = [
            _item(edge, query.snapshot, 1 + min(distances[edge["src"]], distances[edge["dst"]]), name)
            for index, edge in enumerate(edges)
            for name in names[index] or [None]
        ]
        return tuple(sorted(items, key=_order))

    async def explain(self, query: RetrievalQuery) -> dict[str, UnmetReason]:
        """Return the reason for each named requirement that has no answer. Raises the same errors as `retrieve`."""
        edges = await self._edges(query)
        answers = _answers(edges, query, _distances(edges, query.seeds))
        return {name: reason for name, reason in answers.items() if not isinstance(reason, int)}

    async def _edges(self, query: RetrievalQuery) -> GraphEdges:
        match = _SNAPSHOT.fullmatch(query.snapshot)
        commit = int(match[1]) if match else -1
        # Commits are never removed, so a known snapshot stays valid.
        if commit > self._newest:
            self._newest = await self._graph.head()
        if not 0 <= commit <= self._newest:
            raise NotFound(f"there is no snapshot `{query.snapshot}` of this graph; pin one that `snapshot` returned")
        return await self._graph.neighbourhood(
            query.seeds, at=commit, hops=query.hops, fan_out=query.fan_out, limit=query.limit
        )


def drop_stale_names(
    items: Sequence[EvidenceItem], named: Sequence[EvidencePath], now_us: int
) -> tuple[EvidenceItem, ...]:
    """Return the items; an item that is older at `now_us` than its requirement allows loses its name.

    So does an item that was observed after `now_us`, because its age is unknown. The maximum age is inclusive.
    """
    allowed = {path.name: path.max_age_s for path in named}
    return tuple(
        item.model_copy(update={"name": None}) if _stale(item, allowed.get(item.name or ""), now_us) else item
        for item in items
    )


def _stale(item: EvidenceItem, max_age_s: int | None, now_us: int) -> bool:
    return max_age_s is not None and not 0 <= now_us - item.observed_at_us <= max_age_s * 1_000_000


def _answers(edges: GraphEdges, query: RetrievalQuery, distances: Mapping[str, int]) -> dict[str, int | UnmetReason]:
    """Return, for each name, the index of the edge that answers it, or the reason why there is none.

    Two requirements with the same name must both be met by the same value; otherwise they conflict.
    """
    cut_off = _cut_off(edges, query, distances)
    answers: dict[str, int | UnmetReason] = {}
    for requirement in query.named:
        answer = _answer(edges, query, requirement, cut_off)
        name = requirement.name
        if name in answers and _value_of(edges, answers[name]) != _value_of(edges, answer):
            answer = "conflict"
        answers[name] = answer
    return answers


def _answer(
    edges: GraphEdges, query: RetrievalQuery, requirement: EvidencePath, cut_off: set[str] | None
) -> int | UnmetReason:
    reached = {query.seeds[requirement.seed]} if requirement.seed < len(query.seeds) else set()
    trusted: list[int] = []
    untrusted_seen = False
    for predicate in requirement.path:
        if cut_off is None or reached & cut_off:
            return "cut_off"
        step = [index for index, edge in enumerate(edges) if edge["src"] in reached and edge["predicate"] == predicate]
        trusted = [index for index in step if edges[index]["integrity"] == "trusted"]
        untrusted_seen = untrusted_seen or len(trusted) < len(step)
        reached = {edges[index]["dst"] for index in trusted}
    if not trusted:
        return "untrusted" if untrusted_seen else "missing"
    if len(trusted) == 1:
        return trusted[0]
    if len({_digest(edges[index], value_only=True) for index in trusted}) > 1:
        return "conflict"
    return min(trusted, key=lambda index: _newest_first(edges[index]))


def _newest_first(edge: Mapping[str, JsonValue]) -> tuple[int, str, str]:
    return -_observed_at_us(edge), _digest(edge), str(edge["evidence_ref"])


def _value_of(edges: GraphEdges, answer: int | UnmetReason) -> str:
    return _digest(edges[answer], value_only=True) if isinstance(answer, int) else answer


def _cut_off(edges: GraphEdges, query: RetrievalQuery, distances: Mapping[str, int]) -> set[str] | None:
    """Return the nodes of which a limit can have hidden edges; None if it can be any node.

    A limit that is reached counts as exceeded, because one more edge would not be visible.
    """
    if len(edges) >= query.limit:
        return None
    touching = Counter(end for edge in edges for end in {edge["src"], edge["dst"]})
    full = {node for node, count in touching.items() if count >= query.fan_out}
    return full | {node for node, distance in distances.items() if distance >= query.hops}


def _distances(edges: GraphEdges, seeds: Sequence[str]) -> dict[str, int]:
    """Return the number of edges between each node and its nearest seed. Edges count in both directions."""
    neighbours = defaultdict(set)
    for edge in edges:
        neighbours[edge["src"]].add(edge["dst"])
        neighbours[edge["dst"]].add(edge["src"])
    distances, frontier, distance = dict.fromkeys(seeds, 0), set(seeds), 0
    while frontier:
        distance += 1
        frontier = {end for node in frontier for end in neighbours[node]} - distances.keys()
        distances.update(dict.fromkeys(frontier, distance))
    return distances


def _item(edge: Mapping[str, JsonValue], snapshot: str, hop: int, name: str | None) -> EvidenceItem:
    subject, predicate, value = edge["src"], edge["predicate"], _value(edge)
    try:
        return EvidenceItem(
            evidence_ref=kg_ref(subject, snapshot),
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


def _order(item: EvidenceItem) -> tuple[Any, ...]:
    """Sort key of items. Among equal statements, named items come first."""
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


def _digest(edge: Mapping[str, JsonValue], *, value_only: bool = False) -> str:
    return content_address([_value(edge)]) if value_only else fact_digest(edge["src"], edge["predicate"], _value(edge))


def _value(edge: Mapping[str, JsonValue]) -> JsonValue:
    return edge["value"] if "value" in edge else edge["dst"]


def _observed_at_us(edge: Mapping[str, JsonValue]) -> int:
    """Return Unix time in microseconds; 0 (older than any limit) for a time that cannot be parsed."""
    observed = edge["observed_at"]
    if isinstance(observed, int):
        return observed
    if not TIMESTAMP.fits(observed):
        return 0
    seconds, _, fraction = observed.removesuffix("Z").partition(".")
    since = datetime.fromisoformat(seconds).replace(tzinfo=UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
