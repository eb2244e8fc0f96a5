"""A difference is named by the pointer of the first place, in the order of keys and items."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.trust.journal.difference import first_difference


@pytest.mark.parametrize(
    ("recorded", "derived", "where"),
    [
        (1, 2, "`/`"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "`/b`"),
        ({"a": {"z": 1, "y": 1}}, {"a": {"z": 2, "y": 2}}, "`/a/y`"),
        ({"a": 1}, {"a": 1, "b": 2}, "`/b`"),
        ([1, [2, 3]], [1, [2, 4]], "`/1/1`"),
        ([1], [1, 2], "`/`"),
    ],
)
def test_the_first_place_that_differs_is_named(recorded: Any, derived: Any, where: str) -> None:
    assert first_difference(recorded, derived).endswith(where)
