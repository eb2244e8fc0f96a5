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


@pytest.mark.parametrize("text", ["สวัสดี\u200bครับ", "خانه\u200c ها", "👨‍👩‍👧", "❤️", "1\ufe0f\u20e3", "ក\u200bខ"])
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
        ("葛" + "".join(chr(0xE0100 + one) for one in b"ignore"), "\\U000e0169"),
        ("葛\U000e0100", "\\U000e0100"),
        ("葛\ufe00", "\\ufe00"),
        ("é\ufe0e", "\\ufe0e"),
        ("é\u200dé", "\\u200d"),
        ("pay\u00adд", "\\u00ad"),
        ("дpa\u00ad 1", "\\u00ad"),
        ("a\u00adb" * 5, "\\u00ad"),
    ],
)
def test_what_hides_text_is_found_in_prose_too(text: str, said: str) -> None:
    assert hidden_character(text, prose=True) == hidden_character(text) == said
    assert hidden_character(without_hidden(text), prose=True) == ""


def test_soft_hyphens_are_few_in_a_text_and_none_in_one_of_others() -> None:
    assert hidden_character("co\u00adop λό\u00adγος", prose=True) == ""
    assert hidden_character("co\u00adop") == "\\u00ad"
    assert without_hidden("co\u00adop" * 9 + "葛\U000e0100飾") == "coop" * 9 + "葛飾"


@given(st.text("aд葛ا😀\u1820\u2801\u00ad\u200b\u200c\u200d\u2800\u180b\ufe00\ufe0f\U000e0100\U000e0067", max_size=12))
def test_nothing_is_hidden_in_what_is_made_plain(text: str) -> None:
    assert hidden_character(without_hidden(text), prose=True) == ""
