"""Schemas and usage; the rest is seen in the tests of both wires."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.models.openai_wire import is_strict, keep_usage
from contextos.adapters.models.transport import Answer

TEXT = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def nested(depth: int) -> dict[str, Any]:
    return TEXT if depth == 0 else closed(a=nested(depth - 1))


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a=TEXT, b={"type": ["integer", "null"], "minimum": 0}),
        closed(a={"type": "array", "items": closed(b={"enum": ["x", "y"]}), "maxItems": 3}),
        closed(a={"anyOf": [TEXT, {"type": "null"}]}),
        closed(a={"type": "string", "format": "date", "description": "a day"}),
        {**closed(a={"$ref": "#/$defs/b"}), "$defs": {"b": closed(c={"$ref": "#"})}},
        nested(9),
    ],
)
def test_a_schema_in_the_subset_is_strict(schema: dict[str, Any]) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        TEXT,
        {"type": "object"},
        {"anyOf": [closed()]},
        {**closed(a=TEXT), "required": []},
        {**closed(a=TEXT), "additionalProperties": True},
        {**closed(a=TEXT), "patternProperties": {}},
        {**closed(), "allOf": [closed()]},
        closed(a={}),
        closed(a=True),
        closed(a={"type": "object"}),
        closed(a={"type": ["object", "null"], "properties": {}}),
        closed(a={"type": "array", "items": {"type": "object"}}),
        closed(a={"anyOf": [TEXT, {"type": "object"}]}),
        closed(a={"type": "string", "format": "uri"}),
        closed(a={"type": "string", "minLength": 1}),
        closed(a={"$ref": "https://example.com/schema"}),
        {**closed(a={"$ref": "#/$defs/b"}), "$defs": {"b": {"type": "object"}}},
        closed(a={"enum": [*range(1_001)]}),
        closed(**{f"p{number}": TEXT for number in range(5_001)}),
        nested(10),
    ],
)
def test_a_schema_outside_the_subset_is_not_strict(schema: dict[str, Any]) -> None:
    assert not is_strict(schema)


def usage(prompt: dict[str, Any], tier: object = None, **totals: Any) -> Answer:
    answer = Answer(None)
    reported = {"input_tokens": 100, "input_tokens_details": prompt, "output_tokens": 10, **totals}
    keep_usage(answer, reported, tier, ("input_tokens", "output_tokens"))
    return answer


def test_what_is_written_to_a_cache_and_read_from_it_counts_once() -> None:
    found = usage({"cached_tokens": 30, "cache_write_tokens": 20}, "flex").usage
    assert found is not None
    assert found.counts == {"input": 50, "cached_input": 30, "cache_write": 20, "output": 10, "requests": 1}
    assert found.tier == "flex"


@pytest.mark.parametrize(
    ("prompt", "totals"),
    [
        ({}, {"total_tokens": 111}),
        ({"cached_tokens": 60, "cache_write_tokens": 60}, {}),
        ({"audio_tokens": 1}, {}),
        ({"cache_write_tokens_details": {"ttl_12h_tokens": 1}}, {}),
        ({}, {"output_tokens_details": {"audio_tokens": 1}}),
        ({}, {"output_tokens_details": [1]}),
        ({"cache_write_tokens_details": "x"}, {}),
    ],
)
def test_usage_that_cannot_be_priced_exactly_is_no_usage(prompt: dict[str, Any], totals: dict[str, Any]) -> None:
    answer = usage(prompt, **totals)
    assert answer.usage is None
    assert answer.usage_fault.startswith("its usage is not used")


@pytest.mark.parametrize("tier", [5, ["flex"], {"name": "flex"}])
def test_a_service_tier_that_is_not_a_text_is_no_usage(tier: object) -> None:
    answer = usage({}, tier)
    assert (answer.usage, answer.usage_fault) == (None, "its usage is not used: its service tier is not a text")


def test_a_kind_that_is_not_known_counts_where_there_is_something_of_it() -> None:
    none = usage({"audio_tokens": 0, "image_tokens": None}, "default").usage
    assert none is not None
    assert none.counts == {"input": 100, "output": 10, "requests": 1}
    for count in (1, 0.5, "0", True):
        assert usage({"image_tokens": count}).usage is None


def test_usage_that_is_not_an_object_is_no_usage_and_a_later_one_replaces_an_earlier_one() -> None:
    answer = usage({})
    keep_usage(answer, None, None, ("input_tokens", "output_tokens"))
    assert answer.usage is not None
    keep_usage(answer, [1], None, ("input_tokens", "output_tokens"))
    assert answer.usage is None
