"""Keywords of earlier drafts as 2020-12 writes them."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.foreign.dialects import in_2020_12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"items": {"type": "string"}}, {"items": {"type": "string"}}),
        ({"items": [{}]}, {"prefixItems": [{}]}),
        ({"items": [{}], "additionalItems": {"type": "null"}}, {"prefixItems": [{}], "items": {"type": "null"}}),
        ({"items": {}, "additionalItems": False}, {"items": {}}),
        (
            {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
            {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["d"]}}},
        ),
    ],
)
def test_old_keywords_are_written_as_new_ones(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert in_2020_12(old) == new


def test_what_both_drafts_say_of_one_property_counts() -> None:
    schema = {
        "dependencies": {"a": ["b"], "c": {"required": ["d"]}},
        "dependentRequired": {"a": ["e"]},
        "dependentSchemas": {"c": {"required": ["f"]}},
    }
    said = in_2020_12(schema)
    assert said["dependentRequired"] == {"a": ["b", "e"]}
    assert said["dependentSchemas"] == {"c": {"allOf": [{"required": ["d"]}, {"required": ["f"]}]}}
