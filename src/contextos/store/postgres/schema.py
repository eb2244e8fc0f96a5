"""The schema of a PostgreSQL store: `migrate_schema` brings it up to date, `check_schema` checks it at every start.

Alembic runs the scripts of `store/postgres/migrations` in one transaction, as the role that owns the schema. A store
runs as another role, a member of `contextos_app`, to which row-level security applies. A role that bypasses it is
refused: for such a role one forgotten condition would show one tenant's rows to another.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos.store.postgres.connections import FAULTS, Connection, connect_postgres
from contextos.store.postgres.database_identity import DATABASE_IDENTITY
from contextos.store.postgres.isolation import BYPASSES_POLICIES, CHANGED_PROTECTIONS, TENANT_CONDITION, function_bodies
from contextos.store.postgres.refusals import refuse_url, start_refusal, unusable, unwrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection as SyncConnection

POSTGRES_SCHEMA_VERSION: Final = "0001"
"""The newest migration, and the only schema version that this code supports."""
OLDEST_SERVER: Final = 15
MIGRATIONS: Final = Path(__file__).with_name("migrations")

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('contextos migrate', 0))"
_VERSION: Final = "SELECT version_num FROM contextos.schema_version"
# From the catalogue, which a role without rights can read, too.
_HAS_SCHEMA: Final = (
    "SELECT EXISTS (SELECT FROM pg_class AS relation JOIN pg_namespace AS space ON space.oid = relation.relnamespace"
    " WHERE space.nspname = 'contextos' AND relation.relname = 'schema_version')"
)
# Every right that a run needs, checked at the start, so that no run fails half-way.
_MISSING_RIGHTS: Final = (
    "SELECT string_agg(what, ', ' ORDER BY what) FROM ("
    "  SELECT format('%s on `%s`', needed, name) FROM (VALUES"
    "   ('segments', 'SELECT'), ('segments', 'INSERT'), ('journal', 'SELECT'), ('journal', 'INSERT'),"
    "   ('heads', 'INSERT'), ('documents', 'INSERT'), ('runs', 'INSERT'),"
    "   ('run_terms', 'SELECT'), ('run_terms', 'INSERT'), ('run_terms', 'DELETE'),"
    "   ('nodes', 'INSERT'), ('edges', 'INSERT'), ('graph_commits', 'INSERT'),"
    "   ('extensions', 'SELECT'), ('extensions', 'INSERT'), ('artifacts', 'SELECT'), ('artifacts', 'INSERT'),"
    "   ('representations', 'SELECT'), ('representations', 'INSERT'), ('semantic_assertions', 'SELECT'),"
    "   ('semantic_assertions', 'INSERT'), ('context_selection_acts', 'SELECT'), ('context_selection_acts', 'INSERT'),"
    "   ('run_context_selections', 'SELECT'), ('run_context_selections', 'INSERT')) AS table_right (name, needed)"
    "   WHERE NOT has_table_privilege('contextos.' || name, needed)"
    "  UNION ALL SELECT format('UPDATE of `%s` on `%s`', changed, name) FROM (VALUES ('extensions', 'satisfies'),"
    "   ('artifacts', 'deleted_at_us'), ('semantic_assertions', 'eligibility'),"
    "   ('semantic_assertions', 'archived_at_us')) AS column_right (name, changed)"
    "   WHERE NOT has_column_privilege('contextos.' || name, changed, 'UPDATE')"
    "  UNION ALL SELECT format('EXECUTE on `%s`', name) FROM (VALUES"
    "   ('commit_batches', 'text, bigint, text, bigint[], contextos.segment[], contextos.write[],"
    " contextos.run_change[], contextos.signature[], contextos.draft[]'),"
    "   ('append_line', 'text, contextos.draft'), ('due', 'bigint, bigint, bigint'), ('graph_head', 'text'),"
    "   ('claim_runs', 'text, bigint, bigint, bigint, text[], text[], bigint[], text[], text[], bigint, bigint, bigint,"
    " bigint, bigint, text'),"
    "   ('graph_hop', 'text, bigint, bigint, text[]'), ('read_document', 'text, text, text'),"
    "   ('latest_us', 'text'), ('read_lines', 'text, text, text[]'), ('read_run', 'text, text, bigint'),"
    "   ('read_segments', 'text, text, bigint, bigint'), ('read_stream', 'text, text, bigint, bigint'),"
    "   ('scan_documents', 'text, text, text, text, text, bigint'),"
    "   ('waiting_runs', 'text, bigint, bigint'))"
    "   AS called (name, given)"
    "   WHERE NOT EXISTS (SELECT FROM pg_proc AS made JOIN pg_namespace AS space ON space.oid = made.pronamespace"
    "    WHERE space.nspname = 'contextos' AND proname = name AND oidvectortypes(proargtypes) = given"
    "     AND has_function_privilege(made.oid, 'EXECUTE'))"
    ") AS lacking (what)"
)
_SWEEP: Final = ", ".join(
    f"`ALTER POLICY sweep ON contextos.{table} TO CURRENT_USER`" for table in ("drive_rates", "runs", "workers")
)
_READ_ONLY: Final = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean"
_CAN_USE: Final = "SELECT has_schema_privilege('contextos', 'USAGE')"


async def check_schema(url: str, *, read_only: bool = False) -> str:
    """Check that a store can run on the database at `url` as the role that `url` names; return the database's identity.

    Refuses a database without schema, an older or newer schema, an encoding other than UTF-8, a server older than 15,
    a role that cannot use the schema, has surplus rights or bypasses row-level security, and a schema in which
    row-level security, a policy, a trigger, a function or an owner has changed since the migration, or in which a view
    bypasses that security. A standby is refused unless the store is opened `read_only`.

    Raises: `InvalidSettings` with one sentence on what to do; `Unavailable` if the server does not answer.
    """
    connection = await _connect(url)
    try:
        await _check_server(connection, url)
        if not await connection.fetchval(_HAS_SCHEMA):
            raise unusable(
                url, "it has no schema of contextos", "run `contextos store migrate` as the role that will own it"
            )
        if not await connection.fetchval(_CAN_USE):
            raise unusable(url, "its role is not allowed to use the schema", "run `GRANT contextos_app TO` that role")
        version = _single_version([row[0] for row in await connection.fetch(_VERSION)], url)
        if version != POSTGRES_SCHEMA_VERSION:
            raise unusable(
                url,
                f"its schema `{version}` is older than `{POSTGRES_SCHEMA_VERSION}`",
                "run `contextos store migrate`",
            )
        if not read_only and await connection.fetchval(_READ_ONLY):
            raise unusable(url, "it is a standby, or read-only", "name the server that accepts writes")
        # Read here, so that a server that does not report its identity is refused at the start.
        identity: str = await connection.fetchval(DATABASE_IDENTITY)
        missing_rights = await connection.fetchval(_MISSING_RIGHTS)
        if missing_rights:
            remedy = "run `GRANT contextos_app TO` that role, or restore the schema"
            raise unusable(url, f"its role lacks a right: {missing_rights}", remedy)
        if await connection.fetchval(BYPASSES_POLICIES):
            raise unusable(
                url,
                "its role bypasses row-level security, so tenants could see each other",
                "use a role that is a member of `contextos_app` and neither owner nor superuser",
            )
        changes = await connection.fetchval(CHANGED_PROTECTIONS, TENANT_CONDITION, *function_bodies())
        if changes:
            detail = "protections of its tenants and its journal are not as `contextos store migrate` made them"
            remedy = "have the owner of the schema restore them, or restore the database"
            # A change of owner, also by a restore under another role, does not change the role in this policy.
            remedy += f"; after a change of owner, the new owner runs {_SWEEP}" if "policy `sweep`" in changes else ""
            raise unusable(url, f"{detail}: {changes}", remedy)
        return identity
    except FAULTS as fault:
        raise start_refusal(url, fault) from fault
    finally:
        connection.terminate()


async def migrate_schema(url: str) -> tuple[str | None, str]:
    """Migrate the schema at `url` to the newest version in one transaction; return the versions (before, after).

    Can be repeated. If several processes call it, one migrates and the others wait. Refuses a schema that is newer than
    this code. The role needs `CREATE` on the database, and `CREATEROLE` unless the role `contextos_app` exists.

    Raises: `InvalidSettings` with one sentence on what to do; `Unavailable` if the server does not answer.
    """
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    connection = await _connect(url)

    async def reuse_connection() -> Connection:
        return connection

    engine = create_async_engine("postgresql+asyncpg://", async_creator=reuse_connection, poolclass=NullPool)
    try:
        await _check_server(connection, url)
        async with engine.begin() as transaction:
            await transaction.exec_driver_sql(_LOCK)
            before = await _current_version(transaction, url)
            if before != POSTGRES_SCHEMA_VERSION:
                await transaction.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS contextos")
                await transaction.run_sync(_upgrade)
    except SQLAlchemyError as fault:
        raise start_refusal(url, unwrapped(fault)) from fault
    except FAULTS as fault:
        raise start_refusal(url, fault) from fault
    finally:
        await engine.dispose()
        connection.terminate()
    return before, POSTGRES_SCHEMA_VERSION


async def _current_version(transaction: Any, url: str) -> str | None:
    if not (await transaction.exec_driver_sql(_HAS_SCHEMA)).scalar_one():
        return None
    return _single_version([row[0] for row in await transaction.exec_driver_sql(_VERSION)], url)


def _single_version(versions: Sequence[str], url: str) -> str:
    """Return the one version in `versions`. Raises `InvalidSettings` for none, several, or an unknown one."""
    if len(versions) != 1:
        detail = f"its schema records {len(versions)} versions instead of one"
        raise unusable(url, detail, "restore the database, or name an empty one")
    (version,) = versions
    if version > POSTGRES_SCHEMA_VERSION:
        raise unusable(
            url, f"its schema `{version}` is newer than `{POSTGRES_SCHEMA_VERSION}`", "run a newer contextos"
        )
    if version not in migration_versions():
        detail = f"its schema `{version}` is not a version of contextos"
        raise unusable(url, detail, "restore the database, or name an empty one")
    return version


def migration_versions() -> tuple[str, ...]:
    """Return the version of every migration, oldest first."""
    return tuple(sorted(path.name[:4] for path in (MIGRATIONS / "versions").glob("[0-9][0-9][0-9][0-9]_*.py")))


def _upgrade(connection: SyncConnection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    # Alembic reads `%` in an option as the start of a name.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, POSTGRES_SCHEMA_VERSION)


async def _connect(url: str) -> Connection:
    refuse_url(url)
    try:
        return await connect_postgres(url)
    except (*FAULTS, ValueError) as fault:
        raise start_refusal(url, fault) from fault


async def _check_server(connection: Connection, url: str) -> None:
    if connection.get_server_version().major < OLDEST_SERVER:
        raise unusable(url, f"its server is older than PostgreSQL {OLDEST_SERVER}", "upgrade the server")
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise unusable(url, f"its encoding is `{encoding}`", "create a database with `ENCODING 'UTF8'`")
