"""Makes the errors of a store that cannot start on a PostgreSQL database, each with one sentence and a remedy, and
refuses batches that it cannot store.

An error is `InvalidSettings` if another attempt would fail in the same way, and `Unavailable` if it could succeed.
"""

from __future__ import annotations

import re
import socket
import ssl
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from contextos.contracts.journal import Batch, genesis
from contextos.errors import Conflict, ContextOSError, InvalidInput, InvalidSettings, Problem, Unavailable
from contextos.store.postgres.connections import (
    FAULTS,
    STATEMENTS_LOST,
    SettingsLost,
    first_line,
    is_text,
    loses_statements,
    postgres_error,
)

# Each write takes a lock, and the server has room for some thousand locks.
MAX_BATCH_WRITES: Final = 1000
FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
"""Options of a URL that name files. The errors of asyncpg do not name the missing file."""

_URL_FORM: Final = "write `postgresql://role:password@host:port/database`"
_WRONG_ROLE: Final = (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)
# The server closed the connection. All other TLS errors are about certificates and will recur.
_CONNECTION_CLOSED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def refuse_url(url: str) -> None:
    """Raise `InvalidSettings` for a URL that is not a PostgreSQL URL, or that names an unreadable file."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise unusable(url, "it is not a PostgreSQL URL", _URL_FORM)
    try:
        options = dict(parse_qsl(urlsplit(url).query))
    except ValueError as fault:
        raise start_refusal(url, fault) from fault
    for option in FILES:
        if option in options:
            try:
                Path(options[option]).read_bytes()
            except (OSError, ValueError) as fault:
                reason = (getattr(fault, "strerror", None) or str(fault)).lower()
                raise unusable(url, f"the file of `{option}` cannot be read: {reason}", "correct its path") from None


def start_refusal(url: str, fault: BaseException) -> ContextOSError:
    """Translate an error that occurs when a store starts. Most are wrong settings, and some are temporary."""
    if isinstance(fault, _WRONG_ROLE):
        detail = "the server does not know the role or its password, or its `pg_hba.conf` keeps the role out"
        return unusable(url, detail, "correct the URL, or let the role in there")
    if isinstance(fault, asyncpg.InvalidCatalogNameError):
        return unusable(url, "there is no such database", "create it with `createdb`, or correct the URL")
    if isinstance(fault, asyncpg.InsufficientPrivilegeError):
        return unusable(url, f"its role lacks a right ({first_line(fault)})", "use a role that has it, or grant it")
    if isinstance(fault, asyncpg.UndefinedObjectError | asyncpg.ClientConfigurationError):
        return unusable(url, f"an option is not known ({first_line(fault)})", "correct the options of the URL")
    if isinstance(fault, SettingsLost):
        return unusable(url, first_line(fault), "set each for its role: `ALTER ROLE … SET …`")
    if loses_statements(fault):
        return unusable(url, STATEMENTS_LOST, "let it pool sessions")
    if isinstance(fault, asyncpg.PostgresError) and (fault.sqlstate or "").startswith("42"):
        detail = f"its schema is not as `contextos store migrate` made it ({first_line(fault)})"
        return unusable(url, detail, "restore it, or name an empty database")
    if isinstance(fault, ssl.SSLError) and not isinstance(fault, _CONNECTION_CLOSED):
        return unusable(
            url, f"TLS with its server fails ({first_line(fault)})", "correct the certificates that the URL names"
        )
    if isinstance(fault, ConnectionError) and "rejected SSL upgrade" in str(fault):
        return unusable(url, "its server does not accept TLS", "set `ssl = on` there, or correct `sslmode`")
    if isinstance(fault, socket.gaierror):
        return unusable(url, f"its host cannot be resolved ({fault.strerror})", "correct host and options of the URL")
    if isinstance(fault, ValueError) and not isinstance(fault, asyncpg.PostgresError):
        # The message is not quoted: it could contain a part of the password.
        return unusable(url, "it cannot be read", f"{_URL_FORM}, with `/?#[@` of a password percent-encoded")
    if isinstance(fault, FileNotFoundError | ConnectionRefusedError):
        return Unavailable("store", f"no server answers at `{without_password(url)}`")
    if isinstance(fault, ConnectionError | asyncpg.ConnectionDoesNotExistError):
        return Unavailable("store", f"the server at `{without_password(url)}` ended the connection")
    return postgres_error(fault)


def unwrapped(fault: BaseException) -> BaseException:
    """Return the asyncpg error inside an error of SQLAlchemy, or `fault` itself if there is none."""
    cause: BaseException | None = fault
    while cause is not None and not isinstance(cause, FAULTS):
        cause = getattr(cause, "orig", None) or cause.__cause__
    return cause if cause is not None else fault


def unusable(url: str, why: str, remedy: str) -> InvalidSettings:
    """Return the error for a store that cannot be used, without the password of its URL."""
    return InvalidSettings(
        Problem("/store", "unusable_store", f"the store `{without_password(url)}` cannot be used: {why}", remedy)
    )


def without_password(url: str) -> str:
    """Return a URL without its password and its query, which can contain one.

    >>> without_password("postgresql://app:secret@db.example:5432/contextos?password=x")
    'postgresql://app@db.example:5432/contextos'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "(no URL)"
    rest, _, query = rest.partition("?")
    # Split at the last `@`: a password that was not percent-encoded can contain more of them.
    account, at_sign, location = rest.rpartition("@")
    if "@" in query and not (at_sign and re.match("[a-z_]+=", query)):
        # The `?` can be a part of the password, too. Then the text before it is not a host.
        return f"{scheme}://{re.split('[:@]', rest)[0]}"
    return f"{scheme}://{account.partition(':')[0]}{at_sign}{location}"


def refuse_broken_chain(tenant: str, batch: Batch) -> None:
    """Raise `Conflict` for entries that do not follow each other.

    The insert itself checks that the first entry follows the stored head.
    """
    for entry, following in pairwise(batch.entries):
        if entry.seq + 1 != following.seq or entry.hash != following.prev_hash:
            raise Conflict(batch.run)
    if batch.entries:
        first = batch.entries[0]
        if first.seq < 1 or (first.seq == 1 and first.prev_hash != genesis(tenant, batch.run)):
            raise Conflict(batch.run)


def refuse_unstorable(tenant: str, batch: Batch) -> None:
    """Raise `InvalidInput` for texts that PostgreSQL cannot store, and for more than `MAX_BATCH_WRITES` writes."""
    texts = [tenant, batch.run, *(batch.signature or ())]
    for entry in batch.entries:
        texts += (entry.kind, entry.key, entry.by, entry.body_digest, entry.prev_hash, entry.hash)
    for write in batch.writes:
        texts += (write.collection, write.key)
    for _, draft in batch.shared:
        texts += (draft.kind, draft.key, draft.by)
    if not is_text(*texts):
        raise InvalidInput(Problem("", "not_storable", "a name contains a null character or half a surrogate pair"))
    if len(batch.writes) > MAX_BATCH_WRITES:
        raise InvalidInput(Problem("/writes", "too_many", f"a batch has at most {MAX_BATCH_WRITES} writes", "split it"))
