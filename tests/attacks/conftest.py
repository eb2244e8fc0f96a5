"""What the attacks share: both stores, the owner of the database, the demo's workspace and the command line in it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson
import pytest

from contextos.cli import run_command_line
from contextos.cli.demo.workspace import Workspace, make_workspace, seed_graph
from contextos.workspace import open_app
from contextos.workspace.settings import Settings
from tests.attacks.attackers import Attacker, sql_in_database, sql_in_file
from tests.attacks.backups import Backup, backup_of_database, backup_of_file
from tests.attacks.shop import Shop
from tests.segments import drop_triggers, entries_as_rows, entries_as_rows_of_postgresql
from tests.unit.cli.conftest import Said, command, kept, say, shop
from tests.world import TENANT

if TYPE_CHECKING:
    from tests.postgres import Database

__all__ = ["command", "kept", "owner", "say", "shop", "stores"]


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    """Where the attacked deployment stores: a file, or the URL of a fresh PostgreSQL database."""
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


@dataclass(frozen=True)
class DatabaseOwner:
    """The owner of the database: no trigger and no grant stops them. They hold no key of the runtime."""

    path: Path
    database: Database | None

    async def execute(self, statement: str) -> None:
        """Run one UPDATE, INSERT or DELETE that must change something. The statement names a table as `{table}`.

        `{journal}` has a row for each entry of a run, too.
        """
        if self.database is None:
            with closing(sqlite3.connect(self.path / "contextos.db", timeout=30)) as connection, connection:
                drop_triggers(connection)
                connection.execute("PRAGMA ignore_check_constraints = ON")
                with entries_as_rows(connection):
                    changed = connection.execute(statement.replace("{", "").replace("}", "")).rowcount
            assert changed > 0, "an attack that changes nothing proves nothing"
            return
        checked = (
            "DO $owner$ BEGIN "
            + statement.replace("{journal}", "pg_temp.journal").replace("{", "contextos.").replace("}", "")
            + "; IF NOT FOUND THEN RAISE 'an attack that changes nothing proves nothing'; END IF; END $owner$"
        )
        connection = await asyncpg.connect(self.database.owner)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await entries_as_rows_of_postgresql(connection, [checked])
        finally:
            await connection.close()

    async def rewrite(self, collection: str, key: str, body: Any) -> None:
        """Replace the body of a stored document."""
        await self.execute(
            f"UPDATE {{documents}} SET body = {self.blob(orjson.dumps(body))}"
            f" WHERE tenant = '{TENANT}' AND collection = '{collection}' AND key = '{key}'"
        )

    def blob(self, raw: bytes) -> str:
        """A literal of these bytes."""
        return f"x'{raw.hex()}'" if self.database is None else f"'\\x{raw.hex()}'::bytea"


@pytest.fixture
def owner(request: pytest.FixtureRequest, stores: str, tmp_path: Path) -> DatabaseOwner:
    """The owner of the database that `stores` names, for a world that is opened at `tmp_path`."""
    return DatabaseOwner(tmp_path, None if stores == "sqlite" else request.getfixturevalue("database"))


@pytest.fixture
def attacker(request: pytest.FixtureRequest, stores: str, tmp_path: Path) -> Attacker:
    """An attacker on the store of the world at `tmp_path`."""
    if stores == "sqlite":
        path = tmp_path / "contextos.db"
        return Attacker(
            lambda *said: sql_in_file(path, said, owner=True), lambda *said: sql_in_file(path, said, owner=False)
        )
    database = request.getfixturevalue("database")
    return Attacker(
        lambda *said: asyncio.run(sql_in_database(database.owner, said, owner=True)),
        lambda *said: asyncio.run(sql_in_database(database.app, said, owner=False)),
    )


@pytest.fixture
def fresh(stores: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The demo's workspace on either store, before anybody acted in it."""
    path = tmp_path / "shop"
    make_workspace(path)

    def say(*arguments: str) -> Said:
        capsys.readouterr()
        code = run_command_line([*arguments, "--json"])
        return Said(code, *capsys.readouterr())

    made = Shop(path, say)
    if stores != "sqlite":
        made.settings(f'store = "{stores}"\n')
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", str(path))
    return made


@pytest.fixture
def initialised(fresh: Shop) -> Shop:
    """The same after `contextos apply`, with the example's graph."""
    assert fresh.say("apply", *fresh.by).code == 0
    asyncio.run(_filled(fresh.path))
    return fresh


async def _filled(path: Path) -> None:
    app = await open_app(Settings.read(path))
    await seed_graph(app, Workspace(path, TENANT, {}))
    app.close()


@pytest.fixture
def backup(request: pytest.FixtureRequest, stores: str) -> Backup:
    """Takes a backup of the store of the workspace at a path, and returns what puts it back."""
    if stores == "sqlite":
        return backup_of_file
    database = request.getfixturevalue("database")
    return lambda _path: backup_of_database(database)
