"""What is said of a broken rule repeats the schema, bounded, and nothing of the value."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.action.broken_rules import MAX_ALTERNATIVES_SHOWN, broken_rule

CHOICES = [f"choice {number}" for number in range(MAX_ALTERNATIVES_SHOWN + 5)]


@pytest.mark.parametrize(
    ("schema", "rule", "value", "says"),
    [
        ({"required": ["a"], "properties": {"a": {"const": 1}}}, ["required"], {}, "lacks `a` (only 1)"),
        (
            {"required": ["a"], "properties": {"a": {"type": ["string", "null"]}}},
            ["required"],
            {},
            "lacks `a` (string or null)",
        ),
        ({"required": ["a"]}, ["required"], {}, "lacks `a`"),
        ({"required": ["a"], "properties": {"a": {}}}, ["required"], {}, "lacks `a`"),
        ({"additionalProperties": False}, ["additionalProperties"], {"SECRET": 1}, "those that are: none"),
        ({"enum": CHOICES}, ["enum"], "SECRET", '"choice 19", 5 more'),
        ({"enum": ["x" * 1_000]}, ["enum"], "SECRET", "x…"),
        ({"maximum": 5}, ["maximum"], 6, "is above 5, the most that is allowed"),
        ({"anyOf": [{"type": "string"}]}, ["anyOf"], 6, "fits none of: string"),
        ({"anyOf": [{"type": "string"}]}, ["anyOf", 3, "minimum"], 6, "does not satisfy `anyOf/3/minimum`"),
        (True, ["required"], 6, "does not satisfy `required`"),
        (False, [], 6, "does not satisfy `schema`"),
    ],
)
def test_the_rule_is_named_and_no_value(schema: Any, rule: list[str | int], value: Any, says: str) -> None:
    said = broken_rule(schema, rule, value, [])
    assert says in said
    assert "SECRET" not in said
    assert len(said) < 2_000
