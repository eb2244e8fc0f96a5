"""A restored backup answers for every run in it, and a missing run is named against the witness."""

from __future__ import annotations

import io
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from contextos.cli import run_command_line as command
from contextos.cli.demo.workspace import Workspace, example_operator, seed_graph
from contextos.workspace import open_app
from contextos.workspace.settings import Settings
from tests.postgres import TEMPLATE, Database, Server, program_path
from tests.unit.store.postgres.test_isolation import TABLES, lacking
from tests.world import TENANT, run

LIVE, AGAIN = "contextos_test_live", "contextos_test_again"
LEAD = ["--as", "user_finance_lead_77", "--key", "keys/user_finance_lead_77.key"]


@dataclass
class Shop:
    """A demo's workspace with a witness, and how its store is backed up, restored and cut.

    `cut` deletes what a condition names and returns what puts it back. `before` is what `verify` said at the backup,
    `binding` the digest of what `req_large` asked, `paid` what the shop's own books say at the restore.
    """

    path: Path
    backup: Callable[[], None]
    restore: Callable[[], None]
    cut: Callable[[str], Callable[[], None]]
    database: Database | None = None
    before: list[dict[str, Any]] = field(default_factory=list)
    binding: str = ""
    paid: list[int] = field(default_factory=list)

    def refunds(self) -> list[int]:
        with closing(sqlite3.connect(self.path / "shop.db")) as books:
            return [row[0] for row in books.execute("SELECT amount_inr FROM refunds ORDER BY number")]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("restore") / "shop"
    assert command(["demo", "--yes", "--json", "--keep", str(path)]) == 0
    return path


