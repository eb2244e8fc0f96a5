"""The default estimator counts UTF-8 bytes by four, rounded up, and is pinned by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.context.estimator import BYTES_DIV_4, BytesDiv4


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é", 1), ("ééé", 2), ("\U0001f600" * 2, 2)]
)
def test_tokens_are_bytes_by_four_rounded_up(text: str, tokens: int) -> None:
    assert BytesDiv4().count(text) == tokens


@given(st.text(), st.text())
def test_joining_texts_never_costs_more_than_both(one: str, two: str) -> None:
    count = BytesDiv4().count
    assert max(count(one), count(two)) <= count(one + two) <= count(one) + count(two)


def test_the_name_is_the_one_that_runs_pin() -> None:
    assert BytesDiv4().name == BYTES_DIV_4 == "bytes_div_4@1"
