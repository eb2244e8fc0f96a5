"""Escapes for display: hidden text becomes visible, and two different texts never look the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.display_escape import escape_for_display, hidden_character, without_hidden


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


@pytest.mark.parametrize("text", ["สวัสดี\u200bครับ", "co\u00adop", "葛\U000e0100", "خانه\u200c ها", "👨‍👩‍👧"])
def test_what_prose_may_have_an_identifier_may_not(text: str) -> None:
    assert hidden_character(text, prose=True) == ""
    assert hidden_character(text) != ""
    assert without_hidden(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pay\u200bment", "\\u200b"),
        ("a\u2800", "\\u2800"),
        ("\u202egnp", "\\u202e"),
        ("🏴\U000e0061\U000e007f", "\\U000e0061"),
    ],
)
def test_what_hides_text_is_found_in_prose_too(text: str, said: str) -> None:
    assert hidden_character(text, prose=True) == hidden_character(text) == said
    assert hidden_character(without_hidden(text), prose=True) == ""
