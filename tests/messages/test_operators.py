"""What an operator or a caller reads, word for word. A row that changes is judged again: can they act on it?"""

from __future__ import annotations

from pathlib import Path

from tests.messages.rows import kept, rows_of


def test_each_message_is_the_one_that_was_judged(tmp_path: Path) -> None:
    rows = rows_of("operators", tmp_path)
    assert {one.id: one.says for one in rows} == kept("operators")
    assert len({one.id for one in rows}) == len(rows) >= 50
    assert not [one.id for one in rows if one.says == "fine" or "Traceback" in one.says or "a defect of" in one.says]
