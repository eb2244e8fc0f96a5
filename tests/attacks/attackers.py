"""Who can write to the tables of a store: the application's role, and the owner of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from tests.segments import drop_triggers, entries_as_rows, entries_as_rows_of_postgresql
from tests.world import TENANT


@dataclass(frozen=True)
class Attacker:
    """Somebody with raw SQL: `application` is stopped by rights and triggers, `owner` takes the triggers away first.

    A statement names a table as `{journal}`. For the owner `{journal}` has a row for each entry of a run, too.
    """

    owner: Callable[..., list[Any]]
    application: Callable[..., list[Any]]


REFUSED = (sqlite3.DatabaseError, asyncpg.PostgresError)
"""How a store refuses a statement."""


class _Sql(dict[str, str]):
    def __init__(self, schema: str, **named: str) -> None:
        super().__init__(named)
        self._schema = schema

    def __missing__(self, name: str) -> str:
        return self._schema + name


def sql_in_file(path: Path, statements: tuple[str, ...], *, owner: bool) -> list[Any]:
    found: list[Any] = []
    with closing(sqlite3.connect(path)) as connection, connection:
        plain = [statement.format_map(_Sql("")) for statement in statements]
        if not owner:
            for statement in plain:
                found = connection.execute(statement).fetchall()
            return found
        drop_triggers(connection)
        with entries_as_rows(connection):
            for statement in plain:
                found = connection.execute(statement).fetchall()
    return found


async def sql_in_database(url: str, statements: tuple[str, ...], *, owner: bool) -> list[Any]:
    found: list[Any] = []
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT set_config('contextos.tenant', $1, true)", TENANT)
            if owner:
                await connection.execute("SET LOCAL session_replication_role = replica")
                plain = [
                    statement.format_map(_Sql("contextos.", journal="pg_temp.journal")) for statement in statements
                ]
                return await entries_as_rows_of_postgresql(connection, plain)
            for statement in statements:
                found = [tuple(row) for row in await connection.fetch(statement.format_map(_Sql("contextos.")))]
    finally:
        await connection.close()
    return found
