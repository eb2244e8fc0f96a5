"""Evidence from the graph at a pinned snapshot.

An item is an edge: subject and predicate are the edge's, its value is the edge's `value` or else its `dst`. What is
known of a thing is what edges say of it, its own literals included (an edge with a `value`): nodes carry no evidence
ref, so their properties are not evidence. Refs of different edges of one subject are equal and told apart by digest.

A named requirement follows predicates from `src` to `dst`, starting at a seed. Its item gets the name only if every
edge of the path is trusted, no node of the path may have been cut off by a bound, and all values found are equal.
In every other case nothing gets the name, the items stay in the answer without one, and `explain` says why.
There is no clock here: `drop_stale_names` takes the name from stale items, at the time that the caller's journal says.
Source: shared/design/contracts.md, "Identifiers", "Compile"; contextos-facts.md, section 14.
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
    """The content address of a statement; what two answers are compared by."""
    return content_address({"subject": subject, "predicate": predicate, "value": value})


class GraphKnowledge:
    """The `Knowledge` seam over one tenant's graph; it holds no other, so crossing tenants is impossible."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._newest = graph, 0

    async def snapshot(self) -> str:
        """The newest snapshot, `kg_<commit number>`; pinning it costs nothing."""
        self._newest = await self._graph.head()
        return f"kg_{self._newest}"

    async def retrieve(self, query: RetrievalQuery) -> tuple[EvidenceItem, ...]:
        """The items within the query's bounds at its snapshot, ordered by hop, subject, predicate and digest.

        Raises:
            NotFound: the snapshot is not one of this graph.
            Integrity: the graph holds an edge that makes no evidence.
        """
        edges = await self._edges(query)
        away = _distances(edges, query.seeds)
        answers = _answers(edges, query, away)
        # One edge may answer several requirements, and an item has one name.
        names: list[list[str | None]] = [
            [name for name, hit in answers.items() if hit == at] for at in range(len(edges))
        ]
        items = [
            _item(edge, query.snapshot, 1 + min(away[edge["src"]], away[edge["dst"]]), name)
            for at, edge in enumerate(edges)
            for name in names[at] or [None]
        ]
        return tuple(sorted(items, key=_order))

    async def explain(self, query: RetrievalQuery) -> dict[str, UnmetReason]:
        """Why each named requirement without an answer has none, for a person. Raises as `retrieve` does."""
        edges = await self._edges(query)
        answers = _answers(edges, query, _distances(edges, query.seeds))
        return {name: reason for name, reason in answers.items() if not isinstance(reason, int)}

    async def _edges(self, query: RetrievalQuery) -> GraphEdges:
        match = _SNAPSHOT.fullmatch(query.snapshot)
        commit = int(match[1]) if match else -1
        # Commits are only added, so what was a snapshot once is one.
        if commit > self._newest:
            self._newest = await self._graph.head()
        if not 0 <= commit <= self._newest:
            raise NotFound(f"there is no snapshot `{query.snapshot}` of this graph; pin one that `snapshot` gave")
        return await self._graph.neighbourhood(
            query.seeds, at=commit, hops=query.hops, fan_out=query.fan_out, limit=query.limit
        )


def drop_stale_names(
    items: Sequence[EvidenceItem], named: Sequence[EvidencePath], now_us: int
) -> tuple[EvidenceItem, ...]:
    """The same items, without the name where one is older than its requirement allows at `now_us`.

    Refuses an item that was observed after `now_us` in the same way: its age is unknown. A bound is inclusive.
    """
    allowed = {path.name: path.max_age_s for path in named}
    return tuple(
        item.model_copy(update={"name": None}) if _stale(item, allowed.get(item.name or ""), now_us) else item
        for item in items
    )


def _stale(item: EvidenceItem, max_age_s: int | None, now_us: int) -> bool:
    return max_age_s is not None and not 0 <= now_us - item.observed_at_us <= max_age_s * 1_000_000


def _answers(edges: GraphEdges, query: RetrievalQuery, away: Mapping[str, int]) -> dict[str, int | UnmetReason]:
    """By name: the number of the edge that answers it, or why none does.

    Two requirements of one name must both be met, and by one value: otherwise they are in conflict.
    """
    cut = _cut_off(edges, query, away)
    found: dict[str, int | UnmetReason] = {}
    for wanted in query.named:
        answer = _answer(edges, query, wanted, cut)
        if wanted.name in found and _value_of(edges, found[wanted.name]) != _value_of(edges, answer):
            answer = "conflict"
        found[wanted.name] = answer
    return found


def _answer(edges: GraphEdges, query: RetrievalQuery, wanted: EvidencePath, cut: set[str] | None) -> int | UnmetReason:
    reached = {query.seeds[wanted.seed]} if wanted.seed < len(query.seeds) else set()
    last: list[int] = []
    doubtful = False
    for predicate in wanted.path:
        if cut is None or reached & cut:
            return "cut_off"
        step = [at for at, edge in enumerate(edges) if edge["src"] in reached and edge["predicate"] == predicate]
        last = [at for at in step if edges[at]["integrity"] == "trusted"]
        doubtful = doubtful or len(last) < len(step)
        reached = {edges[at]["dst"] for at in last}
    if not last:
        return "untrusted" if doubtful else "missing"
    if len(last) == 1:
        return last[0]
    if len({_digest(edges[at], value_only=True) for at in last}) > 1:
        return "conflict"
    return min(last, key=lambda at: (-_observed_at_us(edges[at]), _digest(edges[at]), str(edges[at]["evidence_ref"])))


def _value_of(edges: GraphEdges, answer: int | UnmetReason) -> str:
    return _digest(edges[answer], value_only=True) if isinstance(answer, int) else answer


def _cut_off(edges: GraphEdges, query: RetrievalQuery, away: Mapping[str, int]) -> set[str] | None:
    """The nodes of which a bound may have hidden edges; None where it may be any node.

    A bound that is reached counts: whether one edge more was there cannot be seen.
    """
    if len(edges) >= query.limit:
        return None
    touching = Counter(end for edge in edges for end in {edge["src"], edge["dst"]})
    full = {node for node, count in touching.items() if count >= query.fan_out}
    return full | {node for node, distance in away.items() if distance >= query.hops}


def _distances(edges: GraphEdges, seeds: Sequence[str]) -> dict[str, int]:
    """How many edges each node is away from the nearest seed; edges lead both ways."""
    beside = defaultdict(set)
    for edge in edges:
        beside[edge["src"]].add(edge["dst"])
        beside[edge["dst"]].add(edge["src"])
    away, frontier, distance = dict.fromkeys(seeds, 0), set(seeds), 0
    while frontier:
        distance += 1
        frontier = {end for node in frontier for end in beside[node]} - away.keys()
        away.update(dict.fromkeys(frontier, distance))
    return away


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
        detail = f"edge `{predicate}` of `{subject}` makes no evidence; withdraw it and put one that names entities"
        raise Integrity(detail) from None


def _order(item: EvidenceItem) -> tuple[Any, ...]:
    """Total but for items that are equal in all of this; names come first among equals."""
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
    """Unix time in microseconds; 0, older than any bound, for a time that cannot be read."""
    observed = edge["observed_at"]
    if isinstance(observed, int):
        return observed
    if not TIMESTAMP.fits(observed):
        return 0
    seconds, _, fraction = observed.removesuffix("Z").partition(".")
    since = datetime.fromisoformat(seconds).replace(tzinfo=UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
