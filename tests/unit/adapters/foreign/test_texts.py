"""Texts and patterns of documents: what is checked in linear time, and how much all of a draft can be."""

from __future__ import annotations

import pytest

from contextos.adapters.foreign import texts
from contextos.adapters.foreign.texts import (
    LARGE_PATTERN,
    LONG_PATTERN,
    MANY_PATTERNS,
    MAX_DRAFT_PATTERN_BYTES,
    MAX_FOREIGN_PATTERN_CHARS,
    NOT_LINEAR,
    SIZES,
    Patterns,
    plain_text,
)
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
        ("👨‍👩‍👧 สวัสดี\u200bครับ co\u00adop", "👨‍👩‍👧 สวัสดี\u200bครับ coop"),
        ("a\u2800b \u00adc 葛\U000e0159飾", "a b c 葛飾"),
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
    assert (Patterns().fault(pattern) is None) is linear


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
    said = Patterns().written_out(pattern)
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
    assert Patterns().written_out(pattern) is None


def test_a_pattern_of_names_is_taken_and_one_that_is_huge_is_not() -> None:
    patterns = Patterns()
    assert patterns.fault(r"^[\p{L} .'-]{1,50}$") is None
    assert patterns.fault(r"^\p{L}{1,189}$") == LARGE_PATTERN
    assert patterns.fault(r"(a)\1") == NOT_LINEAR


def test_the_patterns_of_a_draft_are_bounded_in_all() -> None:
    patterns = Patterns()
    said = [patterns.fault(rf"^\p{{L}}{{1,{count}}}$") for count in range(189, 89, -1)]
    assert said.count(LARGE_PATTERN) <= MAX_DRAFT_PATTERN_BYTES // SIZES[-1]
    assert said[-1] == MANY_PATTERNS
    # A small one still has room; as often as it is compiled, it counts again.
    assert patterns.fault("^a$") is None
    assert not patterns.take(["^a$"], MAX_DRAFT_PATTERN_BYTES // SIZES[0])


def test_a_thousand_patterns_of_a_large_server_are_taken() -> None:
    patterns = Patterns()
    ids = [rf"^{one}-[0-9a-f]{{8}}-[0-9a-f]{{4}}$" for one in range(1000)]
    assert [one for one in map(patterns.fault, ids) if one] == []
    assert patterns.take(ids, 2)


def test_what_is_no_pattern_leaves_room_for_the_others() -> None:
    patterns = Patterns()
    for count in range(100):
        assert patterns.fault(rf"^(?=.{{8,{count + 8}}}$)[a-z]+$") == NOT_LINEAR
    assert patterns.fault("^[a-z]+$") is None


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[\u{0020}-\u{007E}]+$", "a b", "é"),
        ("^[{2}]+$", "{2}", "22x"),
        (r"^\x{41}$", "A", "41"),
        (r"^\x{41}{200}$", "A" * 200, "A"),
        (r"^([\u{0020}-\u{007E}]{1,40}){1,60}$", "a b", "é"),
        (r"^\p{L}{2,90}[{3}]$", "ab{", "ab{3}"),
    ],
)
def test_braces_that_are_no_count_are_left_as_they_are(pattern: str, good: str, bad: str) -> None:
    assert Patterns().fault(pattern) is None
    assert accepts({"type": "string", "pattern": pattern}, good)
    assert not accepts({"type": "string", "pattern": pattern}, bad)


def test_a_pattern_that_is_too_long_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = texts._compiles
    monkeypatch.setattr(texts, "_compiles", lambda pattern, size: read.append(pattern) or real(pattern, size))
    patterns, long = Patterns(), "^" + "a" * MAX_FOREIGN_PATTERN_CHARS
    assert patterns.fault(long) == LONG_PATTERN
    assert patterns.written_out("^(?!b)" + long[1:]) is None
    assert patterns.written_out(f"^(?!{long})b") is None
    assert read == []
    assert patterns.fault(long[:-1]) is None


def test_what_the_engine_does_before_it_knows_a_size_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = texts._compiles
    monkeypatch.setattr(texts, "_compiles", lambda pattern, size: read.append(pattern) or real(pattern, size))
    patterns = Patterns()
    said = [patterns.fault(rf"^{count}" + r"\s" * 300) for count in range(20)]
    assert said[-1] == MANY_PATTERNS
    assert len(read) <= 3
    assert patterns.fault("^a$") is None
    assert not patterns.take(["^" + "a" * 1000], 100)
