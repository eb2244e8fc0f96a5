"""A made-up answer fits the schema of its tool, and says what the arguments said."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from contextos.packs.tools.samples import MAX_SAMPLE_DEPTH, sample_value

SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "string", "pattern": "^ord_[0-9]{3}$"},
    {"type": "string", "minLength": 9},
    {"type": "integer", "minimum": 5, "maximum": 9},
    {"type": "number", "maximum": -2, "minimum": -3},
    {"type": "integer", "exclusiveMinimum": 4},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
    {"type": ["string", "null"], "format": "date-time"},
    {"enum": ["b", "a"]},
    {"const": 7},
    {"anyOf": [{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"type": "null"}]},
)


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_a_sample_fits_its_schema(schema: dict[str, Any]) -> None:
    jsonschema_rs.validate(schema, sample_value(schema))


def test_what_the_arguments_said_is_copied_where_it_fits() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}
    assert sample_value(schema, {"id": "ord_1", "n": "many", "more": 1}) == {"id": "ord_1", "n": 1}


@pytest.mark.parametrize("schema", [{}, {"type": "null"}, {"type": 3}, {"type": []}, {"$ref": "#"}, {"anyOf": []}])
def test_what_says_nothing_has_no_sample(schema: dict[str, Any]) -> None:
    assert sample_value(schema) is None


def test_a_schema_without_an_end_has_one() -> None:
    schema: dict[str, Any] = {"type": "array", "minItems": 1}
    schema["items"] = schema
    sample, depth = sample_value(schema), 0
    while sample:
        sample, depth = sample[0], depth + 1
    assert depth == MAX_SAMPLE_DEPTH + 1
