"""The schemas of tools that state them themselves: what servers write is taken, and nothing more than they accept."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.foreign.tool_schemas import tool_answer, tool_arguments
from contextos.errors import InvalidInput
from tests.openapi_documents import accepts

A, B = {"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}
EMAIL = r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z.]+$"


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        # A format that nobody knows is an annotation; every server in Rust has them.
        ({"properties": {"n": {"type": "integer", "format": "uint32", "minimum": 0}}}, {"n": 5}, {"n": -1}),
        (
            {"definitions": {"T": A}, "properties": {"t": {"$ref": "#/definitions/T"}}},
            {"t": {"a": "x"}},
            {"t": {"b": 1}},
        ),
        ({"$id": "urn:t", "$defs": {"T": A}, "allOf": [{"$ref": "urn:t#/$defs/T"}]}, {"a": "x"}, {"a": 1}),
        ({"properties": {"mail": {"type": "string", "pattern": EMAIL}}}, {"mail": "a.b@c.d"}, {"mail": ".a@c.d"}),
        ({"properties": {"mail": {"type": "string", "pattern": EMAIL}}}, {"mail": "a@c.d"}, {"mail": "a..b@c.d"}),
        ({"properties": {"x": {"type": "string", "pattern": "^(?=.*[0-9]).{3,}$"}}}, {"x": "ab1"}, {"x": "abc"}),
        # Alternatives at the root.
        ({"anyOf": [A, B]}, {"a": "x"}, {"c": 1}),
        ({"anyOf": [A, B]}, {"a": "x", "b": 1}, {"a": 1, "b": "x"}),
        ({"oneOf": [{**A, "required": ["a"]}, {**B, "required": ["b"]}]}, {"b": 1}, {"a": "x", "b": 1}),
        ({"anyOf": [{**A, "additionalProperties": True}, B]}, {"a": "x"}, {"c": 1}),
        ({**A, "anyOf": [{"required": ["a"]}, {"required": ["z"]}]}, {"z": [1]}, {"y": 1}),
        ({**A, "additionalProperties": True}, {"a": "x"}, {"c": 1}),
        ({"additionalProperties": {"type": "integer"}, "anyOf": [B]}, {"b": 1}, {"c": 1}),
        ({**A, "additionalProperties": False, "anyOf": [B]}, {"a": "x"}, {"b": 1}),
        ({"unevaluatedProperties": False, "anyOf": [A, B]}, {"a": "x", "b": 1}, {"a": "x", "b": "x"}),
        ({"patternProperties": {"^x-": {"type": "string"}}}, {"x-a": "y"}, {"y": "y"}),
        ({"required": ["a"]}, {"a": None}, {}),
        # Earlier drafts.
        ({"properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}}, {"n": 1}, {"n": 0}),
        (
            {"properties": {"l": {"items": [{"type": "string"}], "additionalItems": False}}},
            {"l": ["a"]},
            {"l": ["a", 1]},
        ),
        ({**A, "dependencies": {"a": ["b"], "b": B}}, {"a": "x", "b": 1}, {"a": "x"}),
        ({**A, "dependencies": {"a": ["b"], "b": B}}, {"b": 1}, {"b": "x"}),
        # Annotations.
        ({"properties": {"n": {"type": "string", "nullable": True, "x-ui": 1}}}, {"n": None}, {"n": 1}),
        ({"properties": {"d": {"type": "string", "contentEncoding": "base64"}}}, {"d": "YQ=="}, {"d": 1}),
        # Numbers that JSON does not carry.
        ({"properties": {"n": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}}, {"n": 2**53 - 1}, {"n": 1e22}),
        ({"properties": {"n": {"type": "string", "maxLength": 2**64 - 1}}}, {"n": "a"}, {"n": 1}),
        # What is turned round is exact, or is refused.
        ({"properties": {"s": {"not": {"pattern": "(?<=a)b"}}, "t": {}}}, {"t": 1}, {"s": "x"}),
        ({"properties": {"s": {"not": {"type": "object", **A}}}}, {"s": 1}, {"s": {"c": 1}}),
        (
            {**A, "if": {"properties": {"o": B}, "required": ["o"]}, "then": {"required": ["a"]}},
            {"a": "x"},
            {"o": {"c": 1}},
        ),
    ],
)
def test_schemas_are_taken_as_servers_write_them(schema: dict[str, Any], good: Any, bad: Any) -> None:
    made = tool_arguments({"type": "object", **schema}).schema
    assert made["additionalProperties"] is False
    assert accepts(made, good), made
    assert not accepts(made, bad), made


def test_a_schema_that_comes_back_is_followed_to_a_bound() -> None:
    tree = {"type": "object", "properties": {"name": {"type": "string"}, "below": {"$ref": "#"}}}
    made = tool_arguments(tree).schema
    assert accepts(made, {"name": "a", "below": {"name": "b", "below": {"name": "c"}}})
    assert not accepts(made, {"name": "a", "below": {"name": 1}})


def test_a_default_that_is_null_is_sent_as_null() -> None:
    stated = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert tool_arguments({"type": "object", "properties": {"n": stated}}).schema["properties"]["n"]["default"] is None
    made = tool_arguments({"type": "object", "properties": {"n": {"type": "integer", "default": None}}})
    assert made.schema["required"] == ["n"]


def test_an_answer_refuses_nothing_that_its_schema_accepts() -> None:
    one = {"type": "object", "properties": {"mail": {"type": "string", "format": "email", "pattern": "(?<=a)b"}}}
    made = tool_answer({"$defs": {"One": one}, "$ref": "#/$defs/One"})
    assert accepts(made.schema, {"mail": "no mail", "more": 1})
    assert not accepts(made.schema, {"mail": 1})
    assert made.notes == ("a pattern cannot be checked in linear time",)


def test_a_schema_that_says_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="says nothing"):
        tool_arguments({"$schema": "http://json-schema.org/draft-07/schema#"})


@pytest.mark.parametrize("schema", [7, {"type": "array"}, {"type": ["string", "null"]}])
def test_what_is_no_object_is_refused(schema: Any) -> None:
    for make in (tool_arguments, tool_answer):
        with pytest.raises(InvalidInput, match="not an object"):
            make(schema)
