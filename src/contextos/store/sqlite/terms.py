"""Reads and changes the terms by which a search finds runs, in an SQLite file."""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import Final

from contextos.contracts.journal import Sought, TermChange
from contextos.errors import Conflict
from contextos.store.shared.batch import MAX_SQL_INTEGER, clamped

_ADD: Final = "INSERT INTO run_terms (tenant, term, number, began_us) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_REMOVE: Final = "DELETE FROM run_terms WHERE tenant = ? AND term = ? AND number = ?"
_SEARCH: Final = (
    "SELECT number FROM run_terms AS r WHERE tenant = ? AND term = ? AND number <= ? AND began_us BETWEEN ? AND ?"
)
_FILTER: Final = " AND EXISTS (SELECT 1 FROM run_terms WHERE tenant = r.tenant AND number = r.number AND term IN ({}))"
_TERMS: Final = (
    "SELECT number, term, began_us FROM run_terms WHERE tenant = ? AND number BETWEEN ? AND ? ORDER BY number, term"
)


def sqlite_change_terms(connection: sqlite3.Connection, tenant: str, run: str, number: int, terms: TermChange) -> None:
    """Change the terms of the run with this number. Raises `Conflict` for a run without a number."""
    if not number:
        raise Conflict(run)
    began_us = terms.began_us
    connection.executemany(_REMOVE, [(tenant, term, number) for term in terms.removed])
    connection.executemany(_ADD, [(tenant, term, number, began_us) for term in terms.added])


def sqlite_found(connection: sqlite3.Connection, tenant: str, sought: Sought, limit: int) -> list[int]:
    """Return at most `limit` numbers of runs with the sought terms, newest first, as `Store.found`."""
    ((term,), *groups), after, from_us, before_us = sought
    last_us = MAX_SQL_INTEGER if before_us is None else before_us - 1
    bounds = map(clamped, (after - 1 if after else MAX_SQL_INTEGER, from_us, last_us))
    filters = "".join([_FILTER.format(", ".join("?" * len(group))) for group in groups])
    parameters = (tenant, term, *bounds, *chain(*groups), clamped(max(limit, 0)))
    rows = connection.execute(f"{_SEARCH}{filters} ORDER BY number DESC LIMIT ?", parameters).fetchall()
    return [number for (number,) in rows]


def sqlite_terms(connection: sqlite3.Connection, tenant: str, first: int, last: int) -> list[tuple[int, int, int]]:
    """Return (number, term, start in µs) for the runs with the numbers `first` to `last`, as `Store.terms`."""
    return connection.execute(_TERMS, (tenant, clamped(first), clamped(last))).fetchall()
