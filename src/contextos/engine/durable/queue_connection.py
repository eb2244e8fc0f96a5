"""Connections to the PostgreSQL database of a queue: check, migrate and claim it, and report why it cannot be used.

An error never repeats a password of the URL, nor the statement and the parameters of a driver's message.
"""

from __future__ import annotations

from typing import Final

from contextos.errors import InvalidSettings, Problem, Unavailable

RETRY_MS: Final = 1000
FOR_A_WORKER: Final = "run `contextos migrate`, which grants the role of `/queue` its rights"
# Created after DBOS's own tables, so that the default privileges that DBOS grants to the role include it.
_STORE: Final = (
    "CREATE TABLE IF NOT EXISTS {}.contextos_store"
    " (one boolean PRIMARY KEY DEFAULT true CHECK (one), store text NOT NULL)"
)
_WRONG_OWNER: Final = (
    "SELECT pg_get_userbyid(nspowner) FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace"
    " WHERE nspname = %s AND relname = 'contextos_store' AND relowner <> nspowner"
    " AND pg_has_role(relowner, 'MEMBER') AND pg_has_role(nspowner, 'MEMBER')"
)
_SET_OWNER: Final = "ALTER TABLE {}.contextos_store OWNER TO {}"
_CLAIM: Final = "INSERT INTO {}.contextos_store (store) VALUES (%s) ON CONFLICT (one) DO NOTHING"
_HOLDER: Final = "SELECT store FROM {}.contextos_store"
FOR_ITS_OWNER: Final = "name the role that owns the database with `--queue-url`"


def driver_message(fault: BaseException) -> str:
    """Return the first line of a driver's error, without its statement and parameters."""
    return str(getattr(fault, "orig", None) or fault).partition("\n")[0]


def without_query_secrets(url: str) -> str:
    """Return a database URL with `***` for its password and for the passwords in its query."""
    import sqlalchemy as sa

    parsed = sa.make_url(url)
    hidden = {name: "***" for name in parsed.query if "password" in name.lower()}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True)


def queue_refusal(fault: Exception, url: str, *, no_rights: str = FOR_A_WORKER) -> InvalidSettings | Unavailable:
    """Return the error for a database that the queue (DBOS) cannot use. `no_rights` says what to do if rights are
    missing.
    """
    from dbos import error

    place = without_query_secrets(url)
    state = getattr(getattr(fault, "orig", fault), "sqlstate", None) or ""
    detail = f"`{place}`: {driver_message(fault)}"
    if state in ("3F000", "42P01") or isinstance(fault, error.DBOSInitializationError):
        remedy = "run `contextos migrate --queue-url URL` as the role that owns it"
        return InvalidSettings(Problem("/queue", "not_migrated", f"`{place}` has no queue of this version", remedy))
    if state == "42501":
        return InvalidSettings(Problem("/queue", "no_rights", detail, no_rights))
    if state == "42704":
        return InvalidSettings(Problem("/queue", "no_role", detail, "create the role that `/queue` names"))
    if state.startswith(("28", "3D")) or "does not exist" in detail or "authentication failed" in detail:
        return InvalidSettings(Problem("/queue", "no_access", detail, "fix the URL, or create the role and database"))
    return Unavailable("queue", detail, retry_after_ms=RETRY_MS)


def connect_queue(url: str, timeout_s: int) -> str:
    """Connect once, and return the URL in the form that DBOS accepts, with a connection timeout.

    Raises: `InvalidSettings`, `Unavailable`.
    """
    try:
        import dbos  # noqa: F401 - only checks that it is installed
        import psycopg
        import sqlalchemy as sa
    except ImportError as fault:
        missing = Problem("/queue", "not_installed", f"`{fault.name}` is missing", "install `contextos[durable]`")
        raise InvalidSettings(missing) from fault
    unreadable = Problem("/queue", "no_url", "the database URL cannot be read", "write postgresql://user@host/database")
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as fault:
        raise InvalidSettings(unreadable) from fault
    # A password with an `@` that is not encoded: the URL's host would be, and would show, its end.
    if "@" in (parsed.host or "") or "password=" in str(parsed.password or "").lower():
        raise InvalidSettings(unreadable)
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg") or not parsed.database:
        detail = f"`{without_query_secrets(url)}` does not name a PostgreSQL database"
        raise InvalidSettings(Problem("/queue", "no_url", detail, unreadable.remedy))
    parsed = parsed.set(drivername="postgresql")
    if "connect_timeout" not in parsed.query:
        parsed = parsed.update_query_dict({"connect_timeout": str(timeout_s)})
    checked = parsed.render_as_string(hide_password=False)
    try:
        psycopg.connect(checked).close()
    except psycopg.ProgrammingError as fault:
        # libpq does not know an option of the URL, so a retry would fail too.
        detail = f"`{without_query_secrets(checked)}`: {driver_message(fault)}"
        raise InvalidSettings(Problem("/queue", "no_url", detail, "fix the options of the URL")) from fault
    except psycopg.Error as fault:
        raise queue_refusal(fault, checked) from fault
    return checked


def claim_queue(url: str, store: str, *, schema: str) -> None:
    """Assign the queue to the store of this name, if it is not assigned yet.

    Raises:
        InvalidSettings: the queue belongs to another store, or the database cannot be used.
        Unavailable: the database does not answer.
    """
    import psycopg
    from psycopg import sql

    schema_name = sql.Identifier(schema)
    try:
        with psycopg.connect(url) as connection:
            connection.execute(sql.SQL(_CLAIM).format(schema_name), (store,))
            holder = connection.execute(sql.SQL(_HOLDER).format(schema_name)).fetchone()
    except psycopg.Error as fault:
        raise queue_refusal(fault, url) from fault
    if holder != (store,):
        detail = f"`{without_query_secrets(url)}` is the queue of another store"
        remedy = "name another database in `queue`; after a restore, drop its schema and run `contextos migrate`"
        raise InvalidSettings(Problem("/queue", "foreign_queue", detail, remedy))


def role_of(url: str) -> str | None:
    """Return the role in a URL, or None if it has none or cannot be parsed."""
    from urllib.parse import unquote, urlsplit

    try:
        name = urlsplit(url).username
    except ValueError:
        return None
    return unquote(name) if name else None


def migrate_queue_tables(url: str, role: str | None, *, schema: str = "dbos", timeout_s: int = 5) -> str | None:
    """Create or upgrade DBOS's tables as the role of `url`, which owns them, and grant `role` their use. Idempotent.

    Returns `role`. Raises: `InvalidSettings`, `Unavailable`.
    """
    checked = connect_queue(url, timeout_s)
    import psycopg
    import sqlalchemy as sa
    from dbos import DBOS, error
    from psycopg import sql

    try:
        DBOS.migrate(checked, schema=schema, application_role=role)
        with psycopg.connect(checked) as connection:
            connection.execute(sql.SQL(_STORE).format(sql.Identifier(schema)))
            # A superuser may have created the table in an earlier migration. Its owner must be able to grant rights.
            for (owner,) in connection.execute(_WRONG_OWNER, (schema,)).fetchall():
                connection.execute(sql.SQL(_SET_OWNER).format(sql.Identifier(schema), sql.Identifier(owner)))
    except (sa.exc.SQLAlchemyError, error.DBOSException, psycopg.Error) as fault:
        raise queue_refusal(fault, checked, no_rights=FOR_ITS_OWNER) from fault
    return role
