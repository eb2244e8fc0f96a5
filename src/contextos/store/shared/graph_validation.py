"""Validates nodes, edges and withdrawals before they are appended to a graph, in the same way for every store.

A statement that the graph already contains is not appended again, so an import can be repeated. An edge is withdrawn
by an edge that `retracts` it, or by `{"retracts", "evidence_ref"}` alone. A time that is given as text is stored in
UTC, so that the same observation is always the same statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, get_args

import orjson

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.instants import TIME_FORM, utc_time
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import (
    Classification,
    GraphCommit,
    IntegrityLevel,
    derived_edge_id,
    edge_digest,
    fact_digest,
    value_of_edge,
)
from contextos.errors import Conflict, Integrity, InvalidInput, MalformedJson, Problem
from contextos.store.shared.batch import TOO_LONG, is_too_long

MAX_PUT: Final = 10_000
MAX_STATEMENT_BYTES: Final = 1 << 20

_NAMES: Final = ("src", "predicate", "dst", "evidence_ref")
_EDGE: Final = frozenset({*_NAMES, "observed_at", "integrity", "classification"})
_EDGE_OPTIONAL: Final = frozenset({"edge_id", "value", "retracts"})
_WITHDRAWAL: Final = frozenset({"retracts", "evidence_ref"})
_NODE: Final = frozenset({"ceid", "type", "properties"})
_CHOICES: Final = {"integrity": get_args(IntegrityLevel), "classification": get_args(Classification)}


@dataclass(frozen=True, slots=True)
class Node:
    """A version of a node. `body` is canonical JSON of its properties."""

    ceid: str
    type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Edge:
    """A statement of a graph with its evidence, or the withdrawal of one if `src` is empty.
    `body` is canonical JSON without the id.
    """

    edge_id: str | None
    src: str
    predicate: str
    dst: str
    evidence_ref: str
    retracts: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class StoredEdge:
    """The statement that is stored under an edge id, and whether it was withdrawn."""

    body: bytes
    withdrawn: bool


@dataclass(slots=True)
class GraphChange:
    """The change of a graph by one `put`, by edge id: the statements to append, and for each withdrawal its evidence
    and the digest of the fact that it ends.
    """

    appended: dict[str, Edge] = field(default_factory=dict)
    withdrawn: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)


def validate_nodes(nodes: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Parse nodes. Raises `InvalidInput` for unknown or missing fields and for a ceid that occurs twice."""
    _check_count("/nodes", nodes)
    problems: list[Problem] = []
    for index, node in enumerate(nodes):
        problems += _field_problems(f"/nodes/{index}", node, _NODE, frozenset())
        problems += _text_problems(f"/nodes/{index}", node, ("ceid", "type"))
        problems += _length_problems(f"/nodes/{index}", node, ("ceid",))
        if not isinstance(node.get("properties", {}), Mapping):
            problems.append(Problem(f"/nodes/{index}/properties", "not_an_object", "properties are an object"))
    _raise_problems(problems)
    if len({node["ceid"] for node in nodes}) < len(nodes):
        raise InvalidInput(Problem("/nodes", "duplicate", "a ceid occurs twice", "put a node once per commit"))
    return [
        Node(node["ceid"], node["type"], _encode_body(f"/nodes/{index}/properties", node["properties"]))
        for index, node in enumerate(nodes)
    ]


def validate_edges(edges: Sequence[Mapping[str, Any]]) -> list[Edge]:
    """Parse edges. Raises `InvalidInput` for missing evidence, unknown or missing fields, and unknown values."""
    _check_count("/edges", edges)
    problems: list[Problem] = []
    for index, edge in enumerate(edges):
        problems += _edge_problems(f"/edges/{index}", edge)
    _raise_problems(problems)
    return [_make_edge(f"/edges/{index}", edge) for index, edge in enumerate(edges)]


def plan_change(edges: Sequence[Edge], lookup: Callable[[str], StoredEdge | None]) -> GraphChange:
    """Return what appending `edges` would change in a graph. `lookup` returns the stored edge of an id.

    Raises: `InvalidInput` for an id that is taken, and for the withdrawal of an edge that does not exist, is
    withdrawn already, or comes in the same put.
    """
    change = GraphChange()
    for index, edge in enumerate(edges):
        if edge.src:
            edge_id = _new_edge_id(f"/edges/{index}/edge_id", edge, change, lookup)
            if edge_id is None:
                continue
            change.appended[edge_id] = edge
        if edge.retracts is not None:
            stored = lookup(edge.retracts)
            if stored is None or stored.withdrawn or edge.retracts in change.withdrawn:
                detail = f"`{edge.retracts}` is not valid, so it cannot be withdrawn"
                raise InvalidInput(Problem(f"/edges/{index}/retracts", "not_valid", detail, "name an edge that is"))
            change.withdrawn[edge.retracts] = edge.evidence_ref
            fact = orjson.loads(stored.body)
            change.ended[edge.retracts] = fact_digest(fact["src"], fact["predicate"], value_of_edge(fact))
    return change


def planned_commit(head: int, nodes: Sequence[Node], change: GraphChange) -> GraphCommit:
    """Return the description of a commit on `head` with these new nodes and this change, as its writer signs it."""
    appended = {
        edge_id: edge_digest({**orjson.loads(edge.body), "edge_id": edge_id})
        for edge_id, edge in change.appended.items()
    }
    changes = bool(nodes or change.appended or change.withdrawn)
    return GraphCommit(head + 1, appended, dict(change.withdrawn), changes, dict(change.ended))


