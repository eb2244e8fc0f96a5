"""What differs under one id is named by its place; where nothing is left to compare, the id is."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.runtime.inputs.request_conflicts import MAX_BEFORE_CHARS, MAX_DIFFERENCES, conflict, differences


@pytest.mark.parametrize(
    ("before", "now", "places"),
    [
        ({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 3]}, ["/b/1"]),
        ({"a": [1]}, {"a": [1, 2]}, ["/a"]),
        ({"a": 1}, {"a": True}, ["/a"]),
        ({"a~/b": 1}, {}, ["/a~0~1b"]),
        ({}, {str(number): 1 for number in range(30)}, [f"/{one}" for one in sorted(map(str, range(30)))[:8]]),
    ],
)
def test_each_place_that_differs_is_named(before: Any, now: Any, places: list[str]) -> None:
    assert [one.place for one in differences(before, now)] == places
    assert MAX_DIFFERENCES == 8


def test_a_long_value_is_cut_and_a_hidden_character_is_shown() -> None:
    (long,) = differences({"a": "x" * 500}, {"a": ""})
    assert long.before is not None
    assert len(long.before) <= MAX_BEFORE_CHARS + 3
    (hidden,) = differences({"a": "\u202e"}, {"a": ""})
    assert "\u202e" not in str(hidden.before)


def test_where_nothing_can_be_compared_the_id_is_named() -> None:
    (problem,) = conflict("/call_id", "it was used first", [], "use another").problems
    assert (problem.pointer, problem.detail) == ("/call_id", "something else was meant when it was used first")
