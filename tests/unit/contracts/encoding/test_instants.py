"""Times as text have one form, and one value in microseconds."""

from __future__ import annotations

import pytest

from contextos.contracts.encoding.instants import unix_us, utc_time


@pytest.mark.parametrize(
    ("text", "utc", "us"),
    [
        ("1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T01:00:00.0000019+01:00", "1970-01-01T00:00:00.0000019Z", 1),
        ("1969-12-31T23:59:59.5z", "1969-12-31T23:59:59.5Z", -500_000),
        ("1972-06-30T23:59:60Z", "1972-07-01T00:00:00Z", 78_796_800_000_000),
        ("1970-01-01T00:00:00", None, None),
        ("1970-01-01T00:00:60Z", None, None),
    ],
)
def test_a_time_is_read_exactly(text: str, utc: str | None, us: int | None) -> None:
    assert (utc_time(text), unix_us(text)) == (utc, us)
