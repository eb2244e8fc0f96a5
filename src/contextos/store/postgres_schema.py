"""The schema of a PostgreSQL store: made and brought up to date by `migrate`, checked by `check_schema` at every start.

Alembic runs the scripts of `store/migrations`, all in one transaction, as a role that owns the schema. What runs later
is another role, a member of `contextos_app`, to which row-level security applies; a role to which it does not is
refused, because then one forgotten condition would show one tenant's rows to another.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from contextos.errors import ContextOSError, InvalidSettings, Problem
from contextos.store.postgres_connections import FAULTS, Connection, connect, fault_of

if TYPE_CHECKING:
    from sqlalchemy import Connection as SyncConnection

SCHEMA_VERSION: Final = "0001"
"""The newest migration, and the only one that this code runs on."""
OLDEST_SERVER: Final = 15
MIGRATIONS: Final = Path(__file__).with_name("migrations")

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('contextos migrate', 0))"
_VERSION: Final = "SELECT version_num FROM contextos.schema_version"
# From the catalogue, which also a role without rights may read.
_IS_THERE: Final = (
    "SELECT EXISTS (SELECT FROM pg_class AS relation JOIN pg_namespace AS space ON space.oid = relation.relnamespace"
    " WHERE space.nspname = 'contextos' AND relation.relname = 'schema_version')"
)
# A role is above the policies if it may become one that ignores them, or the owner, who can take them away.
_ABOVE: Final = (
    "SELECT EXISTS ("
    "  SELECT FROM pg_roles AS role"
    "  WHERE (role.rolsuper OR role.rolbypassrls) AND pg_has_role(session_user, role.oid, 'MEMBER')) OR EXISTS ("
    "  SELECT FROM pg_class AS relation JOIN pg_namespace AS space ON space.oid = relation.relnamespace"
    "  WHERE space.nspname = 'contextos' AND pg_has_role(session_user, relation.relowner, 'MEMBER'))"
)
_READ_ONLY: Final = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean"
_MAY_USE: Final = "SELECT has_schema_privilege('contextos', 'USAGE')"

_WRONG_ROLE: Final = (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)


async def check_schema(url: str) -> None:
    """Check that a store can run on the database at `url` as the role that `url` names.

    Refuses a database without schema, an older or newer schema, an encoding other than UTF-8, a server older than 15,
    a role that may not use the schema, and a role that may pass row-level security.

    Raises: `InvalidSettings` with one sentence on what to do; `Unavailable` if the server does not answer.
    """
    connection = await _connected(url)
    try:
        await _check_server(connection, url)
        if not await connection.fetchval(_IS_THERE):
            raise _unusable(
                url, "it has no schema of contextos", "run `contextos migrate` as the role that will own it"
            )
        if not await connection.fetchval(_MAY_USE):
            raise _unusable(url, "its role may not use the schema", "run `GRANT contextos_app TO` that role")
        _check_version(await connection.fetchval(_VERSION), url)
        if await connection.fetchval(_READ_ONLY):
            raise _unusable(url, "it is a standby, or read only", "name the server that takes writes")
        if await connection.fetchval(_ABOVE):
            raise _unusable(
                url,
                "its role may pass row-level security, so tenants could see each other",
                "name a role that is a member of `contextos_app` and neither owner nor superuser",
            )
    except FAULTS as fault:
        raise _refusal(url, fault) from fault
    finally:
        connection.terminate()


async def migrate(url: str) -> tuple[str | None, str]:
    """Bring the schema at `url` to the newest version, whole or not at all; return the versions (before, after).

    May be repeated, and run by several at once: one does it, the others wait and find it done. Refuses a schema that
    is newer than this code. The role needs `CREATE` on the database, and `CREATEROLE` unless `contextos_app` is there.

    Raises: `InvalidSettings` with one sentence on what to do; `Unavailable` if the server does not answer.
    """
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    connection = await _connected(url)

    async def opened() -> Connection:
        return connection

    engine = create_async_engine("postgresql+asyncpg://", async_creator=opened, poolclass=NullPool)
    try:
        await _check_server(connection, url)
        async with engine.begin() as transaction:
            await transaction.exec_driver_sql(_LOCK)
            before = await _version(transaction)
            if before is not None:
                _check_not_newer(before, url)
            if before != SCHEMA_VERSION:
                await transaction.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS contextos")
                await transaction.run_sync(_upgrade)
    except SQLAlchemyError as fault:
        raise _refusal(url, _cause(fault)) from fault
    except FAULTS as fault:
        raise _refusal(url, fault) from fault
    finally:
        await engine.dispose()
        connection.terminate()
    return before, SCHEMA_VERSION


async def _version(transaction: Any) -> str | None:
    if not (await transaction.exec_driver_sql(_IS_THERE)).scalar_one():
        return None
    version: str | None = (await transaction.exec_driver_sql(_VERSION)).scalar_one_or_none()
    return version


def _upgrade(connection: SyncConnection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    # Alembic reads `%` in an option as the start of a name.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, SCHEMA_VERSION)


async def _connected(url: str) -> Connection:
    if not url.startswith(("postgresql://", "postgres://")):
        raise _unusable(url, "it is no URL of PostgreSQL", "write `postgresql://role:password@host:port/database`")
    try:
        return await connect(url)
    except (*FAULTS, ValueError) as fault:
        raise _refusal(url, fault) from fault


async def _check_server(connection: Connection, url: str) -> None:
    if connection.get_server_version().major < OLDEST_SERVER:
        raise _unusable(url, f"its server is older than PostgreSQL {OLDEST_SERVER}", "upgrade the server")
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise _unusable(url, f"its encoding is `{encoding}`", "make a database with `ENCODING 'UTF8'`")


def _check_version(version: str | None, url: str) -> None:
    if version is not None:
        _check_not_newer(version, url)
    if version != SCHEMA_VERSION:
        raise _unusable(url, f"its schema `{version}` is older than `{SCHEMA_VERSION}`", "run `contextos migrate`")


def _check_not_newer(version: str, url: str) -> None:
    if version > SCHEMA_VERSION:
        raise _unusable(url, f"its schema `{version}` is newer than `{SCHEMA_VERSION}`", "run a newer contextos")


def _refusal(url: str, fault: BaseException) -> ContextOSError:
    """What a fault at the start means: most are settings, and some pass."""
    if isinstance(fault, _WRONG_ROLE):
        return _unusable(url, "the server does not know the role or its password", "mend the URL")
    if isinstance(fault, asyncpg.InvalidCatalogNameError):
        return _unusable(url, "there is no such database", "make it with `createdb`, or mend the URL")
    if isinstance(fault, asyncpg.InsufficientPrivilegeError):
        return _unusable(url, f"its role lacks a right ({fault})", "use a role that has it, or grant it")
    if isinstance(fault, asyncpg.UndefinedObjectError | asyncpg.ClientConfigurationError):
        return _unusable(url, f"an option is not known ({fault})", "mend the options of the URL")
    if isinstance(fault, asyncpg.PostgresError) and (fault.sqlstate or "").startswith("42"):
        detail = f"what is in it is not as `contextos migrate` made it ({fault})"
        return _unusable(url, detail, "restore it, or name an empty database")
    if isinstance(fault, socket.gaierror):
        return _unusable(url, f"no server is where it points ({fault.strerror})", "mend host and options of the URL")
    if isinstance(fault, ValueError) and not isinstance(fault, asyncpg.PostgresError):
        return _unusable(url, f"it cannot be read ({fault})", "write `postgresql://role:password@host:port/database`")
    return fault_of(fault)


def _cause(fault: BaseException) -> BaseException:
    """What asyncpg raised below SQLAlchemy's own wrappers; the wrapper itself if there is nothing below."""
    below: BaseException | None = fault
    while below is not None and not isinstance(below, FAULTS):
        below = getattr(below, "orig", None) or below.__cause__
    return below if below is not None else fault


def _unusable(url: str, why: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(
        Problem("/store", "unusable_store", f"the store `{shown(url)}` cannot be used: {why}", remedy)
    )


def shown(url: str) -> str:
    """A URL without its password and its query, which may hold one.

    >>> shown("postgresql://app:secret@db.example:5432/contextos?password=x")
    'postgresql://app@db.example:5432/contextos'
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return "(no URL)"
    # The last `@`, because a password may hold any sign that somebody forgot to encode.
    account, at, place = rest.rpartition("@")
    return f"{scheme}://{account.partition(':')[0]}{at}{place.partition('?')[0]}"
