"""Texts and patterns of documents."""

from __future__ import annotations

import pytest

from contextos.adapters.foreign.texts import is_linear, plain_text, written_out
from tests.openapi_documents import accepts


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


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^(?!\.)(?!.*\.\.)[a-z.]+$", ["a.b", "a"], [".a", "a..b", ""]),
        (r"^(?=.*[A-Z])(?=.*[0-9]).{4,}$", ["aB1c"], ["ab1c", "aBcd", "B1"]),
        (r"^(?!(?:a|b)$)[a-z]$", ["c"], ["a", "b"]),
        (r"^(?![|)\]]x)(a|b)", ["a"], ["|xa", "c"]),
        ("^(?!x)", ["y", ""], ["x"]),
        ("^a(?!b)", ["a", "ac"], ["ab", "b"]),
        (r"^\/(?!\*)(?!.*b)[a-z/]+$", ["/a"], ["/*", "/ab", "a"]),
        ("^a|b", ["a", "zb"], ["z"]),
    ],
)
def test_look_aheads_at_the_begin_are_patterns_of_their_own(pattern: str, good: list[str], bad: list[str]) -> None:
    said = written_out(pattern)
    assert said is not None
    schema = {"type": "string", "pattern": said[0], "allOf": [{}, *said[1]]}
    for text in good:
        assert accepts(schema, text), text
    for text in bad:
        assert not accepts(schema, text), text


@pytest.mark.parametrize(
    "pattern", ["^(?!a)b|c", "^(?!a)*b", "^a+(?!b)", "^a?(?!b)", "^(?!(?=a)b)c", "(?!a)b", "^(?!a", r"^(?!(a)\1)b", 5]
)
def test_what_only_backtracking_can_check_is_not_said(pattern: object) -> None:
    assert written_out(pattern) is None
