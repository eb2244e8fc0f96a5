"""What an author reads is exact, and says where and what to write: `python -m tests.messages authors` shows it."""

from __future__ import annotations

import pytest

from tests.messages.rows import Row, kept, rows_of

KEPT = kept("authors")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    return {row.id: row for row in rows_of("authors", tmp_path_factory.mktemp("authors"))}


def test_every_row_is_kept(said: dict[str, Row]) -> None:
    assert list(said) == list(KEPT)
    assert len(said) >= 100


@pytest.mark.parametrize("name", KEPT)
def test_the_message_is_exact(name: str, said: dict[str, Row]) -> None:
    assert said[name].says == KEPT[name]


def test_no_message_has_a_traceback_or_an_empty_place(said: dict[str, Row]) -> None:
    for row in said.values():
        assert "Traceback" not in row.says
        assert "``" not in row.says
