"""Defaults are filled in at every depth, where the schema says of which value they are, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.defaults import _Filler, is_default, with_defaults, without_null_defaults
from contextos.contracts.encoding.jcs import same_json
from contextos.contracts.encoding.pointer import MISSING

INNER = {"type": "object", "properties": {"b": {"default": 1}}, "additionalProperties": False}
CARD = {"type": "object", "properties": {"kind": {"const": "card"}, "limit": {"default": 9}}, "required": ["kind"]}
CASH = {"type": "object", "properties": {"kind": {"const": "cash"}, "limit": {"default": 1}}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("argument", "given", "filled"),
    [
        ({"default": 5}, {}, {"a": 5}),
        ({"default": 5}, {"a": None}, {"a": None}),
        ({"default": None}, {}, {"a": None}),
        ({"default": {}} | INNER, {}, {"a": {"b": 1}}),
        (INNER, {}, {}),
        (INNER, {"a": {}}, {"a": {"b": 1}}),
        (INNER, {"a": 5}, {"a": 5}),
        ({"$ref": "#/$defs/T"}, {"a": {}}, {"a": {"b": 1}}),
        ({"$ref": "#/$defs/D"}, {}, {"a": 7}),
        ({"allOf": [{"$ref": "#/$defs/T"}, {"properties": {"c": {"default": 2}}}]}, {"a": {}}, {"a": {"b": 1, "c": 2}}),
        ({"items": INNER}, {"a": [{}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 2}]}),
        ({"prefixItems": [INNER], "items": {}}, {"a": [{}, {}]}, {"a": [{"b": 1}, {}]}),
        ({"additionalProperties": INNER}, {"a": {"x": {}}}, {"a": {"x": {"b": 1}}}),
        ({"anyOf": [INNER, {"type": "null"}]}, {"a": {}}, {"a": {"b": 1}}),
        ({"anyOf": [INNER, {"type": "null"}]}, {"a": None}, {"a": None}),
        ({"oneOf": [CARD, CASH]}, {"a": {"kind": "cash"}}, {"a": {"kind": "cash", "limit": 1}}),
        ({"oneOf": [CARD, CASH]}, {"a": {}}, {"a": {}}),
        ({"anyOf": [INNER, INNER]}, {"a": {}}, {"a": {}}),
        ({"not": {"default": 3}}, {}, {}),
        (True, {"a": 1}, {"a": 1}),
    ],
)
def test_a_default_is_filled_in_where_it_belongs(argument: Any, given: Any, filled: Any) -> None:
    definitions = {"T": INNER, "D": {"type": "integer", "default": 7}}
    assert with_defaults({"properties": {"a": argument}, "$defs": definitions}, given) == filled


def test_a_required_argument_is_for_the_caller_to_state() -> None:
    assert with_defaults({"properties": {"a": {"default": 5}}, "required": ["a"]}, {}) == {}


def test_what_is_known_later_is_left_alone() -> None:
    schema = {"properties": {"a": {"default": 5}, "b": INNER}}
    binding = {"from": "request", "pointer": "/input"}
    assert with_defaults(schema, {"b": binding}, ["a", "b"]) == {"b": binding}


def test_a_filled_default_is_nobodys_to_change() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"default": [1]}}}
    with_defaults(schema, {})["a"].append(2)
    assert schema["properties"]["a"]["default"] == [1]


def test_a_null_by_default_is_as_left_out() -> None:
    schema = {"properties": {"a": {"default": None}, "b": {}}}
    assert without_null_defaults(schema, {"a": None, "b": None}) == {"b": None}
    assert is_default(schema, "a", None)
    assert not is_default(schema, "b", None)


@pytest.mark.parametrize("schema", [{"properties": {"a": {"default": one}, "b": {}}} for one in (1, True, "1", None)])
def test_the_default_of_one_schema_is_not_that_of_another(schema: dict[str, Any]) -> None:
    for name, value in [("a", one) for one in (1, True, "1", None, 1.0)] + [("b", 1)]:
        stated = _Filler(schema).default(schema["properties"][name])
        assert is_default(schema, name, value) == (stated is not MISSING and same_json(stated, value))
