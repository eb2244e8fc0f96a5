"""No tenant sees another's anything: the catalogue of the database says so, and every method shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from contextos.contracts.journal import CONTROL, INDEX, Batch, Write
from contextos.errors import ContextOSError, InvalidInput, NotFound
from contextos.store.postgres.connections import connect_postgres
from contextos.store.postgres.stores import PostgresStores
from tests.postgres import Database, Server, awaited
from tests.suites.graph_suite import edge
from tests.suites.store_suite import draft, entries_after, erased

HOLDS_NO_TENANTS_DATA = {"schema_version", "workers"}
SWEPT = {"drive_rates", "runs", "workers"}

HOSTILE = (
    "'; SET contextos.tenant = 'acme'; --",
    "x', true); SELECT set_config('contextos.tenant', 'acme', false); --",
    "acme' OR '1'='1",
    "acme\nSET LOCAL contextos.tenant TO acme",
    "acme ",
    "ACME",
    "acme\u200b",
    "%",
    "$1",
)


TABLES = """
SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced, c.relkind AS kind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'contextos' AND c.relkind IN ('r', 'p', 'm', 'v', 'f') ORDER BY 1
"""
KEYS = """
SELECT t.relname AS name, i.relname AS index, a.attname AS first
FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_namespace n ON n.oid = t.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = x.indkey[0]
WHERE n.nspname = 'contextos' AND (x.indisunique OR x.indisprimary OR x.indisexclusion)
"""
FOREIGN_KEYS = """
SELECT t.relname AS name, k.conname AS key, a.attname AS first, b.attname AS refers
FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = k.confkey[1]
WHERE n.nspname = 'contextos' AND k.contype = 'f'
"""
POLICIES = "SELECT * FROM pg_policies WHERE schemaname = 'contextos' ORDER BY tablename, policyname"
DEFINERS = """
SELECT p.proname AS name, p.proconfig AS config FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'contextos' AND p.prosecdef
"""
OPEN_TO_ALL = """
SELECT p.proname AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'contextos' AND has_function_privilege('public', p.oid, 'EXECUTE')
"""
MINE = "(tenant = NULLIF(current_setting('contextos.tenant'::text, true), ''::text))"


def lacking(database: Database) -> list[str]:
    """Every way in which the schema could let one tenant see or hinder another, as sentences."""
    found = []
    policies = [dict(row) for row in database.execute(POLICIES)]
    keys = [dict(row) for row in database.execute(KEYS)]
    for table in database.execute(TABLES):
        name = table["name"]
        if name in HOLDS_NO_TENANTS_DATA:
            continue
        if table["kind"] != b"r":
            found.append(f"`{name}` is not a plain table, so policies may not apply to it")
        if not (table["enabled"] and table["forced"]):
            found.append(f"`{name}` has no forced row-level security")
        mine = [one for one in policies if one["tablename"] == name and one["policyname"] == "tenant"]
        if not mine or mine[0]["cmd"] != "ALL" or mine[0]["qual"] != MINE or mine[0]["with_check"] != MINE:
            found.append(f"`{name}` has no policy for reading and writing the own tenant alone")
        if not any(key["name"] == name for key in keys):
            found.append(f"`{name}` has no key")
    for policy in policies:
        if policy["policyname"] != "tenant" and not (policy["policyname"] == "sweep" and policy["tablename"] in SWEPT):
            found.append(f"`{policy['tablename']}` has the policy `{policy['policyname']}`, which opens it further")
        if policy["policyname"] == "sweep" and {"contextos_app", "public"} & set(policy["roles"]):
            found.append("the application's own role may sweep without the function `due`")
    for key in keys:
        if key["name"] not in HOLDS_NO_TENANTS_DATA and key["first"] != "tenant":
            found.append(f"the unique index `{key['index']}` is not led by the tenant")
    for key in database.execute(FOREIGN_KEYS):
        if (key["first"], key["refers"]) != ("tenant", "tenant"):
            found.append(f"the foreign key `{key['key']}` is not led by the tenant")
    for function in database.execute(DEFINERS):
        pinned = any(one.startswith("search_path=pg_catalog") for one in function["config"] or ())
        if function["name"] not in ("claim_runs", "due", "erase_entry") or not pinned:
            found.append(f"the function `{function['name']}` runs with its owner's rights")
    found += [f"anybody may call `{function['name']}`" for function in database.execute(OPEN_TO_ALL)]
    return found


def test_every_table_is_under_forced_row_level_security_and_every_key_is_led_by_the_tenant(database: Database) -> None:
    assert lacking(database) == []
    assert len(database.execute(TABLES)) == 18


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("CREATE TABLE contextos.planted (tenant text PRIMARY KEY)", "no forced row-level security"),
        ("ALTER TABLE contextos.runs NO FORCE ROW LEVEL SECURITY", "no forced row-level security"),
        ("ALTER TABLE contextos.runs DISABLE ROW LEVEL SECURITY", "no forced row-level security"),
        ("DROP POLICY tenant ON contextos.heads", "no policy for reading and writing"),
        ("ALTER POLICY tenant ON contextos.heads WITH CHECK (true)", "no policy for reading and writing"),
        ("ALTER POLICY tenant ON contextos.heads USING (tenant <> '')", "no policy for reading and writing"),
        ("CREATE POLICY more ON contextos.journal USING (true)", "opens it further"),
        ("ALTER POLICY sweep ON contextos.runs TO contextos_app", "may sweep"),
        ("CREATE UNIQUE INDEX planted ON contextos.documents (key)", "`planted` is not led by the tenant"),
        ("CREATE UNIQUE INDEX planted ON contextos.documents (lower(tenant))", "`planted` is not led by the tenant"),
        ("CREATE MATERIALIZED VIEW contextos.planted AS SELECT * FROM contextos.runs", "is not a plain table"),
        ("CREATE VIEW contextos.planted AS SELECT * FROM contextos.runs", "is not a plain table"),
        (
            "CREATE FUNCTION contextos.planted() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT 1::bigint'",
            "runs with its owner's rights",
        ),
        ("GRANT EXECUTE ON FUNCTION contextos.due TO PUBLIC", "anybody may call `due`"),
    ],
)
def test_a_planted_gap_in_the_schema_is_found(database: Database, planted: str, said: str) -> None:
    database.execute(planted)
    assert any(said in one for one in lacking(database)), lacking(database)


@pytest.mark.parametrize("table", ["drive_rates", "workers"])
def test_the_role_of_the_application_reaches_the_tables_of_claims_by_their_function_alone(
    database: Database, table: str
) -> None:
    for statement in (f"SELECT * FROM contextos.{table}", f"DELETE FROM contextos.{table}"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            database.execute(statement, database.app)


def test_a_planted_foreign_key_without_the_tenant_is_found(database: Database) -> None:
    database.execute("CREATE UNIQUE INDEX keys ON contextos.documents (key)")
    refers = "FOREIGN KEY (run) REFERENCES contextos.documents (key)"
    database.execute(f"ALTER TABLE contextos.runs ADD CONSTRAINT planted {refers}")
    assert "the foreign key `planted` is not led by the tenant" in lacking(database)


def test_the_role_of_the_application_is_neither_owner_nor_above_the_policies(database: Database) -> None:
    (row,) = database.execute(
        "SELECT bool_or(rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb) AS above, count(*) AS roles"
        " FROM pg_roles WHERE rolname IN ('contextos_app', 'contextos_test_login')"
    )
    assert (row["above"], row["roles"]) == (False, 2)
    roles = "'contextos_app'::regrole, 'contextos_test_login'::regrole"
    owned = f"SELECT count(*) FROM pg_class WHERE relowner IN ({roles})"
    assert database.execute(owned)[0][0] == 0


@pytest.fixture(scope="module")
def shared(postgres: Server) -> Iterator[Database]:
    """`acme` has one of everything."""
    database = postgres.database()

    async def fill() -> None:
        stores = PostgresStores(database.app)
        batch = Batch(
            "run_a",
            entries_after("acme", "run_a", [], 2),
            (Write("keys", "k", 0, b"v"),),
            ((INDEX, draft()), (CONTROL, draft())),
            wake_at_us=5,
            signature=("kid", "aa"),
        )
        await stores.tenant("acme").commit(batch)
        node = {"ceid": "a", "type": "t", "properties": {}}
        await stores.graph("acme").put([node], [edge("a", "b", "e1")])
        await stores.aclose()

    asyncio.run(fill())
    yield database
    database.drop()


async def everything(stores: PostgresStores, tenant: str) -> list[Any]:
    """What each method answers `tenant` about the names that `acme` uses."""
    store, graph = stores.tenant(tenant), stores.graph(tenant)

    async def erasing() -> str:
        try:
            await stores.erase(tenant, "run_a", 1, erased("run_a", 1))
        except NotFound as absent:
            return str(absent)
        raise AssertionError("something was erased")

    return [
        [list(await store.read(stream)) for stream in ("run_a", INDEX, CONTROL, "absent")],
        await store.scan("keys"),
        await store.scan("keys", key="k"),
        await store.scan("keys", prefix="k", after=""),
        await store.look([("keys", "k"), ("absent", "k")], prefixes=[("keys", "k", 9)], lines=[("k", 0)]),
        [await store.read_run(stream) for stream in ("run_a", "absent")],
        await graph.head(),
        await graph.neighbourhood(["a", "b"], at=9, hops=3, fan_out=9, limit=9),
        await graph.nodes(["a", "b"], at=9),
        await erasing(),
    ]


@pytest.mark.parametrize("stranger", ["other", *HOSTILE])
def test_to_another_tenant_every_method_answers_as_if_nothing_were_there(shared: Database, stranger: str) -> None:
    async def probe() -> None:
        stores = PostgresStores(shared.eraser)
        assert await everything(stores, stranger) == await everything(stores, "never used")
        seen = (await stores.tenant("acme").read("run_a"))[0]
        assert seen.body is not None, "nobody erased it"
        await stores.aclose()

    awaited(probe())


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_name_in_any_argument_is_only_a_name(shared: Database, hostile: str) -> None:
    async def probe() -> None:
        stores = PostgresStores(shared.app)
        store = stores.tenant("other")
        for found in (
            await store.read(hostile),
            await store.scan(hostile),
            await store.scan("keys", key=hostile),
            await store.scan("keys", prefix=hostile),
            [part for part in await store.read_run(hostile) if part],
            *await store.look(
                [("keys", hostile), (hostile, "k"), (hostile, hostile)],
                prefixes=[(hostile, "k", 9), ("keys", hostile, 9)],
                lines=[(hostile, 0)],
            ),
            await stores.graph("other").neighbourhood([hostile], at=9, hops=2, fan_out=9, limit=9),
            await stores.graph("other").nodes([hostile], at=9),
        ):
            assert list(found) == []
        await store.commit(Batch(hostile, writes=(Write("names", hostile, 0, b"v"),)))
        assert [document.key for document in await store.scan("names", prefix=hostile)] == [hostile]
        assert await stores.tenant("acme").scan("names") == []
        await stores.aclose()

    awaited(probe())


def test_another_tenants_commit_of_the_same_names_neither_fails_nor_changes_stored_rows(shared: Database) -> None:
    async def probe() -> None:
        stores = PostgresStores(shared.app)
        before = await stores.tenant("acme").read("run_a"), await stores.tenant("acme").scan("keys")
        entries = entries_after("twin", "run_a", [], 2, "other")
        batch = Batch(
            "run_a", entries, (Write("keys", "k", 0, b"w"),), ((INDEX, draft()),), wake_at_us=0, signature=("kid", "bb")
        )
        await stores.tenant("twin").commit(batch)
        with pytest.raises(InvalidInput):
            await stores.tenant("twin").commit(Batch("run_b", entries_after("acme", "run_b", [], 1)))
        assert (await stores.tenant("acme").read("run_a"), await stores.tenant("acme").scan("keys")) == before
        assert [run async for run in stores.due(9)] == [("acme", "run_a")]
        await stores.aclose()

    awaited(probe())


def test_without_a_tenant_and_after_a_transaction_the_role_sees_and_writes_nothing(shared: Database) -> None:
    async def probe() -> None:
        connection = await connect_postgres(shared.app)
        tables = ["segments", "journal", "heads", "documents", "runs", "graph_commits", "nodes", "edges"]
        await connection.fetch("SELECT * FROM contextos.read_stream('acme', 'run_a', 0, 9)")
        assert await connection.fetchval("SELECT current_setting('contextos.tenant', true)") == ""
        for table in tables:
            assert await connection.fetchval(f"SELECT count(*) FROM contextos.{table}") == 0
        for tenant in ("acme", ""):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute(f"INSERT INTO contextos.runs VALUES ('{tenant}', 'run_x', 1)")
        assert await connection.execute("UPDATE contextos.documents SET body = 'gone'") == "UPDATE 0"
        await connection.close()

    awaited(probe())


def test_a_group_of_many_tenants_commits_each_under_its_own_name(database: Database) -> None:
    async def together() -> None:
        stores = PostgresStores(database.app)

        async def commit(tenant: str) -> str:
            writes = (Write("keys", "k", 0, tenant.encode()),)
            try:
                await stores.tenant(tenant).commit(
                    Batch("run_a", entries_after(tenant, "run_a", [], 1), writes, ((INDEX, draft(tenant)),))
                )
            except ContextOSError as error:
                return type(error).__name__
            return "ok"

        tenants = [f"tenant_{number}" for number in range(20)]
        assert await asyncio.gather(*map(commit, [*tenants, *tenants])) == ["ok"] * 20 + ["Conflict"] * 20
        for tenant in tenants:
            store = stores.tenant(tenant)
            assert [one.body for one in await store.scan("keys")] == [tenant.encode()]
            assert [entry.tenant for entry in [*await store.read("run_a"), *await store.read(INDEX)]] == [tenant] * 2
        await stores.aclose()

    awaited(together())
