"""What each reader reads, word for word: `python -m tests.messages` shows the table.

A row that changes is judged again by somebody who has not seen the code: can its reader act on it?
"""

from __future__ import annotations

import pytest

from tests.messages.rows import Row, kept, readers, rows_of

LEAST = {"authors": 100, "models": 35, "operators": 130}
"""How many rows each table has at least."""
Table = tuple[str, list[Row]]


@pytest.fixture(scope="module", params=readers())
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return request.param, rows_of(request.param, tmp_path_factory.mktemp(request.param))


def test_each_message_is_the_one_that_was_judged(table: Table) -> None:
    reader, rows = table
    assert {row.id: row.says for row in rows} == kept(reader)


def test_each_row_is_there_once(table: Table) -> None:
    reader, rows = table
    assert [row.id for row in rows] == list(kept(reader))
    assert len(rows) >= LEAST[reader]


def test_each_row_says_something_and_nothing_of_the_inside(table: Table) -> None:
    for row in table[1]:
        # Every row is a fault, but for the mark at the beginning of a file, which is allowed.
        assert row.says.strip()
        assert not row.says.endswith("fine") or row.id == "byte_order_mark"
        assert not [bad for bad in ("Traceback", "a defect of", "``") if bad in row.says], row.id
