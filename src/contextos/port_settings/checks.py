"""Checks that the tables of several settings share. Each raises `InvalidSettings`, which names the setting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from contextos.contracts.facts import name_remedy
from contextos.errors import InvalidSettings, Problem

MAX_PORT_TIMEOUT_S: Final = 60
_HEX_KEY: Final = re.compile(r"[0-9a-f]{64}")
_URL: Final = re.compile(r"https?://[!$->@-\[\]-~]+", re.IGNORECASE | re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def check_https(url: Any, at: str) -> None:
    """Check that `url` is one whose answers nobody on the way can change. Raises `InvalidSettings`."""
    check_text(url, at)
    parts = url_parts(url)
    if not parts.hostname or "@" in parts.netloc:
        raise bad(
            at, "this is not the URL of a service", "write `https://host/path` in ASCII, without a query or a password"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        detail = "the connection is not encrypted, so anybody on the way could answer"
        raise bad(at, detail, "write `https://`")


def url_parts(text: str) -> SplitResult:
    """Return the parts of a URL over HTTP that is ASCII and has no query; of any other text those of the empty one."""
    try:
        parts = urlsplit(text if _URL.fullmatch(text) else "")
        return parts if parts.hostname and parts.port != 0 else urlsplit("")
    except ValueError:
        return urlsplit("")


def is_loopback(host: str) -> bool:
    """Return whether a host of a URL is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def kind_of(table: Mapping[str, Any], kinds: Mapping[str, type], at: str) -> dict[str, Any]:
    """Return the values of a table whose `kind` is one of `kinds`, without it. Raises `InvalidSettings`."""
    named = table.get("kind")
    if named is None:
        raise bad(f"{at}/kind", "`kind` is missing", f"use one of {', '.join(kinds)}")
    if not isinstance(named, str) or named not in kinds:
        raise bad(f"{at}/kind", f"`{str(named)[:40]}` is not a kind", name_remedy(str(named), kinds))
    return fitting(kinds[named], {name: value for name, value in table.items() if name != "kind"}, at)


def fitting(kind: type, table: Any, at: str) -> dict[str, Any]:
    """Check that `table` has every field of `kind` that has no default, and no other names; return it with tuples for
    lists. Raises `InvalidSettings`.
    """
    known = {one.name: one for one in fields(kind)}
    if not isinstance(table, dict):
        raise bad(at, "this is not a table", f"give a table of {', '.join(known)}")
    for name in table.keys() - known.keys():
        raise InvalidSettings(
            Problem(f"{at}/{name[:80]}", "unknown_setting", "this is not a setting here", name_remedy(name, known))
        )
    for name, one in known.items():
        if name not in table and one.default is MISSING:
            raise InvalidSettings(Problem(f"{at}/{name}", "missing", f"`{name}` is missing", "add it"))
    return {name: tuple(one) if isinstance(one, list) else one for name, one in table.items()}


@contextmanager
def within(at: str, name: str = "") -> Iterator[None]:
    """Name the setting of the table `at` in what is raised within: `name`, or the one that it names itself."""
    try:
        yield
    except InvalidSettings as error:
        first = error.problems[0]
        raise bad(f"{at}/{name or first.pointer.rpartition('/')[2]}", first.detail, first.remedy) from None


def one_source(file: Any, variable: Any, at: str, what: str) -> None:
    """Check that a secret comes from a file or from an environment variable. Raises `InvalidSettings`."""
    if bool(file) == bool(variable):
        detail = f"the {what} comes from exactly one of `{what}_file` and `{what}_env`"
        raise bad(at, detail, "name the one that holds it; the secret itself has no place in the settings")
    if file:
        check_text(file, f"{at}/{what}_file")
    elif not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise bad(f"{at}/{what}_env", "this is not the name of an environment variable", "write it like `KEYS_SECRET`")


def check_timeout(value: Any, at: str) -> None:
    """Check a time limit of a port, in seconds. Raises `InvalidSettings`."""
    if type(value) is not int or not 1 <= value <= MAX_PORT_TIMEOUT_S:
        detail = f"this is not a whole number of seconds from 1 to {MAX_PORT_TIMEOUT_S}"
        raise bad(f"{at}/timeout_s", detail, "give one within these bounds")


def check_internal(value: Any, at: str) -> None:
    """Check whether an address is said to be internal. Raises `InvalidSettings`."""
    if type(value) is not bool:
        raise bad(f"{at}/internal", "this is neither true nor false", "state whether its address is internal")


def check_key_set(one: Any, kind: str, at: str) -> None:
    """Check that public keys come from exactly one of the fields `<kind>_url` and `<kind>_file` of a setting, and its
    `internal`. Raises `InvalidSettings`.
    """
    url, file = getattr(one, f"{kind}_url"), getattr(one, f"{kind}_file")
    if bool(url) == bool(file):
        detail = f"the keys come from exactly one of `{kind}_url` and `{kind}_file`"
        raise bad(at, detail, "name the address where they are served, or a file with them")
    check_https(url, f"{at}/{kind}_url") if url else check_text(file, f"{at}/{kind}_file")
    check_internal(one.internal, at)


def check_listed(value: Any, at: str) -> None:
    """Check a list of texts that is not empty. Raises `InvalidSettings`."""
    if not isinstance(value, tuple) or not value or not all(isinstance(one, str) and one for one in value):
        raise bad(at, "this is not a list of texts, or it is empty", "list at least one")


def made_of(kind: type, table: Any, at: str) -> Any:
    """Return a table as a value of `kind`, with tuples for lists. Raises `InvalidSettings`."""
    return kind(**fitting(kind, table, at))


def check_made(kind: type, at: str, value: Any) -> None:
    """Check the setting `at`, however its value was made. Raises `InvalidSettings`."""
    if not isinstance(value, kind):
        raise bad(at, f"this is not a setting of the kind `{kind.__name__}`", "give one, or None")
    value.check(at)  # type: ignore[attr-defined]


def listed_tables(kind: type, listed: Any, at: str) -> Any:
    """Return the tables of a list as values of `kind`, with tuples for lists; what is not a list as it is. Raises
    `InvalidSettings`.
    """
    if not isinstance(listed, list | tuple):
        return listed
    return tuple(made_of(kind, one, f"{at}/{number}") for number, one in enumerate(listed))


def check_public_key(value: Any, at: str) -> None:
    """Check an Ed25519 public key in hex. Raises `InvalidSettings`."""
    if not isinstance(value, str) or not _HEX_KEY.fullmatch(value):
        raise bad(
            at, "this is not an Ed25519 public key", "write its 64 hex digits, as `contextos key new` prints them"
        )


def check_text(value: Any, at: str) -> None:
    """Check a text that is not empty. Raises `InvalidSettings`."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise bad(at, f"`{at}` is not a text", "give a text that is not empty")


def bad(at: str, detail: str, remedy: str) -> InvalidSettings:
    """Return the error for one setting; `at` is its pointer."""
    return InvalidSettings(Problem(at, "bad_setting", detail, remedy))
