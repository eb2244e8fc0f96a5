"""`BrowserSessions`: what a cookie means, until it ends, sealed in the store of the person's tenant.

A cookie is random, and only a digest of it is kept. A session ends at its time or at logout; every process of the store
knows it and its end. Nobody who can only write to the store can forge one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.identities import BROWSER_SESSIONS, SealedIdentity
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.outside import Clock, Keys
from contextos.contracts.ports.storage import Stores
from contextos.errors import Conflict, InvalidInput, SignatureInvalid
from contextos.trust.identity.callers import Caller
from contextos.trust.seal import open_sealed, seal

SESSIONS_TYPE: Final = "application/vnd.contextos.browser-sessions+json"
MAX_SESSIONS: Final = 8
"""The most sessions of one person in one tenant; another login ends the one that began first."""
MAX_SESSION_RACES: Final = 8
MAX_COOKIE_CHARS: Final = 3_000
SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""A secret that only one browser has."""
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]*")
_PERSON: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class BrowserSessions:
    """The sessions of browsers of a deployment. `tenants` returns the tenants that there are."""

    stores: Stores
    keys: Keys
    clock: Clock
    tenants: Callable[[], Collection[str]]

    async def begin(self, caller: Caller, session: dict[str, Any]) -> str:
        """Begin a session of a caller, and return its cookie. `session` is what `get` returns; its `ends_at` is Unix
        time in seconds.

        Raises:
            Unavailable, Conflict: the store does not answer, or many sessions of the person change at this moment.
        """
        secret = secrets.token_urlsafe(32)
        begun = {**session, "began_at_us": self.clock.now_us()}

        def added(live: dict[str, Any]) -> dict[str, Any]:
            last = sorted(live.items(), key=lambda one: int(one[1]["began_at_us"]))[-(MAX_SESSIONS - 1) :]
            return {**dict(last), digest(secret.encode()): begun}

        key = digest(caller.subject.encode()).removeprefix("sha256:")
        await self._change(caller.tenant_id, key, added)
        return f"{text64(caller.tenant_id)}.{key}.{secret}"

    async def get(self, cookie: str) -> tuple[str, dict[str, Any]]:
        """Return the tenant and the content of the session of a cookie.

        Raises:
            SignatureInvalid: there is no such session now.
            Unavailable: the store does not answer.
        """
        tenant_id, key, secret = self._read_cookie(cookie)
        session = (await self._sessions(tenant_id, key))[0].get(digest(secret.encode()))
        if session is None:
            raise SignatureInvalid("the session has ended; log in again")
        return tenant_id, session

    async def end(self, cookie: str) -> None:
        """End the session of a cookie. Does nothing if the session has ended or never existed. Raises as `begin`."""
        try:
            tenant_id, key, secret = self._read_cookie(cookie)
        except SignatureInvalid:
            return
        named = digest(secret.encode())
        if named in (await self._sessions(tenant_id, key))[0]:
            await self._change(tenant_id, key, lambda live: {one: live[one] for one in live if one != named})

    async def _change(self, tenant_id: str, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        for _ in range(MAX_SESSION_RACES):
            live, version = await self._sessions(tenant_id, key)
            payload = canonical({"tenant_id": tenant_id, "key": key, "sessions": change(live)})
            sealed = SealedIdentity(seal(SESSIONS_TYPE, payload, self.keys, "claim"))
            write = BROWSER_SESSIONS.write(key, version, sealed)
            try:
                await self.stores.tenant(tenant_id).commit(Batch(run=CONTROL, writes=(write,)))
            except Conflict:
                continue
            return
        raise Conflict(key, "log in or out again")

    async def _sessions(self, tenant_id: str, key: str) -> tuple[dict[str, Any], int]:
        """Return the sessions of a person that have not ended, by the digest of their secret, and the version of the
        document. A document that this runtime did not seal for this person holds no sessions.
        """
        found = await BROWSER_SESSIONS.one(self.stores.tenant(tenant_id), key)
        if found is None:
            return {}, 0
        try:
            payload = loads(open_sealed(found.body.envelope, self.keys, "claim", [SESSIONS_TYPE]))
        except (SignatureInvalid, InvalidInput):
            return {}, found.version
        assert isinstance(payload, dict), "the runtime sealed an object"
        if (payload["tenant_id"], payload["key"]) != (tenant_id, key):
            return {}, found.version
        now_us = self.clock.now_us()
        live = {name: one for name, one in payload["sessions"].items() if now_us < one["ends_at"] * 1_000_000}
        return live, found.version

    def _read_cookie(self, cookie: str) -> tuple[str, str, str]:
        """Return the tenant, person and secret of a cookie. Raises `SignatureInvalid` if nobody here can have it."""
        parts = cookie.split(".") if len(cookie) <= MAX_COOKIE_CHARS and cookie.isascii() else []
        if len(parts) != 3 or not SECRET.fullmatch(parts[2]) or not _PERSON.fullmatch(parts[1]):
            raise SignatureInvalid("this is not a cookie of a session")
        tenant_id = of_text64(parts[0])
        if tenant_id not in self.tenants():
            raise SignatureInvalid("this is not a cookie of a session")
        return tenant_id, parts[1], parts[2]


def csrf_token_of(cookie: str) -> str:
    """Return the token that a page of this service sends with each request that changes something, by its session."""
    return derived_secret(cookie.rpartition(".")[2], "csrf")


def derived_secret(secret: str, use: str) -> str:
    """Return a value for one use: 43 characters of Base64url. It reveals neither the secret nor other values."""
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), use.encode(), hashlib.sha256)).rstrip(b"=").decode()


def text64(text: str) -> str:
    """Return a text as a part of a cookie: Base64url without padding."""
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def of_text64(segment: str) -> str:
    """Return the text of a part of a cookie. Raises `SignatureInvalid`."""
    if not _SEGMENT.fullmatch(segment):
        raise SignatureInvalid("a part of the cookie is not Base64url")
    try:
        return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)).decode()
    except ValueError:
        raise SignatureInvalid("a part of the cookie is not text") from None
