"""A backup of a store that is put back in its place, in a file or in the same PostgreSQL database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.postgres import Database

TABLES = ("segments", "journal", "heads", "documents", "runs", "run_terms", "graph_commits", "nodes", "edges")

Backup = Callable[[Path], Callable[[], None]]
"""Takes a backup of the store of the workspace at this path, and returns what puts it back while nobody has it open."""


def backup_of_file(path: Path) -> Callable[[], None]:
    """Copy the SQLite file in the workspace `path`; return what puts the copy back."""
    kept = path.parent / f"{path.name}-backup.db"

    def copy(old: Path, new: Path) -> None:
        new.unlink(missing_ok=True)
        with closing(sqlite3.connect(old)) as one, closing(sqlite3.connect(new)) as other:
            one.backup(other)

    def put_back() -> None:
        for name in ("contextos.db-wal", "contextos.db-shm"):
            (path / name).unlink(missing_ok=True)
        copy(kept, path / "contextos.db")

    copy(path / "contextos.db", kept)
    return put_back


def backup_of_database(database: Database) -> Callable[[], None]:
    """Keep the rows of a database; return what puts them back into the same one, as a dump does."""
    database.execute("CREATE SCHEMA kept")
    for table in TABLES:
        database.execute(f"CREATE TABLE kept.{table} AS TABLE contextos.{table}")

    def put_back() -> None:
        moves = "".join(
            f"DELETE FROM contextos.{table}; INSERT INTO contextos.{table} SELECT * FROM kept.{table};"
            for table in TABLES
        )
        database.execute(f"DO $back$ BEGIN SET LOCAL session_replication_role = replica; {moves} END $back$")

    return put_back
