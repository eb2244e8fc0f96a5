"""The parts of a schema that are about the same value."""

from __future__ import annotations

from contextos.adapters.foreign.parts import always_required, in_place, properties_of

REFERRED = {"properties": {"r": {"readOnly": True}}, "allOf": [{"$ref": "#"}]}
SCHEMA = {
    "properties": {"a": {"properties": {"inside": {}}}},
    "required": ["a", "x"],
    "anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"$ref": "#"}],
    "if": {"required": ["c"]},
    "dependentSchemas": {"a": {"properties": {"d": {}}}},
    "not": {"properties": {"n": {}}},
}


def test_parts_are_found_through_lists_conditions_and_references_and_not_below() -> None:
    parts = [*in_place(SCHEMA, lambda _: REFERRED)]
    assert properties_of(parts) == {"a": True, "b": True, "d": True, "r": False}
    assert always_required(parts) == {"a", "b", "x"}
