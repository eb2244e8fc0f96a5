"""Puts the secrets of a connection into requests, and removes them from the answers.

A secret comes from an environment variable or a file, for development, and is read once; or it is a token that was
issued for one call. No `repr` of an object here shows it. A secret in an answer is redacted before anybody else sees
the answer, in each of the forms in which the secret was sent.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from contextos.action.secret_redactor import MIN_SECRET_CHARS, SecretRedactor
from contextos.adapters.foreign.server_url import static_authentication
from contextos.adapters.openapi.calls import CredentialSource
from contextos.contracts.envelopes.tool import Authentication
from contextos.errors import InvalidSettings, Problem
from contextos.files import read_private_file

MAX_SECRET_BYTES: Final = 8_192
_SECRET: Final = re.compile(rf"[!-~](?:[ -~]{{{MIN_SECRET_CHARS - 2},{MAX_SECRET_BYTES}}}[!-~])")


@dataclass(frozen=True)
class PlacedSecrets:
    """The parts of one request that hold secrets."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Sequence[tuple[str, str]] = field(default=(), repr=False)
    cookies: Sequence[tuple[str, str]] = field(default=(), repr=False)


class ConnectionSecrets:
    """The secrets of one connection, by the names of its credentials.

    Raises:
        InvalidSettings: a variable or file is missing, or holds no secret that a request can carry. It is never quoted.
    """

    def __init__(self, sources: Mapping[str, CredentialSource], env: Mapping[str, str], folder: Path) -> None:
        self._sources = dict(sources)
        static = {name: source for name, source in sources.items() if source.audience is None}
        self.query_names = frozenset(str(source.name) for source in sources.values() if source.place == "query")
        self._set_secrets({name: _read_secret(name, source, env, folder) for name, source in static.items()})

    def for_call(self, access_token: str) -> ConnectionSecrets:
        """Return the secrets of one call, for which `access_token` was issued; "" if none was."""
        if not access_token:
            return self
        clone = copy(self)
        tokens = {name: access_token for name, source in self._sources.items() if source.audience is not None}
        clone._set_secrets({**self._secrets, **tokens})
        return clone

    def lacks(self, names: Sequence[str]) -> bool:
        """Return whether one of these credentials is a token of a call for which none was issued."""
        return any(name not in self._secrets for name in names)

    def auth(self, names: Sequence[str]) -> Authentication:
        """Return how a call with these credentials authenticates."""
        audiences = [audience for name in names if (audience := self._sources[name].audience) is not None]
        if audiences:
            return Authentication(mode="exchange", audience=audiences[0])
        return static_authentication(self._sources[name].reference for name in names)

    def _set_secrets(self, secrets: dict[str, str]) -> None:
        self._secrets = secrets
        texts = (text for name, secret in secrets.items() for text in _secret_texts(self._sources[name], secret))
        self._redactor = SecretRedactor(texts)

    def __repr__(self) -> str:
        return f"ConnectionSecrets({sorted(self._sources)})"

    def placed(self, names: Sequence[str]) -> PlacedSecrets:
        """Return the headers and other parts with which a request carries these credentials."""
        headers: dict[str, str] = {}
        query: list[tuple[str, str]] = []
        cookies: list[tuple[str, str]] = []
        for name in names:
            source, secret = self._sources[name], self._secrets[name]
            if source.place == "bearer":
                headers["Authorization"] = f"Bearer {secret}"
            elif source.place == "basic":
                headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
            elif source.place == "header":
                headers[str(source.name)] = secret
            elif source.place == "query":
                query.append((str(source.name), secret))
            else:
                cookies.append((str(source.name), quote(secret, safe="")))
        return PlacedSecrets(headers, query, cookies)

    def redact(self, value: Any) -> Any:
        """Return a JSON value or text without any of the secrets, also in the names of members."""
        return self._redactor.redact(value)


def _read_secret(name: str, source: CredentialSource, env: Mapping[str, str], folder: Path) -> str:
    place = f"/connection/credentials/{name}"
    if source.env is not None:
        secret, origin = env.get(source.env), f"the variable `{source.env}`"
    else:
        origin = f"the file `{source.file}`"
        try:
            secret = read_private_file(folder / str(source.file), MAX_SECRET_BYTES, place).decode().strip()
        except (OSError, UnicodeDecodeError):
            secret = None
    if secret is None:
        raise InvalidSettings(Problem(place, "no_credential", f"{origin} of `{name}` is missing", "set it"))
    if not _SECRET.fullmatch(secret):
        detail = f"{origin} of `{name}` holds no secret of at least {MIN_SECRET_CHARS} printable characters"
        raise InvalidSettings(Problem(place, "bad_credential", detail, "put the secret there, on one line"))
    if source.place == "basic" and ":" not in secret:
        raise InvalidSettings(
            Problem(place, "bad_credential", f"{origin} of `{name}` has no colon", "write `user:password`")
        )
    return secret


def _secret_texts(source: CredentialSource, secret: str) -> set[str]:
    """Return the texts to redact for a secret: the secret itself, and the password in it."""
    return {secret, secret.partition(":")[2]} if source.place == "basic" else {secret}
