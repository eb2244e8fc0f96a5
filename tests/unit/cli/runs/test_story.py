"""A story fits the terminal, and each time has the unit that fits."""

from __future__ import annotations

import pytest

from contextos.cli.runs.story import story_lines
from contextos.deployment.queries.timeline import Moment


@pytest.mark.parametrize(
    ("after_us", "stamp"),
    [(0, "0.0 ms"), (999_999, "1000.0 ms"), (1_000_000, "1.00 s"), (60_000_000, "1.0 min"), (3_600_000_000, "1.0 h")],
)
def test_a_time_has_the_unit_that_fits(after_us: int, stamp: str) -> None:
    assert list(story_lines({"What it did": [Moment("paid", after_us)]})) == ["What it did", f"{stamp:>9}  paid"]


def test_sections_are_apart_and_a_line_without_a_time_is_indented() -> None:
    lines = list(story_lines({"One": [Moment("x " * 90)], "Two": [Moment("y")]}))
    assert max(map(len, lines)) <= 80
    assert lines[-3:] == ["", "Two", f"{'':>9}  y"]
