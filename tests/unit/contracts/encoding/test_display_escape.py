"""Escapes for display: hidden text becomes visible, and two different texts never look the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.display_escape import escape_for_display


def test_hidden_text_is_shown_and_moves_nothing() -> None:
    assert (
        escape_for_display("pay\u202e0001\u200b\x1b[2J\U000e0041\r")
        == "pay\\u202e0001\\u200b\\u001b[2J\\U000e0041\\u000d"
    )
    assert escape_for_display("amount 5\namount 4200\t") == "amount 5\\namount 4200\\t"
    assert escape_for_display("C:\\users") == "C:\\\\users"
    assert escape_for_display("日本語 café 100 €") == "日本語 café 100 €"


@given(st.text("\\nu202e\u202e\n\x1b", max_size=12), st.text("\\nu202e\u202e\n\x1b", max_size=12))
def test_no_two_texts_are_shown_alike(one: str, other: str) -> None:
    assert (escape_for_display(one) == escape_for_display(other)) == (one == other)
