"""The schema is made once, whole or not at all; and a store refuses to start on anything but it, in one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from contextos.cli import run_command_line
from contextos.errors import ContextOSError, InvalidSettings, Unavailable
from contextos.store.postgres import schema
from contextos.store.postgres.isolation import TABLES, TRIGGERS
from contextos.store.postgres.refusals import without_password
from contextos.store.postgres.schema import MIGRATIONS, POSTGRES_SCHEMA_VERSION, check_schema, migrate_schema
from contextos.store.postgres.stores import PostgresStores
from tests.postgres import LOGIN, PASSWORD, Database, Server, awaited

WHOLE = (
    "SELECT string_agg(format('%s.%s.%s', table_name, column_name, data_type), ' ' ORDER BY table_name, column_name)"
    " FROM information_schema.columns WHERE table_schema = 'contextos'"
)


@pytest.fixture
def empty(postgres: Server) -> Iterator[Database]:
    """A database without a schema."""
    database = Database(postgres, "contextos_test_empty")
    postgres.execute(f"DROP DATABASE IF EXISTS {database.name}")
    postgres.execute(f"CREATE DATABASE {database.name} ENCODING 'UTF8' TEMPLATE template0")
    yield database
    database.drop()


@pytest.fixture
def other(database: Database) -> Iterator[str]:
    """A role that owns nothing yet, and that the application's is no member of."""
    database.execute("CREATE ROLE contextos_test_other NOLOGIN")
    yield "contextos_test_other"
    database.execute("REASSIGN OWNED BY contextos_test_other TO CURRENT_USER")
    database.execute("DROP ROLE contextos_test_other")


def refusal(url: str) -> ContextOSError:
    """Why a store does not start on `url`."""
    with pytest.raises(ContextOSError) as refused:
        awaited(check_schema(url))
    assert PASSWORD not in str(refused.value)
    assert str(refused.value).count("; ") <= 2, "one sentence and its mend"
    return refused.value


def test_the_schema_that_the_code_runs_on_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [POSTGRES_SCHEMA_VERSION]


def test_a_migration_done_twice_changes_nothing_the_second_time(empty: Database) -> None:
    assert awaited(migrate_schema(empty.owner)) == (None, POSTGRES_SCHEMA_VERSION)
    before = empty.execute(WHOLE)
    assert awaited(migrate_schema(empty.owner)) == (POSTGRES_SCHEMA_VERSION, POSTGRES_SCHEMA_VERSION)
    assert empty.execute(WHOLE) == before
    awaited(check_schema(empty.app))


def test_of_several_who_migrate_at_the_same_time_one_does_it_and_the_others_find_it_done(empty: Database) -> None:
    async def together() -> list[tuple[str | None, str]]:
        return await asyncio.gather(*(migrate_schema(empty.owner) for _ in range(4)))

    assert sorted(awaited(together()), key=str) == [(POSTGRES_SCHEMA_VERSION, POSTGRES_SCHEMA_VERSION)] * 3 + [
        (None, POSTGRES_SCHEMA_VERSION)
    ]


def test_a_migration_that_fails_in_the_middle_leaves_nothing_behind(empty: Database) -> None:
    empty.execute("CREATE SCHEMA contextos")
    empty.execute("CREATE TABLE contextos.edges (theirs int)")
    with pytest.raises(ContextOSError):
        awaited(migrate_schema(empty.owner))
    assert empty.execute(WHOLE)[0][0] == "edges.theirs.integer"


def test_a_newer_schema_is_refused_by_the_start_and_by_migrate_and_left_alone(database: Database) -> None:
    database.execute("UPDATE contextos.schema_version SET version_num = '0999'")
    for start in (check_schema(database.app), migrate_schema(database.owner), PostgresStores.open(database.app)):
        with pytest.raises(InvalidSettings, match="its schema `0999` is newer than `0001`; run a newer contextos"):
            awaited(start)
    assert database.execute("SELECT version_num FROM contextos.schema_version")[0][0] == "0999"


