"""Whether a PostgreSQL database can be reached for a queue, and the one sentence if not.

A URL's password is never repeated, nor are statements and parameters of a driver's message.
"""

from __future__ import annotations

from typing import Final

from contextos.errors import InvalidSettings, Problem, Unavailable

RETRY_MS: Final = 1000
FOR_A_WORKER: Final = "run `contextos migrate`, which gives the role of `/queue` its rights"
# Made after DBOS's own tables, so the rights that DBOS gives the role by default hold for it too.
_STORE: Final = (
    "CREATE TABLE IF NOT EXISTS {}.contextos_store"
    " (one boolean PRIMARY KEY DEFAULT true CHECK (one), store text NOT NULL)"
)
_STRAYED: Final = (
    "SELECT pg_get_userbyid(nspowner) FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace"
    " WHERE nspname = %s AND relname = 'contextos_store' AND relowner <> nspowner"
    " AND pg_has_role(relowner, 'MEMBER') AND pg_has_role(nspowner, 'MEMBER')"
)
_PASS_ON: Final = "ALTER TABLE {}.contextos_store OWNER TO {}"
_CLAIM: Final = "INSERT INTO {}.contextos_store (store) VALUES (%s) ON CONFLICT (one) DO NOTHING"
_CLAIMED: Final = "SELECT store FROM {}.contextos_store"
FOR_ITS_OWNER: Final = "name the role that owns the database with `--queue-url`"


def driver_message(fault: BaseException) -> str:
    """The first line of what a driver says, without statement and parameters."""
    return str(getattr(fault, "orig", None) or fault).partition("\n")[0]


def without_query_secrets(url: str) -> str:
    """The URL without its secrets, also those in its query."""
    import sqlalchemy as sa

    parsed = sa.make_url(url)
    hidden = {name: "***" for name in parsed.query if "password" in name.lower()}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True)


def queue_refusal(fault: Exception, url: str, *, no_rights: str = FOR_A_WORKER) -> InvalidSettings | Unavailable:
    """The one sentence for a database that DBOS cannot start on. A URL's password is never repeated."""
    from dbos import error

    place = without_query_secrets(url)
    state = getattr(getattr(fault, "orig", fault), "sqlstate", None) or ""
    detail = f"`{place}`: {driver_message(fault)}"
    if state in ("3F000", "42P01") or isinstance(fault, error.DBOSInitializationError):
        mend = "run `contextos migrate --queue-url URL` as the role that owns it"
        return InvalidSettings(Problem("/queue", "not_migrated", f"`{place}` has no queue of this version", mend))
    if state == "42501":
        return InvalidSettings(Problem("/queue", "no_rights", detail, no_rights))
    if state == "42704":
        return InvalidSettings(Problem("/queue", "no_role", detail, "make the role that `/queue` names"))
    if state.startswith(("28", "3D")) or "does not exist" in detail or "authentication failed" in detail:
        return InvalidSettings(Problem("/queue", "no_access", detail, "mend the URL, or make the role and database"))
    return Unavailable("queue", detail, retry_after_ms=RETRY_MS)


def connect_queue(url: str, timeout_s: int) -> str:
    """The URL as DBOS takes it, after a first connection. Raises `InvalidSettings`, `Unavailable`."""
    try:
        import dbos  # noqa: F401 - is it there
        import psycopg
        import sqlalchemy as sa
    except ImportError as fault:
        lacks = Problem("/queue", "not_installed", f"`{fault.name}` is missing", "install `contextos[durable]`")
        raise InvalidSettings(lacks) from fault
    unreadable = Problem("/queue", "no_url", "the database URL cannot be read", "write postgresql://user@host/database")
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as fault:
        raise InvalidSettings(unreadable) from fault
    # An `@` of a password that nobody encoded: its end would be taken, and shown, for the host.
    if "@" in (parsed.host or "") or "password=" in str(parsed.password or "").lower():
        raise InvalidSettings(unreadable)
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg") or not parsed.database:
        lacks = Problem(
            "/queue", "no_url", f"`{without_query_secrets(url)}` names no PostgreSQL database", unreadable.remedy
        )
        raise InvalidSettings(lacks)
    parsed = parsed.set(drivername="postgresql")
    if "connect_timeout" not in parsed.query:
        parsed = parsed.update_query_dict({"connect_timeout": str(timeout_s)})
    reached = parsed.render_as_string(hide_password=False)
    try:
        psycopg.connect(reached).close()
    except psycopg.ProgrammingError as fault:
        # libpq cannot make sense of an option; the next try would not either.
        raise InvalidSettings(
            Problem("/queue", "no_url", f"`{without_query_secrets(reached)}`: {driver_message(fault)}", "mend it")
        ) from fault
    except psycopg.Error as fault:
        raise queue_refusal(fault, reached) from fault
    return reached


def claim_queue(url: str, store: str, *, schema: str) -> None:
    """Take the queue for the store of this name, if it has none yet. Refuses the queue of another store.

    Raises: `InvalidSettings`, `Unavailable`.
    """
    import psycopg
    from psycopg import sql

    named = sql.Identifier(schema)
    try:
        with psycopg.connect(url) as connection:
            connection.execute(sql.SQL(_CLAIM).format(named), (store,))
            holder = connection.execute(sql.SQL(_CLAIMED).format(named)).fetchone()
    except psycopg.Error as fault:
        raise queue_refusal(fault, url) from fault
    if holder != (store,):
        mend = "name another database in `queue`; after a restore, drop its schema and run `contextos migrate`"
        raise InvalidSettings(
            Problem("/queue", "foreign_queue", f"`{without_query_secrets(url)}` is the queue of another store", mend)
        )


def role_of(url: str) -> str | None:
    """The role that a URL names; None for a URL that is empty or that `connect_queue` would refuse."""
    from urllib.parse import unquote, urlsplit

    try:
        name = urlsplit(url).username
    except ValueError:
        return None
    return unquote(name) if name else None


def migrate_queue_tables(url: str, role: str | None, *, schema: str = "dbos", timeout_s: int = 5) -> str | None:
    """Bring DBOS's tables up to date as the role of `url`, which owns them, and let `role` use them. May be repeated.

    Returns the role. Raises: `InvalidSettings`, `Unavailable`.
    """
    reached = connect_queue(url, timeout_s)
    import psycopg
    import sqlalchemy as sa
    from dbos import DBOS, error
    from psycopg import sql

    try:
        DBOS.migrate(reached, schema=schema, application_role=role)
        with psycopg.connect(reached) as connection:
            connection.execute(sql.SQL(_STORE).format(sql.Identifier(schema)))
            # A superuser made it who stood in once, and then the owner could not give its rights away.
            for (owner,) in connection.execute(_STRAYED, (schema,)).fetchall():
                connection.execute(sql.SQL(_PASS_ON).format(sql.Identifier(schema), sql.Identifier(owner)))
    except (sa.exc.SQLAlchemyError, error.DBOSException, psycopg.Error) as fault:
        raise queue_refusal(fault, reached, no_rights=FOR_ITS_OWNER) from fault
    return role
