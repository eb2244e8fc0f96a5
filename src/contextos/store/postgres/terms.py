"""Reads and changes the terms by which a search finds runs, inside a transaction of a PostgreSQL store."""

from __future__ import annotations

from typing import Final

from contextos.contracts.journal import Sought, TermChange
from contextos.store.postgres.connections import Connection
from contextos.store.shared.batch import MAX_SQL_INTEGER, clamped

_REMOVE: Final = (
    "DELETE FROM contextos.run_terms AS t USING contextos.runs AS n"
    " WHERE n.tenant = $1 AND n.run = $2 AND t.tenant = $1 AND t.number = n.number AND t.term = ANY($3::bigint[])"
)
_ADD: Final = (
    "INSERT INTO contextos.run_terms (tenant, term, number, began_us) SELECT $1, made, n.number, $4"
    " FROM contextos.runs AS n, unnest($3::bigint[]) AS made WHERE n.tenant = $1 AND n.run = $2 ON CONFLICT DO NOTHING"
)
_SEARCH: Final = (
    "SELECT number FROM contextos.run_terms AS r WHERE tenant = $1 AND term = $2 AND number <= $3"
    " AND began_us BETWEEN $4 AND $5"
)
_FILTER: Final = (
    " AND EXISTS (SELECT FROM contextos.run_terms AS o WHERE o.tenant = $1 AND o.number = r.number"
    " AND o.term = ANY(${}::bigint[]))"
)
_TERMS: Final = (
    "SELECT number, term, began_us FROM contextos.run_terms WHERE tenant = $1 AND number BETWEEN $2 AND $3"
    " ORDER BY number, term"
)


async def postgres_change_terms(connection: Connection, tenant: str, run: str, terms: TermChange) -> None:
    """Change the terms of a run, if the index names it."""
    await connection.execute(_REMOVE, tenant, run, terms.removed)
    await connection.execute(_ADD, tenant, run, terms.added, terms.began_us)


async def postgres_found(connection: Connection, tenant: str, sought: Sought, limit: int) -> list[int]:
    """Return at most `limit` numbers of runs with the sought terms, newest first, as `Store.found`."""
    ((term,), *groups), after, from_us, before_us = sought
    last_us = MAX_SQL_INTEGER if before_us is None else before_us - 1
    bounds = map(clamped, (after - 1 if after else MAX_SQL_INTEGER, from_us, last_us, max(limit, 0)))
    filters = "".join([_FILTER.format(7 + index) for index in range(len(groups))])
    rows = await connection.fetch(f"{_SEARCH}{filters} ORDER BY number DESC LIMIT $6", tenant, term, *bounds, *groups)
    return [number for (number,) in rows]


async def postgres_terms(connection: Connection, tenant: str, first: int, last: int) -> list[tuple[int, int, int]]:
    """Return (number, term, start in µs) for the runs with the numbers `first` to `last`, as `Store.terms`."""
    return [tuple(row) for row in await connection.fetch(_TERMS, tenant, clamped(first), clamped(last))]
