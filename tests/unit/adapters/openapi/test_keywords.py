"""Texts and patterns of documents."""

from __future__ import annotations

import pytest

from contextos.adapters.openapi.keywords import is_linear, plain_text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("read\u200b\u202eme", "read me"),
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred", "[31mred"),
        ("tag\U000e0041s", "tag s"),
        ("private\ue000x", "private x"),
        (None, ""),
        (5, ""),
        ("Zürich ✓", "Zürich ✓"),
    ],
)
def test_no_hidden_character_of_a_document_stays(text: object, plain: str) -> None:
    assert plain_text(text, 100) == plain


def test_a_long_text_is_cut() -> None:
    assert plain_text("word " * 1_000_000, 9) == "word word"


@pytest.mark.parametrize(
    ("pattern", "linear"), [("^[a-z]+$", True), ("(?=a)", False), (r"(a)\1", False), ("(", False), (5, False)]
)
def test_only_patterns_that_are_checked_in_linear_time_count(pattern: object, linear: bool) -> None:
    assert is_linear(pattern) is linear