def test_an_older_schema_and_none_are_refused_with_what_to_run(
    database: Database, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "it has no schema of contextos; run `contextos store migrate`" in str(refusal(empty.app))
    monkeypatch.setattr(schema, "POSTGRES_SCHEMA_VERSION", "0002")
    assert "its schema `0001` is older than `0002`; run `contextos store migrate`" in str(refusal(database.app))


def test_a_role_that_may_pass_row_level_security_is_refused(database: Database) -> None:
    assert "bypasses row-level security" in str(refusal(database.owner))
    database.execute(f"ALTER ROLE {LOGIN} BYPASSRLS")
    try:
        assert "bypasses row-level security" in str(refusal(database.app))
    finally:
        database.execute(f"ALTER ROLE {LOGIN} NOBYPASSRLS")
    database.execute(f"ALTER TABLE contextos.journal OWNER TO {LOGIN}")
    assert "bypasses row-level security" in str(refusal(database.app))


def test_a_role_that_may_become_one_above_the_policies_is_refused(database: Database) -> None:
    server = database.server
    server.execute("CREATE ROLE contextos_test_above SUPERUSER NOLOGIN")
    server.execute(
        f"CREATE ROLE contextos_test_member LOGIN PASSWORD '{PASSWORD}' IN ROLE contextos_test_above, contextos_app"
    )
    try:
        refused = refusal(server.named(database.name, "contextos_test_member"))
        assert isinstance(refused, InvalidSettings)
        assert "row-level security" in str(refused)
    finally:
        server.execute("DROP ROLE contextos_test_member")
        server.execute("DROP ROLE contextos_test_above")


EMPTIED_FUNCTION = (
    "CREATE OR REPLACE FUNCTION contextos.erases_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"
)
SURPLUS_FUNCTION = (
    "CREATE FUNCTION contextos.empties() RETURNS void LANGUAGE sql AS 'UPDATE contextos.journal SET body = NULL'"
)
SURPLUS_TRIGGER = (
    "CREATE TRIGGER more BEFORE INSERT ON contextos.heads FOR EACH ROW EXECUTE FUNCTION contextos.edge_ends_only()"
)


@pytest.mark.parametrize("view", ["public.once", "public.twice"])
@pytest.mark.parametrize("right", ["SELECT", "UPDATE (body)", "INSERT", "DELETE"])
def test_a_view_through_which_the_application_reaches_a_table_is_refused(
    database: Database, view: str, right: str
) -> None:
    """A view reads with the rights of its owner, past the rights and the policies of the table."""
    database.execute("CREATE VIEW public.once AS SELECT * FROM contextos.journal")
    database.execute("CREATE VIEW public.twice AS SELECT * FROM public.once")
    assert awaited(check_schema(database.app)), "a view that only the owner can use is the owner's affair"
    database.execute(f"GRANT {right} ON {view} TO PUBLIC")
    assert f"right on the view `{view.removeprefix('public.')}`" in str(refusal(database.app))


@pytest.mark.parametrize(
    ("done", "named"),
    [
        ("ALTER TABLE contextos.journal DISABLE ROW LEVEL SECURITY", "row-level security of `journal`"),
        ("ALTER TABLE contextos.edges NO FORCE ROW LEVEL SECURITY", "row-level security of `edges`"),
        ("DROP POLICY tenant ON contextos.documents", "policy `tenant` of `documents`"),
        ("ALTER POLICY tenant ON contextos.heads USING (true)", "policy `tenant` of `heads`"),
        ("ALTER POLICY tenant ON contextos.heads WITH CHECK (tenant <> '')", "policy `tenant` of `heads`"),
        ("ALTER POLICY tenant ON contextos.nodes TO contextos_app", "policy `tenant` of `nodes`"),
        ("CREATE POLICY wide ON contextos.nodes FOR SELECT USING (true)", "policy `wide` of `nodes`"),
        ("DROP POLICY sweep ON contextos.runs", "policy `sweep` of `runs`"),
        ("ALTER POLICY sweep ON contextos.runs TO contextos_app", "policy `sweep` of `runs`"),
        ("ALTER POLICY sweep ON contextos.runs TO PUBLIC", "policy `sweep` of `runs`"),
        ("ALTER POLICY sweep ON contextos.runs USING (false)", "policy `sweep` of `runs`"),
        ("ALTER POLICY sweep ON contextos.runs USING (wake_at_us > 0)", "policy `sweep` of `runs`"),
        (f"ALTER FUNCTION contextos.due OWNER TO {LOGIN}", "function `due`"),
        ("ALTER FUNCTION contextos.due SECURITY INVOKER", "function `due`"),
        ("ALTER FUNCTION contextos.due RESET search_path", "function `due`"),
        ("ALTER FUNCTION contextos.read_stream SECURITY DEFINER", "function `read_stream`"),
        ("ALTER TABLE contextos.runs OWNER TO contextos_test_other", "function `due`"),
        ("ALTER TABLE contextos.journal OWNER TO contextos_test_other", "owner of `journal`"),
        ("ALTER TABLE contextos.segments DISABLE TRIGGER erases_only", "trigger `erases_only` of `segments`"),
        ("ALTER TABLE contextos.nodes DISABLE TRIGGER ALL", "trigger `stands` of `nodes`"),
        ("ALTER TABLE contextos.heads ENABLE REPLICA TRIGGER keeps", "trigger `keeps` of `heads`"),
        ("DROP TRIGGER ends_only ON contextos.edges", "trigger `ends_only` of `edges`"),
        ("GRANT DELETE ON contextos.documents TO contextos_app", "right to DELETE `documents`"),
        (f"GRANT ALL ON contextos.journal TO {LOGIN}", "right to UPDATE `journal`"),
        ("GRANT UPDATE (body, salts) ON contextos.segments TO contextos_app", "right to UPDATE `salts` of `segments`"),
        ("GRANT TRUNCATE ON contextos.runs TO PUBLIC", "right to TRUNCATE `runs`"),
        (EMPTIED_FUNCTION, "function `erases_only`"),
        (SURPLUS_FUNCTION, "function `empties`"),
        ("ALTER TRIGGER keeps ON contextos.journal RENAME TO kept", "trigger `keeps` of `journal`"),
        (SURPLUS_TRIGGER, "trigger `more` of `heads`"),
        ("CREATE RULE lost AS ON INSERT TO contextos.heads DO INSTEAD NOTHING", "rule `lost` of `heads`"),
    ],
)
def test_a_database_whose_tenants_are_no_longer_kept_apart_is_refused(
    database: Database, other: str, done: str, named: str
) -> None:
    assert other in done or "other" not in done
    database.execute(done)
    refused = refusal(database.app)
    assert isinstance(refused, InvalidSettings)
    why, remedy = (
        " and its journal are not as `contextos store migrate` made them: ",
        "; have the owner of the schema restore them",
    )
    assert named in str(refused).partition(why)[2].partition(remedy)[0].split(", ")


@pytest.mark.parametrize(
    ("table", "trigger"), [(table, trigger) for trigger, tables in TRIGGERS.items() for table in tables]
)
def test_no_table_is_without_what_keeps_its_rows(database: Database, table: str, trigger: str) -> None:
    database.execute(f"ALTER TABLE contextos.{table} DISABLE TRIGGER {trigger}")
    assert f"trigger `{trigger}` of `{table}`" in str(refusal(database.app))
    database.execute(f"ALTER TABLE contextos.{table} ENABLE TRIGGER {trigger}")
    awaited(check_schema(database.app))


def test_each_trigger_of_the_schema_is_looked_at(database: Database) -> None:
    made = database.execute("SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal")
    listed = {(trigger, f"contextos.{table}") for trigger, tables in TRIGGERS.items() for table in tables}
    assert {tuple(row) for row in made} == listed


@pytest.mark.parametrize("table", TABLES)
def test_no_table_is_without_what_keeps_its_tenants_apart(database: Database, table: str) -> None:
    place = f"contextos.{table}"
    for done, undone, named in (
        ("DISABLE ROW LEVEL SECURITY", "ENABLE ROW LEVEL SECURITY", f"row-level security of `{table}`"),
        ("NO FORCE ROW LEVEL SECURITY", "FORCE ROW LEVEL SECURITY", f"row-level security of `{table}`"),
    ):
        database.execute(f"ALTER TABLE {place} {done}")
        assert named in str(refusal(database.app))
        database.execute(f"ALTER TABLE {place} {undone}")
    assert awaited(check_schema(database.app))
    policy = "sweep" if table == "workers" else "tenant"
    database.execute(f"DROP POLICY {policy} ON {place}")
    assert f"policy `{policy}` of `{table}`" in str(refusal(database.app))
    database.execute(f"ALTER TABLE {place} RENAME TO before")
    database.execute(f"CREATE VIEW {place} AS SELECT * FROM contextos.before")
    database.execute(f"GRANT ALL ON {place} TO contextos_app")
    told = str(refusal(database.app))
    assert f"right on the view `{table}`" in told
    assert f"table `{table}`" in told


def test_a_table_that_somebody_puts_beside_ours_is_looked_at_too(database: Database) -> None:
    database.execute("CREATE TABLE contextos.more (tenant text)")
    assert "policy `tenant` of `more`, row-level security of `more`" in str(refusal(database.app))


RIGHTS = {
    "extensions": ("SELECT", "INSERT", "UPDATE (satisfies)"),
    "artifacts": ("SELECT", "INSERT", "UPDATE (deleted_at_us)"),
    "representations": ("SELECT", "INSERT"),
    "semantic_assertions": ("SELECT", "INSERT", "UPDATE (eligibility)", "UPDATE (archived_at_us)"),
    "context_selection_acts": ("SELECT", "INSERT"),
    "run_context_selections": ("SELECT", "INSERT"),
}


def test_each_right_that_a_slot_needs_is_asked_for_at_the_start(database: Database) -> None:
    for table, rights in RIGHTS.items():
        for right in rights:
            database.execute(f"REVOKE {right} ON contextos.{table} FROM contextos_app")
            needed, _, column = right.rstrip(")").partition(" (")
            named = f"UPDATE of `{column}` on `{table}`" if column else f"{needed} on `{table}`"
            assert f"its role lacks a right: {named}; " in str(refusal(database.app))
            database.execute(f"GRANT {right} ON contextos.{table} TO contextos_app")
    assert awaited(check_schema(database.app))


def test_a_function_that_takes_other_arguments_is_none_of_those_that_a_run_needs(database: Database) -> None:
    database.execute("ALTER FUNCTION contextos.read_run RENAME TO before")
    database.execute("CREATE FUNCTION contextos.read_run(text) RETURNS text LANGUAGE sql AS 'SELECT $1'")
    database.execute("GRANT EXECUTE ON FUNCTION contextos.read_run TO contextos_app")
    assert "its role lacks a right: EXECUTE on `read_run`" in str(refusal(database.app))


def test_the_owner_of_the_schema_is_above_row_level_security(database: Database) -> None:
    database.execute(f"ALTER SCHEMA contextos OWNER TO {LOGIN}")
    assert "bypasses row-level security" in str(refusal(database.app))


def test_a_database_that_takes_no_writes_is_refused(database: Database) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    refused = refusal(database.app)
    assert isinstance(refused, InvalidSettings)
    assert "read-only" in str(refused)


@pytest.mark.parametrize("option", ["no_such_option=1", "command_timeout=1"])
def test_an_unknown_option_of_the_url_is_an_invalid_setting(database: Database, option: str) -> None:
    refused = refusal(database.app + ("&" if "?" in database.app else "?") + option)
    assert isinstance(refused, InvalidSettings)
    assert "option" in str(refused)


def test_a_plain_role_can_migrate_its_own_database_and_owns_the_result(postgres: Server) -> None:
    postgres.execute("DROP ROLE IF EXISTS contextos_test_owner")
    postgres.execute(f"CREATE ROLE contextos_test_owner LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute("DROP DATABASE IF EXISTS contextos_test_owned")
    postgres.execute("CREATE DATABASE contextos_test_owned OWNER contextos_test_owner")
    owner = postgres.named("contextos_test_owned", "contextos_test_owner")
    app = postgres.named("contextos_test_owned", LOGIN)

    async def sweep() -> list[tuple[str, str]]:
        from contextos.contracts.journal import Batch

        stores = await PostgresStores.open(app)
        for tenant in ("one", "two"):
            await stores.tenant(tenant).commit(Batch("run_a", wake_at_us=5))
        found = [run async for run in stores.due(9)]
        await stores.aclose()
        return found

    try:
        assert awaited(migrate_schema(owner)) == (None, POSTGRES_SCHEMA_VERSION)
        assert awaited(sweep()) == [("one", "run_a"), ("two", "run_a")]
        assert "bypasses row-level security" in str(refusal(owner))
        rows = postgres.execute("SELECT count(*) FROM contextos.runs", "contextos_test_owned")
        assert rows[0][0] == 2
    finally:
        postgres.execute("DROP DATABASE contextos_test_owned WITH (FORCE)")
        postgres.execute("DROP ROLE contextos_test_owner")


def test_after_a_change_of_owner_the_refusal_names_the_statements_that_are_missing(postgres: Server) -> None:
    for role in ("old", "new"):
        postgres.execute(f"DROP ROLE IF EXISTS contextos_test_{role}")
        postgres.execute(f"CREATE ROLE contextos_test_{role} LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute("DROP DATABASE IF EXISTS contextos_test_passed_on")
    postgres.execute("CREATE DATABASE contextos_test_passed_on OWNER contextos_test_old")
    passed_on = Database(postgres, "contextos_test_passed_on")
    app = passed_on.app
    try:
        awaited(migrate_schema(postgres.named(passed_on.name, "contextos_test_old")))
        passed_on.execute("REASSIGN OWNED BY contextos_test_old TO contextos_test_new")
        statements = [one for one in str(refusal(app)).split("`") if one.startswith("ALTER POLICY sweep ")]
        assert len(statements) == 3
        for statement in statements:
            passed_on.execute(statement, postgres.named(passed_on.name, "contextos_test_new"))
        assert awaited(check_schema(app))
    finally:
        passed_on.drop()
        for role in ("old", "new"):
            postgres.execute(f"DROP ROLE contextos_test_{role}")


def test_missing_rights_are_one_sentence(database: Database, empty: Database) -> None:
    with pytest.raises(InvalidSettings, match="its role lacks a right"):
        awaited(migrate_schema(empty.app))
    database.execute("REVOKE USAGE ON SCHEMA contextos FROM contextos_app")
    assert "its role is not allowed to use the schema; run `GRANT contextos_app TO` that role" in str(
        refusal(database.app)
    )
    database.execute(f"REVOKE CONNECT ON DATABASE {database.name} FROM PUBLIC")
    assert isinstance(refusal(database.app), InvalidSettings)


@pytest.mark.parametrize("url", ["", "contextos.db", "mysql://x@y/z", "postgresql://h:notaport/x", "http://[::1"])
def test_a_wrong_url_is_refused_in_one_sentence(url: str) -> None:
    for start in (check_schema(url), migrate_schema(url)):
        with pytest.raises(InvalidSettings, match="postgresql://role:password@host:port/database"):
            awaited(start)


def test_a_missing_database_and_a_missing_server_are_different_errors(postgres: Server, tmp_path: Path) -> None:
    gone = refusal(postgres.named("contextos_test_never_made", LOGIN))
    assert isinstance(gone, InvalidSettings)
    assert "there is no such database" in str(gone)
    silent = refusal(f"postgresql://{LOGIN}:{PASSWORD}@/x?host={tmp_path}")
    assert isinstance(silent, Unavailable)
    assert silent.retry_after_ms > 0
    assert isinstance(refusal("postgresql://127.0.0.1:9/x"), Unavailable)
    unknown = refusal(postgres.named("postgres", "contextos_test_nobody"))
    assert "does not know the role or its password" in str(unknown)


def test_another_encoding_is_refused(postgres: Server) -> None:
    postgres.execute("DROP DATABASE IF EXISTS contextos_test_latin")
    postgres.execute("CREATE DATABASE contextos_test_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(InvalidSettings, match="its encoding is `LATIN1`"):
            awaited(migrate_schema(postgres.named("contextos_test_latin")))
    finally:
        postgres.execute("DROP DATABASE contextos_test_latin")


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("postgresql://app:secret@db:5432/x?password=secret", "postgresql://app@db:5432/x"),
        ("postgresql://app:se@cret@db/x", "postgresql://app@db/x"),
        ("postgresql:///x?host=/tmp&password=secret", "postgresql:///x"),
        ("postgresql://app:secret@db?password=secret", "postgresql://app@db"),
        ("postgresql://app:sec/ret@db/x", "postgresql://app@db/x"),
        ("postgresql://app@db/x?password=se@cret", "postgresql://app@db/x"),
        ("postgresql://app:pw@db:5432/x?password=se@cret", "postgresql://app@db:5432/x"),
        ("postgresql:///x?host=/tmp&password=se@cret", "postgresql:///x"),
        ("postgresql://app:se?cret@db/x", "postgresql://app"),
        ("postgresql://app:se@cr?et@db/x", "postgresql://app"),
        ("secret", "(no URL)"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, safe: str) -> None:
    assert without_password(url) == safe


@pytest.mark.parametrize("sign", ["/", "?", "#", "[", "@/", "?x=", "/x?y=z&"])
def test_a_url_that_cannot_be_read_says_nothing_of_its_password(sign: str) -> None:
    refused = refusal(f"postgresql://app:alpha{sign}omega@127.0.0.1:1/x")
    assert "alpha" not in str(refused)
    assert "omega" not in str(refused)


def test_the_command_migrates_says_so_and_repeats_harmlessly(
    empty: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTOS_MIGRATE_URL", empty.owner)
    assert run_command_line(["store", "migrate"]) == 0
    assert run_command_line(["store", "migrate"]) == 0
    assert capsys.readouterr().out == "the schema is `0001` now\nthe schema is `0001` already\n"
    assert run_command_line(["store", "migrate", "--url", empty.owner, "--json"]) == 0
    assert '"after": "0001"' in capsys.readouterr().out
    assert run_command_line(["store", "migrate", "--url", "postgresql://app:secret@127.0.0.1:9/x"]) == 4
    assert run_command_line(["store", "migrate", "--url", "contextos.db"]) == 2
    assert "secret" not in capsys.readouterr().err


def test_the_command_in_a_workspace_with_a_file_has_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTEXTOS_MIGRATE_URL", raising=False)
    (tmp_path / "contextos.toml").write_text("", encoding="utf-8")
    assert run_command_line(["store", "migrate", "-w", str(tmp_path)]) == 0
    assert "is a SQLite file" in capsys.readouterr().out
