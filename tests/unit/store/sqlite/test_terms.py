"""Terms in a file: the suite of stores tests what is found; here, that a search reads no more than it must."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from contextos.contracts.journal import Sought, TermChange
from contextos.errors import Conflict
from contextos.store.sqlite.database import memory_database
from contextos.store.sqlite.terms import sqlite_change_terms, sqlite_found, sqlite_terms


def test_a_page_reads_its_own_runs_however_many_have_the_term() -> None:
    with closing(memory_database(Path("/test-terms"))) as connection:
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1

        steps = []
        for last in (100, 10_000):
            for number in range(1 + last // 100, last + 1):
                sqlite_change_terms(connection, "t", "run", number, TermChange([1, 1000 + number], (), number))
            connection.set_progress_handler(count, 1)
            counted = 0
            assert sqlite_found(connection, "t", Sought([[1]]), 3) == [last, last - 1, last - 2]
            assert sqlite_found(connection, "t", Sought([[1000 + last // 2], [1]]), 3) == [last // 2]
            steps.append(counted)
            connection.set_progress_handler(None, 1)
        assert steps[1] < 1.2 * steps[0]


def test_a_run_without_a_number_has_no_terms() -> None:
    with closing(memory_database(Path("/test-unnumbered"))) as connection:
        with pytest.raises(Conflict):
            sqlite_change_terms(connection, "t", "run_a", 0, TermChange([1]))
        assert sqlite_terms(connection, "t", 0, 9) == []
