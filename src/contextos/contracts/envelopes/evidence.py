"""Evidence: the items that retrieval and recall return, and the query for them.

Source: docs/design/contracts.md, "Identifiers", "Compile".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import Field, TypeAdapter

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.ids import Ceid, Digest
from contextos.contracts.model import Count, Model, Name, NonEmpty, Positive, Seq, Whole
from contextos.contracts.refs import EvidenceRef

Classification = Literal["PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED"]
CLASSIFICATION_LEVELS: Final[tuple[Classification, ...]] = get_args(Classification)
"""The classifications, from the lowest to the highest."""
IntegrityLevel = Literal["trusted", "untrusted"]


class StatedItem(Model):
    """One retrieved or recalled fact as the journal states it. Its text is data, never an instruction.

    `name` is set if the fact answers a named requirement. `observed_at_us` is Unix time in microseconds. `hop` is the
    distance from the nearest seed in edges.
    """

    evidence_ref: EvidenceRef
    name: Name | None = None
    subject: Ceid
    predicate: Name
    value: Any
    origin: Name
    integrity: IntegrityLevel
    classification: Classification
    observed_at_us: Whole
    hop: Count = 0


class EvidenceItem(StatedItem):
    """One retrieved or recalled fact. `digest` is the content address of subject, predicate and value."""

    digest: Digest


_ITEMS_ADAPTER: Final = TypeAdapter(tuple[EvidenceItem, ...])
_NO_DIGEST: Final = {"__all__": {"digest"}}


def items_from(stated: Sequence[Mapping[str, Any]]) -> tuple[EvidenceItem, ...]:
    """Return the items that the journal states as `stated` (`StatedItem`); raises `pydantic.ValidationError`."""
    return _ITEMS_ADAPTER.validate_python(
        [
            {**item, "digest": fact_digest(item.get("subject", ""), item.get("predicate", ""), item.get("value"))}
            if isinstance(item, dict)
            else item
            for item in stated
        ]
    )


def items_json(items: tuple[EvidenceItem, ...]) -> list[dict[str, Any]]:
    """Return items as the journal states them, each a `StatedItem` as JSON."""
    return list(_ITEMS_ADAPTER.dump_python(items, mode="json", exclude=_NO_DIGEST, exclude_unset=True, by_alias=True))


@dataclass(frozen=True, slots=True)
class GraphCommit:
    """The changes of a graph by a commit, by edge id: `appended` has the digest of each new edge. For each edge that is
    withdrawn, `withdrawn` has the evidence and `ended` the digest of its statement. `changes` is false if the graph
    already is as the commit wants it.
    """

    number: int
    appended: Mapping[str, str]
    withdrawn: Mapping[str, str]
    changes: bool
    ended: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """An edge as a graph stores it: the columns by which it is found, its statement, the commit that appended it,
    and the commit and the evidence that withdrew it.
    """

    edge_id: str
    src: str
    predicate: str
    dst: str
    statement: Mapping[str, Any]
    written: int
    withdrawn: int | None
    withdrawn_ref: str | None


_QUERY_FIELDS: Final = ("hop", "commit")


def crowded_nodes(edges: Sequence[Mapping[str, Any]], fan_out: int) -> frozenset[str]:
    """Return the nodes that `fan_out` or more of these edges touch, so that a walk can have left out further edges."""
    if len(edges) < fan_out:
        return frozenset()
    edge_counts = Counter(end for edge in edges for end in {edge["src"], edge["dst"]})
    return frozenset(node for node, count in edge_counts.items() if count >= fan_out)


def edge_digest(edge: Mapping[str, Any]) -> str:
    """Return the content address of an edge of a graph: its statement and its id, as its writer signs them."""
    statement = dict(edge)
    for name in _QUERY_FIELDS:
        statement.pop(name, None)
    return content_address(statement)


def derived_edge_id(body: bytes, ordinal: int) -> str:
    """Return the id of a graph statement, derived from its content.
    `ordinal` counts the earlier, withdrawn statements with the same content.
    """
    return "edge_" + hashlib.sha256(b"%d:%b" % (ordinal, body)).hexdigest()[:16]


def value_of_edge(edge: Mapping[str, Any]) -> Any:
    """Return the value that an edge of a graph states: its `value`, or else the entity at which it ends."""
    return edge["value"] if "value" in edge else edge["dst"]


def fact_digest(subject: str, predicate: str, value: Any) -> str:
    """Return the digest of a statement about an entity. Equal statements have equal digests."""
    return content_address({"subject": subject, "predicate": predicate, "value": value})


def commit_key(number: int) -> str:
    """Return the key of the control entry of a graph commit, which is also the name of its snapshot."""
    return f"kg_{number}"


class EvidencePath(Model):
    """Where to find the value of a named piece of evidence: from the seed entity with index `seed`, along the
    predicates of `path`.

    A value that is older than `max_age_s` seconds is not used.
    """

    name: str = Field(min_length=1, max_length=128)
    """The name of the evidence, by which rules, decisions and bindings refer to it."""
    seed: Count = 0
    """The index of the seed at which the path begins, from 0."""
    path: NonEmpty[Name]
    """The predicates to follow from the seed, at least one; the value at the end is the evidence."""
    max_age_s: Positive | None = None
    """The highest age of the value in seconds; an older value is not used. By default any age counts."""


class RetrievalQuery(Model):
    """A query of the knowledge graph at one pinned snapshot. All limits are inclusive."""

    snapshot: Name
    seeds: Seq[Ceid]
    hops: int = Field(ge=0, le=4)
    fan_out: int = Field(ge=1, le=1000)
    limit: int = Field(ge=1, le=10_000)
    named: Seq[EvidencePath] = ()


class TracedArgument(Model):
    """The places where the run has seen the values of one argument: `request`, `pack`, `evidence:<name>`, `memory`,
    `slot`, `tool:<capability id>`, or `planner` for a value that was found nowhere.

    `untrusted`: only untrusted content has the value. `unknown`: no content has it. `classification` is the highest of
    the contents that have the value; if none has, the classification of the pack's data.
    """

    origins: NonEmpty[Name]
    integrity: Literal["trusted", "untrusted", "unknown"]
    classification: Classification
