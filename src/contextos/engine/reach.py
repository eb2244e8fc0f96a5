"""Whether a PostgreSQL database can be reached for a queue, and the one sentence if not.

A URL's password is never repeated, nor are statements and parameters of a driver's message.
"""

from __future__ import annotations

from typing import Final

from contextos.errors import InvalidSettings, Problem, Unavailable

RETRY_MS: Final = 1000


def said(fault: BaseException) -> str:
    """The first line of what a driver says, without statement and parameters."""
    return str(getattr(fault, "orig", None) or fault).partition("\n")[0]


def refusal(fault: Exception, url: str) -> InvalidSettings | Unavailable:
    """The one sentence for a database that DBOS cannot start on. A URL's password is never repeated."""
    import sqlalchemy as sa

    shown = sa.make_url(url).render_as_string(hide_password=True)
    state = getattr(getattr(fault, "orig", fault), "sqlstate", None) or ""
    detail = f"`{shown}`: {said(fault)}"
    if state == "42501":
        return InvalidSettings(
            Problem("/engine", "no_rights", detail, "give its role CREATE on the database, or let the owner start once")
        )
    if state.startswith(("28", "3D")) or "does not exist" in detail or "authentication failed" in detail:
        return InvalidSettings(Problem("/engine", "no_access", detail, "mend the URL, or make the role and database"))
    return Unavailable("queue", detail, retry_after_ms=RETRY_MS)


def reach(url: str, timeout_s: int) -> str:
    """The URL as DBOS takes it, after a first connection. Raises `InvalidSettings`, `Unavailable`."""
    try:
        import dbos  # noqa: F401 - is it there
        import psycopg
        import sqlalchemy as sa
    except ImportError as fault:
        lacks = Problem("/engine", "not_installed", f"`{fault.name}` is missing", "pip install contextos[durable]")
        raise InvalidSettings(lacks) from fault
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as fault:
        lacks = Problem("/engine", "no_url", "the database URL cannot be read", "write postgresql://user@host/database")
        raise InvalidSettings(lacks) from fault
    if parsed.get_backend_name() != "postgresql" or not parsed.database:
        lacks = Problem("/engine", "no_url", f"`{parsed.render_as_string()}` names no PostgreSQL database",
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