@pytest.fixture(params=["postgresql", "sqlite"], scope="module")
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """What happened: runs, a backup, more runs, the restore; the tests tell the rest in their order."""
    path = tmp_path_factory.mktemp("restore") / "shop"
    with pytest.MonkeyPatch.context() as patch:
        assert said("demo", "--yes", "--keep", str(path))[0] == 0
        for name in ("contextos.db", "shop.db"):
            (path / name).unlink()
        patch.chdir(path)
        patch.setenv("CONTEXTOS_WORKSPACE", ".")
        settings = (path / "contextos.toml").read_text()

        def kept_in(store: str) -> None:
            line = f'store = "{store}"\nwitness = "../witness.jsonl"\n'
            (path / "contextos.toml").write_text(line + settings.replace("store =", "# store ="))

        async def seeded() -> None:
            app = await open_app(Settings.read(path))
            await app.initialise(TENANT, by=example_operator(path))
            await seed_graph(app, Workspace(path, TENANT, {}))
            app.close()

        server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
        made = on_postgresql(path, server, kept_in) if server else on_sqlite(path, kept_in)
        run(seeded())
        assert said("invoke", "requests/small.json")[0] == 0
        assert said("invoke", "requests/large.json")[0] == 5
        made.before = said("verify")[1]["verified"]
        made.backup()
        made.binding = said("runs", "show", "req_large")[1]["waiting"]["binding_digest"]
        assert said("approvals", "approve", "req_large", "--binding", made.binding, *LEAD)[0] == 0
        assert said("invoke", "requests/next.json")[0] == 5
        made.paid = made.refunds()
        made.restore()
        yield made
        if server:
            for name in (LIVE, AGAIN):
                server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def said(*arguments: str) -> tuple[int, Any]:
    """The exit code of a command, and what it said on standard output."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        code = command([*arguments, "--json"])
    return code, orjson.loads(output.getvalue() or b"null")


def on_sqlite(path: Path, kept_in: Callable[[str], None]) -> Shop:
    def copy(old: str, new: str) -> None:
        with closing(sqlite3.connect(path / old)) as one, closing(sqlite3.connect(path / new)) as other:
            one.backup(other)

    def cut(where: str) -> Callable[[], None]:
        copy("again.db", "whole.db")
        with closing(sqlite3.connect(path / "again.db")) as file:
            for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                file.execute(f"DROP TRIGGER {name}")
            for table in ("segments", "journal"):
                file.execute(f"DELETE FROM {table} WHERE {where.format('journal')}")
            file.commit()
        return lambda: copy("whole.db", "again.db")

    def restore() -> None:
        copy("backup.db", "again.db")
        kept_in("again.db")

    kept_in("live.db")
    return Shop(path, lambda: copy("live.db", "backup.db"), restore, cut)


def on_postgresql(path: Path, server: Server, kept_in: Callable[[str], None]) -> Shop:
    live, again = Database(server, LIVE), Database(server, AGAIN)
    server.execute(f"CREATE DATABASE {LIVE} TEMPLATE {TEMPLATE}")
    dump = str(path / "backup.dump")

    def do(name: str, *arguments: str) -> None:
        done = subprocess.run([program_path(name), *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def restore() -> None:
        server.execute(f"CREATE DATABASE {AGAIN} ENCODING 'UTF8' TEMPLATE template0")
        do("pg_restore", "--exit-on-error", f"--dbname={again.owner}", dump)
        kept_in(again.app)

    def cut(where: str) -> Callable[[], None]:
        for table in ("segments", "journal"):
            again.execute(f"ALTER TABLE contextos.{table} DISABLE TRIGGER ALL")
            again.execute(f"CREATE TABLE whole_{table} AS SELECT * FROM contextos.{table}")
            again.execute(f"DELETE FROM contextos.{table} WHERE {where.format('contextos.journal')}")
            again.execute(f"ALTER TABLE contextos.{table} ENABLE TRIGGER ALL")

        def put_back() -> None:
            for table in ("segments", "journal"):
                again.execute(f"ALTER TABLE contextos.{table} DISABLE TRIGGER ALL")
                again.execute(f"INSERT INTO contextos.{table} SELECT * FROM whole_{table} ON CONFLICT DO NOTHING")
                again.execute(f"ALTER TABLE contextos.{table} ENABLE TRIGGER ALL")
                again.execute(f"DROP TABLE whole_{table}")

        return put_back

    kept_in(live.app)
    return Shop(path, lambda: do("pg_dump", "--format=custom", f"--file={dump}", live.owner), restore, cut, again)


def test_before_anybody_said_so_the_cut_is_named_and_nothing_acts(shop: Shop) -> None:
    code, named = said("verify")
    assert (code, named["error"]["code"]) == (3, "chain_broken")
    assert "witnessed at" in str(named)
    assert said("invoke", "requests/cancel.json")[0] == 3
    assert said("approvals", "approve", "req_large", "--binding", shop.binding, *LEAD)[0] == 3
    assert shop.refunds() == shop.paid


@pytest.mark.requirement("J-ELSEWHERE")
@pytest.mark.parametrize("shop", ["postgresql"], indirect=True)
def test_without_a_witness_a_database_elsewhere_is_noticed_by_itself(shop: Shop) -> None:
    settings = Path("contextos.toml").read_text()
    Path("contextos.toml").write_text(settings.replace("witness =", "# witness ="))
    code, refused = said("invoke", "requests/cancel.json")
    assert (code, refused["error"]["code"]) == (3, "store_restored")
    assert "run `contextos store restored --by WHO`" in str(refused)
    code, known = said("verify")
    assert code == 0
    assert [one for one in known["verified"] if one["stream"] != "control"] == [
        one for one in shop.before if one["stream"] != "control"
    ]
    Path("contextos.toml").write_text(settings)


@pytest.mark.requirement("J-BACKUP")
def test_runs_after_the_backup_are_counted_and_every_run_in_it_verifies(shop: Shop) -> None:
    code, epoch = said("store", "restored", "--by", "user_operator_5", "--key", "keys/user_operator_5.key")
    assert code == 0
    assert {one["stream"]: one["gone"] for one in epoch["restored"]} == {"control": 1, "index": 5}
    code, known = said("verify")
    assert code == 0
    after = {one["stream"]: one for one in known["verified"]}
    assert all(after[one["stream"]] == one for one in shop.before if one["stream"].startswith("run_"))
    assert {one["stream"]: one["gone"] for one in known["restored"]} == {"control": 1, "index": 5}


def test_an_approval_from_before_pays_nothing_again_and_a_new_request_goes_its_way(shop: Shop) -> None:
    code, refused = said("approvals", "approve", "req_large", "--binding", shop.binding, *LEAD)
    assert (code, "void" in str(refused)) == (1, True)
    assert said("approvals", "deny", "req_large", "--binding", shop.binding, *LEAD)[0] == 1
    assert shop.refunds() == shop.paid
    assert said("replay", "req_large")[0] == 0
    assert said("invoke", "requests/cancel.json")[0] == 5
    assert said("verify")[0] == 0


@pytest.mark.requirement("J-BACKUP")
@pytest.mark.parametrize("shop", ["postgresql"], indirect=True)
def test_a_restored_database_isolates_tenants_and_its_journal_is_append_only(shop: Shop) -> None:
    assert shop.database is not None
    again = shop.database
    assert lacking(again) == []
    assert len(again.execute(TABLES)) == 18
    for statement in ("UPDATE contextos.journal SET by = 'x'", "DELETE FROM contextos.segments"):
        with pytest.raises(asyncpg.PostgresError):
            again.execute(statement)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            again.execute(statement, again.app)
    assert again.execute("SELECT sum(entries) FROM contextos.segments")[0][0] > 20
    assert again.execute("SELECT count(*) FROM contextos.segments", again.app)[0][0] == 0


@pytest.mark.requirement("J-WITNESSED")
def test_a_deletion_by_the_owner_after_the_restore_is_named(shop: Shop) -> None:
    for where in (
        "run = (SELECT key FROM {} WHERE run = 'index' LIMIT 1)",
        "run LIKE 'run_%' AND seq > 20",
        "run = 'index' AND seq > 3",
        "1 = 1",
    ):
        put_back = shop.cut(where)
        code, named = said("verify")
        assert (code, named["error"]["code"]) == (3, "chain_broken"), where
        put_back()
        assert said("verify")[0] == 0
