"""The profile of capability schemas: sizes are counted with references written out."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.action.schema_profile import MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS, profile
from contextos.errors import InvalidArtifact


def closed(**more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, **more}


def code_of(schema: dict[str, Any]) -> str:
    with pytest.raises(InvalidArtifact) as refused:
        profile(schema, "adp_x.look.input_schema")
    return refused.value.problems[0].code


def test_a_schema_within_the_profile_passes() -> None:
    address = {"type": "object", "properties": {"zip": {"type": "string", "format": "regex"}}}
    profile(closed(properties={"home": {"$ref": "#/$defs/address"}}, **{"$defs": {"address": address}}), "x")
    profile({"type": "object", "unevaluatedProperties": False}, "x")
    profile(
        closed(items=True, prefixItems=[True, {}], **{"$schema": "https://json-schema.org/draft/2020-12/schema"}), "x"
    )


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "array"}, "schema_root"),
        ({"type": "object"}, "schema_open"),
        (closed(**{"$schema": "http://json-schema.org/draft-07/schema#"}), "schema_keyword"),
        (closed(properties={"a": {"$schema": "x"}}), "schema_keyword"),
        (closed(properties={"a": {"$ref": "https://example.org/s"}}), "schema_remote"),
        (closed(properties={"a": {"$ref": 5}}), "schema_remote"),
        (closed(properties={"a": {"$ref": "#/properties/a"}}), "schema_recursive"),
        (closed(properties={f"a{number}": {} for number in range(MAX_SUBSCHEMAS)}), "schema_bounds"),
    ],
)
def test_a_schema_outside_the_profile_is_refused(schema: dict[str, Any], code: str) -> None:
    assert code_of(schema) == code


def test_depth_and_references_count() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_SCHEMA_DEPTH):
        deep = {"items": deep}
    assert code_of(closed(properties={"a": deep})) == "schema_bounds"
    wide = {"properties": {f"p{number}": {} for number in range(100)}}
    used = {f"a{number}": {"$ref": "#/$defs/wide"} for number in range(20)}
    assert code_of(closed(properties=used, **{"$defs": {"wide": wide}})) == "schema_bounds"
    profile(closed(properties=dict(list(used.items())[:10]), **{"$defs": {"wide": wide}}), "x")
