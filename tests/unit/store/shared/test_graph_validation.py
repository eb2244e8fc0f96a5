"""A graph takes statements with evidence only, each once, and withdraws each once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.contracts.envelopes.evidence import derived_edge_id
from contextos.errors import InvalidInput
from contextos.store.shared.graph_validation import MAX_PUT, StoredEdge, plan_change, validate_edges, validate_nodes

EDGE = {
    "src": "order:1",
    "predicate": "placed_by",
    "dst": "customer:2",
    "evidence_ref": "kg:order:1",
    "observed_at": 1,
    "integrity": "trusted",
    "classification": "INTERNAL",
}

BODY = json.dumps(EDGE).encode()


def code_of(act: Any, *arguments: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        act(*arguments)
    return refused.value.problems[0].code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"evidence_ref": ""}, "no_evidence"),
        ({"evidence_ref": None}, "no_evidence"),
        ({"src": ""}, "not_text"),
        ({"src": "n" * 801}, "too_long"),
        ({"integrity": "very"}, "unknown_value"),
        ({"observed_at": True}, "not_a_time"),
        ({"observed_at": ""}, "not_a_time"),
        ({"color": "red"}, "unknown_field"),
    ],
)
def test_an_edge_that_does_not_fit_is_refused(change: dict[str, Any], code: str) -> None:
    assert code_of(validate_edges, [{**EDGE, **change}]) == code


def test_a_put_has_a_limit_and_a_missing_field_is_named() -> None:
    assert code_of(validate_edges, [EDGE] * (MAX_PUT + 1)) == "too_many"
    assert code_of(validate_edges, [{name: EDGE[name] for name in EDGE if name != "dst"}]) == "missing"


def test_a_node_is_put_once_and_its_properties_are_an_object() -> None:
    node = {"ceid": "order:1", "type": "order", "properties": {"b": 1, "a": 2}}
    assert validate_nodes([node])[0].body == b'{"a":2,"b":1}'
    assert code_of(validate_nodes, [node, node]) == "duplicate"
    assert code_of(validate_nodes, [{**node, "properties": []}]) == "not_an_object"


def test_a_repeated_import_appends_nothing() -> None:
    [edge] = validate_edges([EDGE])
    edge_id = derived_edge_id(edge.body, 0)
    assert list(plan_change([edge, edge], {}.get).appended) == [edge_id]
    stored = {edge_id: StoredEdge(edge.body, withdrawn=False)}
    assert plan_change([edge], stored.get).appended == {}
    withdrawn = {edge_id: StoredEdge(edge.body, withdrawn=True)}
    assert list(plan_change([edge], withdrawn.get).appended) == [derived_edge_id(edge.body, 1)]


def test_an_id_is_never_reused_for_another_statement() -> None:
    [edge] = validate_edges([{**EDGE, "edge_id": "e1"}])
    stored = {"e1": StoredEdge(b"another", withdrawn=False)}
    assert code_of(plan_change, [edge], stored.get) == "taken"


@pytest.mark.parametrize("stored", [{}, {"e1": StoredEdge(BODY, withdrawn=True)}], ids=["absent", "withdrawn"])
def test_only_a_valid_edge_is_withdrawn_and_only_once(stored: dict[str, StoredEdge]) -> None:
    [withdrawal] = validate_edges([{"retracts": "e1", "evidence_ref": "kg:x"}])
    assert code_of(plan_change, [withdrawal], stored.get) == "not_valid"
    valid = {"e1": StoredEdge(BODY, withdrawn=False)}
    assert plan_change([withdrawal], valid.get).withdrawn == {"e1": "kg:x"}
    assert code_of(plan_change, [withdrawal, withdrawal], valid.get) == "not_valid"