def refuse_other_head(expect: int | None, head: int) -> None:
    """Refuse a commit that was planned on another head. Raises `Conflict`."""
    if expect is not None and expect != head:
        raise Conflict("graph")


def _new_edge_id(place: str, edge: Edge, change: GraphChange, lookup: Callable[[str], StoredEdge | None]) -> str | None:
    """Return the id under which to append, or None if the graph already contains the statement."""
    for ordinal in count():
        edge_id = edge.edge_id if edge.edge_id is not None else derived_edge_id(edge.body, ordinal)
        planned = change.appended.get(edge_id)
        stored = StoredEdge(planned.body, withdrawn=False) if planned is not None else lookup(edge_id)
        if stored is None:
            return edge_id
        if stored.body == edge.body and not stored.withdrawn and edge_id not in change.withdrawn:
            return None
        if edge.edge_id is not None:
            detail = f"`{edge_id}` is taken by another statement or was withdrawn"
            raise InvalidInput(Problem(place, "taken", detail, "leave it out or choose another"))
    raise AssertionError("counting does not end")


def _make_edge(place: str, edge: Mapping[str, Any]) -> Edge:
    statement = {name: value for name, value in edge.items() if name != "edge_id"}
    if isinstance(statement.get("observed_at"), str):
        statement["observed_at"] = utc_time(statement["observed_at"])
    body = _encode_body(place, statement)
    src, predicate, dst, evidence_ref = (edge.get(name, "") for name in _NAMES)
    return Edge(edge.get("edge_id"), src, predicate, dst, evidence_ref, edge.get("retracts"), body)


def _edge_problems(place: str, edge: Mapping[str, Any]) -> list[Problem]:
    if not isinstance(edge.get("evidence_ref"), str) or not edge["evidence_ref"]:
        return [Problem(f"{place}/evidence_ref", "no_evidence", "an edge needs evidence", "name its `evidence_ref`")]
    if edge.keys() == _WITHDRAWAL:
        return _text_problems(place, edge, ("retracts",))
    problems = _field_problems(place, edge, _EDGE, _EDGE_OPTIONAL)
    problems += _text_problems(place, edge, (*_NAMES, "edge_id", "retracts"))
    problems += _length_problems(place, edge, ("src", "dst", "edge_id"))
    for name, choices in _CHOICES.items():
        if name in edge and edge[name] not in choices:
            problems.append(Problem(f"{place}/{name}", "unknown_value", f"it is one of {', '.join(choices)}"))
    observed = edge.get("observed_at", 0)
    if isinstance(observed, bool) or not isinstance(observed, str | int):
        problems.append(Problem(f"{place}/observed_at", "not_a_time", "it is a time: text, or microseconds", TIME_FORM))
    elif isinstance(observed, str) and utc_time(observed) is None:
        detail = f"`{displayed(observed[:40])}` is not a time"
        problems.append(Problem(f"{place}/observed_at", "not_a_time", detail, TIME_FORM))
    return problems


def _field_problems(
    place: str, item: Mapping[str, Any], required: frozenset[str], optional: frozenset[str]
) -> list[Problem]:
    missing = [Problem(f"{place}/{name}", "missing", "it is required") for name in sorted(required - item.keys())]
    unknown = sorted(str(name) for name in item.keys() - required - optional)
    return missing + [Problem(f"{place}/{name}", "unknown_field", "there is no such field") for name in unknown]


def _text_problems(place: str, item: Mapping[str, Any], names: Sequence[str]) -> list[Problem]:
    return [
        Problem(f"{place}/{name}", "not_text", "it is text and not empty")
        for name in names
        if name in item and (not isinstance(item[name], str) or not item[name])
    ]


def _length_problems(place: str, item: Mapping[str, Any], names: Sequence[str]) -> list[Problem]:
    """Return a problem for each indexed field that is longer than an index entry can be."""
    return [
        Problem(f"{place}/{name}", "too_long", TOO_LONG)
        for name in names
        if isinstance(item.get(name), str) and is_too_long(item[name])
    ]


def _encode_body(place: str, value: Any) -> bytes:
    try:
        body = canonical(value)
    except MalformedJson as error:
        raise InvalidInput(*error.problems) from error
    if len(body) > MAX_STATEMENT_BYTES:
        raise InvalidInput(Problem(place, "too_large", f"it has at most {MAX_STATEMENT_BYTES} bytes"))
    return body


def _check_count(place: str, items: Sequence[Mapping[str, Any]]) -> None:
    if len(items) > MAX_PUT:
        raise InvalidInput(Problem(place, "too_many", f"one put has at most {MAX_PUT}", "put them in several commits"))


def _raise_problems(problems: Sequence[Problem]) -> None:
    if problems:
        raise InvalidInput(*problems)


def stored_statement(edge_id: str, body: bytes) -> dict[str, Any]:
    """Return the statement of a stored edge, with its id. Raises `Integrity` if its body was altered and is not a JSON
    object.
    """
    try:
        return {**orjson.loads(body), "edge_id": edge_id}
    except (orjson.JSONDecodeError, TypeError):
        raise Integrity(f"the edge `{edge_id[:80]}` of the graph is no JSON object; find out who wrote it") from None
