"""Why a store does not start on a PostgreSQL database: one sentence and its mend, or that it is worth trying again.

What will be the same at the next try is a setting (`InvalidSettings`); what may pass is `Unavailable`.
"""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from contextos.errors import ContextOSError, InvalidSettings, Problem, Unavailable
from contextos.store.postgres.connections import FAULTS, first_line, postgres_error

FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
"""Options of a URL that name files, which asyncpg reads without saying which of them is missing."""

_FORM: Final = "write `postgresql://role:password@host:port/database`"
_WRONG_ROLE: Final = (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)
# The other side hung up; all other faults of TLS are of certificates and will be the same again.
_HUNG_UP: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def refuse_url(url: str) -> None:
    """Refuses what is no URL of PostgreSQL, and one that names a file nobody can read. Raises `InvalidSettings`."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise unusable(url, "it is no URL of PostgreSQL", _FORM)
    try:
        named = dict(parse_qsl(urlsplit(url).query))
    except ValueError as fault:
        raise start_refusal(url, fault) from fault
    for option in FILES:
        if option in named:
            try:
                Path(named[option]).read_bytes()
            except (OSError, ValueError) as fault:
                why = (getattr(fault, "strerror", None) or str(fault)).lower()
                raise unusable(url, f"the file of `{option}` cannot be read: {why}", "mend its path") from None


def start_refusal(url: str, fault: BaseException) -> ContextOSError:
    """What a fault at the start means: most are settings, and some pass."""
    if isinstance(fault, _WRONG_ROLE):
        return unusable(url, "the server does not know the role or its password", "mend the URL")
    if isinstance(fault, asyncpg.InvalidCatalogNameError):
        return unusable(url, "there is no such database", "make it with `createdb`, or mend the URL")
    if isinstance(fault, asyncpg.InsufficientPrivilegeError):
        return unusable(url, f"its role lacks a right ({first_line(fault)})", "use a role that has it, or grant it")
    if isinstance(fault, asyncpg.UndefinedObjectError | asyncpg.ClientConfigurationError):
        return unusable(url, f"an option is not known ({first_line(fault)})", "mend the options of the URL")
    if isinstance(fault, asyncpg.PostgresError) and (fault.sqlstate or "").startswith("42"):
        detail = f"what is in it is not as `contextos migrate` made it ({first_line(fault)})"
        return unusable(url, detail, "restore it, or name an empty database")
    if isinstance(fault, ssl.SSLError) and not isinstance(fault, _HUNG_UP):
        return unusable(url, f"TLS with its server fails ({first_line(fault)})", "mend the certificates it names")
    if isinstance(fault, ConnectionError) and "rejected SSL upgrade" in str(fault):
        return unusable(url, "its server takes no TLS", "set `ssl = on` there, or mend `sslmode`")
    if isinstance(fault, socket.gaierror):
        return unusable(url, f"no server is where it points ({fault.strerror})", "mend host and options of the URL")
    if isinstance(fault, ValueError) and not isinstance(fault, asyncpg.PostgresError):
        # What parsing chokes on may be a part of the password.
        return unusable(url, "it cannot be read", f"{_FORM}, with `/?#[@` of a password percent-encoded")
    if isinstance(fault, FileNotFoundError | ConnectionRefusedError):
        return Unavailable("store", f"no server answers at `{without_password(url)}`")
    return postgres_error(fault)


def cause(fault: BaseException) -> BaseException:
    """What asyncpg raised below SQLAlchemy's own wrappers; the wrapper itself if there is nothing below."""
    below: BaseException | None = fault
    while below is not None and not isinstance(below, FAULTS):
        below = getattr(below, "orig", None) or below.__cause__
    return below if below is not None else fault


def unusable(url: str, why: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(
        Problem("/store", "unusable_store", f"the store `{without_password(url)}` cannot be used: {why}", remedy)
    )


def without_password(url: str) -> str:
    """A URL without its password and its query, which may hold one.

    >>> without_password("postgresql://app:secret@db.example:5432/contextos?password=x")
    'postgresql://app@db.example:5432/contextos'
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return "(no URL)"
    rest, _, query = rest.partition("?")
    # The last `@`, because a password may hold any sign that somebody forgot to encode.
    account, at, place = rest.rpartition("@")
    if "@" in query and not (at and re.match("[a-z_]+=", query)):
        # The `?` may be of a password too, and then what stands before it is no host.
        return f"{scheme}://{re.split('[:@]', rest)[0]}"
    return f"{scheme}://{account.partition(':')[0]}{at}{place}"
