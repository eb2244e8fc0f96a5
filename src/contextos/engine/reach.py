"""Whether a PostgreSQL database can be reached for a queue, and the one sentence if not.

A URL's password is never repeated, nor are statements and parameters of a driver's message.
"""

from __future__ import annotations

from typing import Final

from contextos.errors import InvalidSettings, Problem, Unavailable

RETRY_MS: Final = 1000
FOR_A_WORKER: Final = "run `contextos migrate`, which gives the role of `/queue` its rights"
FOR_ITS_OWNER: Final = "name the role that owns the database with `--queue-url`"


def said(fault: BaseException) -> str:
    """The first line of what a driver says, without statement and parameters."""
    return str(getattr(fault, "orig", None) or fault).partition("\n")[0]



def refusal(fault: Exception, url: str, *, no_rights: str = FOR_A_WORKER) -> InvalidSettings | Unavailable:
    """The one sentence for a database that DBOS cannot start on. A URL's password is never repeated."""
    import sqlalchemy as sa
    from dbos import error

    shown = sa.make_url(url).render_as_string(hide_password=True)
    state = getattr(getattr(fault, "orig", fault), "sqlstate", None) or ""
    detail = f"`{shown}`: {said(fault)}"
    if state in ("3F000", "42P01") or isinstance(fault, error.DBOSInitializationError):
        mend = "run `contextos migrate --queue-url URL` as the role that owns it"
        return InvalidSettings(Problem("/queue", "not_migrated", f"`{shown}` has no queue of this version", mend))
    if state == "42501":
        return InvalidSettings(Problem("/queue", "no_rights", detail, no_rights))
    if state.startswith(("28", "3D")) or "does not exist" in detail or "authentication failed" in detail:
        return InvalidSettings(Problem("/queue", "no_access", detail, "mend the URL, or make the role and database"))
    return Unavailable("queue", detail, retry_after_ms=RETRY_MS)


def reach(url: str, timeout_s: int) -> str:
    """The URL as DBOS takes it, after a first connection. Raises `InvalidSettings`, `Unavailable`."""
    try:
        import dbos  # noqa: F401 - is it there
        import psycopg
        import sqlalchemy as sa
    except ImportError as fault:
        lacks = Problem("/queue", "not_installed", f"`{fault.name}` is missing", "install `contextos[durable]`")
        raise InvalidSettings(lacks) from fault
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as fault:
        lacks = Problem("/queue", "no_url", "the database URL cannot be read", "write postgresql://user@host/database")
        raise InvalidSettings(lacks) from fault
    if parsed.get_backend_name() != "postgresql" or not parsed.database:
        lacks = Problem("/queue", "no_url", f"`{parsed.render_as_string()}` names no PostgreSQL database",
                        "write postgresql://user@host/database")  # fmt: skip
        raise InvalidSettings(lacks)
    parsed = parsed.set(drivername="postgresql")
    if "connect_timeout" not in parsed.query:
        parsed = parsed.update_query_dict({"connect_timeout": str(timeout_s)})
    reached = parsed.render_as_string(hide_password=False)
    try:
        psycopg.connect(reached).close()
    except psycopg.Error as fault:
        raise refusal(fault, reached) from fault
    return reached


def migrate(url: str, role: str | None, *, schema: str = "dbos", timeout_s: int = 5) -> None:
    """Bring DBOS's tables up to date as the role of `url`, which owns them, and let `role` use them. May be repeated.

    Raises: `InvalidSettings`, `Unavailable`.
    """
    reached = reach(url, timeout_s)
    import sqlalchemy as sa
    from dbos import DBOS, error

    try:
        DBOS.migrate(reached, schema=schema, application_role=role)
    except (sa.exc.SQLAlchemyError, error.DBOSException) as fault:
        raise refusal(fault, reached, no_rights=FOR_ITS_OWNER) from fault
