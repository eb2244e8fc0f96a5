"""Lines of 80 columns: wide characters count as two, and nothing of a question is dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.cli.layout import WIDTH, chopped, columns_of, folded, line_width

TEXT = st.text(st.sampled_from("ab 金…-\\"), max_size=300)


def test_lines_fit_the_terminal_and_an_empty_text_keeps_its_label() -> None:
    lines = list(folded("label", "word " * 60))
    assert max(map(len, lines)) <= WIDTH
    assert all(line.startswith(" " * 7) for line in lines[1:])
    assert list(folded("label  ", "")) == ["label"]
    assert list(folded("  12.5 ms  ", "short")) == ["  12.5 ms  short"]


@given(TEXT)
def test_folded_lines_fit_and_keep_every_word(text: str) -> None:
    lines = list(folded("label ", text))
    assert all(columns_of(line) <= WIDTH for line in lines)
    assert "".join(lines).replace(" ", "") == f"label{text}".replace(" ", "")


@given(TEXT)
def test_chopped_lines_fit_and_are_put_together_again(text: str) -> None:
    first, *rest = chopped(text, 15)
    assert all(columns_of(line) <= WIDTH for line in (first, *rest))
    assert all(line.startswith(" " * 15) for line in rest)
    parts = [first, *(line[15:] for line in rest)]
    assert "".join([*(part.removesuffix("\\") for part in parts[:-1]), parts[-1]]) == text


def test_a_narrow_terminal_has_narrow_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in (("200", WIDTH), ("60", 60), ("5", 40)):
        monkeypatch.setenv("COLUMNS", columns)
        assert line_width() == width
        assert max(map(len, folded("a ", "word " * 60))) <= width
