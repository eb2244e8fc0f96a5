"""One schema, keyword by keyword: what is turned round is exact, and what is not checked is a note."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.foreign.keywords import NOTHING, Keywords, Side
from contextos.adapters.foreign.schema_document import SchemaDocument
from contextos.adapters.foreign.texts import Patterns
from contextos.contracts.encoding.jcs import MAX_INT


def converted(schema: Any, side: Side = "closed") -> tuple[dict[str, Any], list[str]]:
    notes = list[str]()
    keywords = Keywords(lambda *_: {}, lambda _: {}, notes.append, SchemaDocument({}), Patterns())
    return keywords.converted(schema, side), notes


@pytest.mark.parametrize(
    "turned",
    [
        {"pattern": "(?<=a)b"},
        {"type": "string", "format": "date"},
        {"type": "integer", "format": "int32"},
        {"$ref": "#"},
        {"properties": {"a": {"$dynamicRef": "#a"}}},
        {"maximum": 10**22},
        {"minItems": 2**64},
        {"maxLength": 2**64},
        {"enum": ["a", 1e21]},
        {"const": 1e21},
    ],
)
@pytest.mark.parametrize("keyword", ["if", "not"])
def test_a_condition_that_cannot_be_said_exactly_refuses_all_arguments(keyword: str, turned: dict[str, Any]) -> None:
    made, notes = converted({"type": "string", keyword: turned})
    assert made == NOTHING
    assert notes
    assert converted({"type": "string", keyword: turned}, "output")[0] == {}


def test_a_base_below_the_root_counts_only_for_references() -> None:
    for named in ({"id": "urn:a"}, {"$id": "urn:a"}, {"$id": "#/properties/a"}, {"id": "#a", "items": {"$ref": "#/b"}}):
        assert converted({"type": "array", **named})[1] == []
    for keyword in ("id", "$id"):
        made, notes = converted({keyword: "urn:a", "items": {"$ref": "#/b"}})
        assert made == NOTHING
        assert notes == [f"references below `{keyword}` are not supported"]


def test_objects_below_a_condition_stay_open() -> None:
    inner = {"properties": {"a": {"type": "object", "properties": {"b": {}}}}}
    assert converted({"not": inner})[0] == {"not": inner}


def test_what_is_not_checked_is_a_note_and_an_annotation_is_none() -> None:
    schema = {"type": "string", "contentEncoding": "base64", "x-a": 1, "title": "A", "examples": [], "format": "phone"}
    assert converted(schema)[1] == ["`contentEncoding` is not checked", "the format `phone` is not checked"]
    assert converted({"type": "integer", "format": "uint32"})[1] == []


@pytest.mark.parametrize(
    ("stated", "made"),
    [
        ({"maximum": 2**64}, {"maximum": 2**53 - 1}),
        ({"exclusiveMaximum": 2**64, "maximum": 5}, {"maximum": 5}),
        ({"minimum": -(2**64)}, {"minimum": -(2**53) + 1}),
        ({"maximum": 1e300}, {"maximum": 1e300}),
        ({"maxItems": 2**64}, {}),
        ({"minItems": 2**64}, NOTHING),
        ({"minimum": 2**64}, NOTHING),
    ],
)
def test_bounds_beyond_what_json_carries(stated: dict[str, Any], made: dict[str, Any]) -> None:
    assert converted(stated)[0] == made


def test_a_constant_beside_a_list_is_the_only_value() -> None:
    assert converted({"enum": [1, 2], "const": 1})[0]["enum"] == [1]


def test_an_exclusive_bound_of_draft_4_is_clamped_as_a_number_is() -> None:
    assert converted({"maximum": 5, "exclusiveMaximum": True})[0] == {"exclusiveMaximum": 5}
    assert converted({"maximum": 2**60, "exclusiveMaximum": True})[0] == {"maximum": MAX_INT}
    assert converted({"maximum": True})[0] == NOTHING


def test_what_is_contained_at_most_once_is_counted_whatever_else_it_has() -> None:
    item = {"properties": {"k": {"const": 1}}, "required": ["k"]}
    made, _ = converted({"type": "array", "contains": item, "maxContains": 1, "minContains": 0})
    assert made["contains"] == {"properties": {"k": {"enum": [1]}}, "required": ["k"]}


def test_what_only_the_server_sets_is_not_sent_under_an_open_object_either() -> None:
    body = {"type": "object", "properties": {"is_admin": {"readOnly": True}, "n": {}}, "additionalProperties": True}
    assert converted(body)[0]["properties"]["is_admin"] == NOTHING
    assert "is_admin" not in converted({**body, "additionalProperties": False})[0]["properties"]
