"""`BrowserLogins`: people log in with a browser at the directory's issuer, and a cookie then identifies them.

A login is the authorization code flow with PKCE. The browser keeps one random secret while it is away; `state`, `nonce`
and the verifier of PKCE are computed from it, so an answer counts only in the browser that asked for it.

A session is the content of the issuer's verified token, sealed with the runtime's key, in the store of the user's
tenant. No token is kept, and only a digest of the cookie. A session ends when the token expires, after `max_session_s`
seconds, or at logout; each login makes a new one. Nobody who can only write to the store can forge a session.
Source: OpenID Connect Core 1.0; RFC 9700 (OAuth 2.0 Security Best Current Practice); RFC 9207 (`iss`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from contextos.adapters.encrypted_keys import read_secret
from contextos.adapters.oidc_directory import OidcDirectory
from contextos.contracts.documents.identities import BROWSER_SESSIONS, SealedIdentity
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.outside import Clock, Keys
from contextos.contracts.ports.storage import Stores
from contextos.deployment.ports import Ports
from contextos.errors import Conflict, InvalidInput, Problem, SignatureInvalid
from contextos.trust.identity.callers import Caller
from contextos.trust.identity.oidc import VerifiedToken
from contextos.trust.identity.refusals import logged_refusal
from contextos.trust.seal import open_sealed, seal
from contextos.workspace.settings import Settings
from contextos.workspace.settings.logins import BrowserLoginsSetting
from contextos.workspace.settings.reading import invalid_setting

if TYPE_CHECKING:
    from contextos.adapters.oauth.authorization_code import AuthorizationCode
    from contextos.workspace.logins.bearer import BearerTokens

SESSIONS_TYPE: Final = "application/vnd.contextos.browser-sessions+json"
MAX_SESSIONS: Final = 8
"""The most sessions of one person in one tenant; another login ends the one that began first."""
MAX_SESSION_RACES: Final = 8
MAX_CODE_CHARS: Final = 4_096
MAX_TENANT_CHARS: Final = 512
MAX_COOKIE_CHARS: Final = 3_000
LOCAL_PATH: Final = re.compile(r"/(?:(?!/)[A-Za-z0-9._~!$&'()*+,;=:@/?%#-]{0,1023})?")
"""A path of this service: it begins with one `/`, and has no backslash and no host."""
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """A login that has begun. The browser is sent to `url`. It keeps the secret `attempt` until it comes back."""

    url: str
    attempt: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that has begun: its cookie, its caller, and `to`, the path that the person asked for."""

    cookie: str = field(repr=False)
    caller: Caller
    to: str


@dataclass(slots=True)
class BrowserLogins:
    """The logins and sessions of a deployment. Make it with `App.browser_logins`."""

    setting: BrowserLoginsSetting
    tokens: BearerTokens
    directory: OidcDirectory
    issuer: str
    stores: Stores
    keys: Keys
    clock: Clock
    flow: AuthorizationCode

    @property
    def is_secure(self) -> bool:
        """Return whether browsers reach the service over TLS."""
        return self.setting.is_secure

    def origin(self, host: str) -> str:  # noqa: ARG002 - what a request says of its host does not count
        """Return the origin of the pages, as the settings say it."""
        return self.setting.origin

    def begin(self, to: str = "/", tenant_id: str = "") -> BegunLogin:
        """Begin a login. `to` is the path to which the person goes afterwards. `tenant_id` is needed if their token
        belongs to several tenants.

        Raises:
            InvalidInput: `to` is not a path of this service, or there is no such tenant.
        """
        if not LOCAL_PATH.fullmatch(to):
            raise InvalidInput(Problem("/to", "not_here", "this is not a path of this service", "begin with one `/`"))
        if len(tenant_id) > MAX_TENANT_CHARS:
            raise InvalidInput(Problem("/tenant", "too_long", "this is not a tenant", "name one of yours, or none"))
        secret = secrets.token_urlsafe(32)
        url = self.flow.url(
            state=_derived(secret, "state"), nonce=_derived(secret, "nonce"), verifier=_derived(secret, "verifier")
        )
        return BegunLogin(url, f"{secret}.{_text64(to)}.{_text64(tenant_id)}")

    async def finish(
        self, attempt: str, *, state: str, code: str, issuer: str | None = None, replaces: str = ""
    ) -> NewSession:
        """Begin the session of a person who comes back from the issuer, in the browser that keeps `attempt`.

        `issuer` is the `iss` of the answer (RFC 9207). `replaces` is the earlier cookie of the browser; its session
        ends.

        Raises:
            SignatureInvalid: the answer belongs to another browser, login, issuer or client, or its user is not known.
            NotFound: the person does not belong to the tenant that they named.
            InvalidInput: the person belongs to several tenants, and named none.
            Unavailable: the issuer or the store does not answer.
        """
        secret, to, tenant_id = _read_attempt(attempt)
        if not hmac.compare_digest(state.encode(), _derived(secret, "state").encode()):
            raise SignatureInvalid("the answer belongs to another login than the one that this browser began")
        if issuer not in (None, self.issuer):
            raise SignatureInvalid("the answer is of another issuer")
        if not 0 < len(code) <= MAX_CODE_CHARS:
            raise SignatureInvalid("the answer has no code")
        issued = await self.flow.tokens(code, verifier=_derived(secret, "verifier"))
        client_id = self.setting.client_id
        with logged_refusal(issued.id_token):
            nonce = _derived(secret, "nonce")
            login = await self.directory.verify_login(issued.id_token, client_id=client_id, nonce=nonce)
        sent = issued.id_token if self.directory.takes_id_tokens_of == client_id else issued.access_token
        with logged_refusal(sent):
            token = await self.directory.verify(sent)
            if token.subject != login.subject:
                detail = "the access token is of somebody else than the login"
                raise SignatureInvalid(detail, part="claim sub", expected="that of the ID token", found="another")
            caller = await self.tokens.caller_of(token, tenant_id=tenant_id or None)
        cookie = await self._opened(caller, token)
        await self.end(replaces)
        return NewSession(cookie, caller, to)

    async def caller(self, cookie: str) -> Caller:
        """Return the caller to whom the session of a cookie belongs.

        Raises:
            SignatureInvalid: there is no such session now, or its user is not known here now.
            Unavailable: the store does not answer.
        """
        tenant_id, key, secret = self._read_cookie(cookie)
        session = (await self._sessions(tenant_id, key))[0].get(digest(secret.encode()))
        if session is None:
            raise SignatureInvalid("the session has ended; log in again")
        token = VerifiedToken(
            issuer=session["issuer"],
            subject=session["subject"],
            audience=session["audience"],
            issued_at_s=session["issued_at"],
            expires_at_s=session["ends_at"],
            auth_time_s=None,
            nonce=None,
            token_digest=session["token_digest"],
            claims=session["claims"],
        )
        if token.issuer != self.issuer:
            raise SignatureInvalid("the session is of an issuer that counts no longer")
        return await self.tokens.caller_of(token, tenant_id=tenant_id)

    async def end(self, cookie: str) -> None:
        """End the session of a cookie. Does nothing if the session has ended or never existed.

        Raises:
            Unavailable, Conflict: the store does not answer, or many sessions of the person change at this moment.
        """
        try:
            tenant_id, key, secret = self._read_cookie(cookie)
        except SignatureInvalid:
            return
        named = digest(secret.encode())
        if named in (await self._sessions(tenant_id, key))[0]:
            await self._change(tenant_id, key, lambda live: {one: live[one] for one in live if one != named})

    async def _opened(self, caller: Caller, token: VerifiedToken) -> str:
        secret, now_us = secrets.token_urlsafe(32), self.clock.now_us()
        session = {
            "issuer": token.issuer,
            "subject": token.subject,
            "audience": token.audience,
            "issued_at": int(token.issued_at_s),
            "began_at_us": now_us,
            "ends_at": min(int(token.expires_at_s), now_us // 1_000_000 + self.setting.max_session_s),
            "token_digest": token.token_digest,
            "claims": self.directory.claims_read(token),
        }

        def added(live: dict[str, Any]) -> dict[str, Any]:
            last = sorted(live.items(), key=lambda one: int(one[1]["began_at_us"]))[-(MAX_SESSIONS - 1) :]
            return {**dict(last), digest(secret.encode()): session}

        key = digest(caller.subject.encode()).removeprefix("sha256:")
        await self._change(caller.tenant_id, key, added)
        return f"{_text64(caller.tenant_id)}.{key}.{secret}"

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
        if len(parts) != 3 or not _SECRET.fullmatch(parts[2]) or not re.fullmatch(r"[0-9a-f]{64}", parts[1]):
            raise SignatureInvalid("this is not a cookie of a session")
        tenant_id = _of_text64(parts[0])
        if tenant_id not in self.directory.tenants():
            raise SignatureInvalid("this is not a cookie of a session")
        return tenant_id, parts[1], parts[2]


def browser_logins_of(settings: Settings, ports: Ports, stores: Stores, tokens: BearerTokens) -> BrowserLogins | None:
    """Return the logins of a deployment, as `App.browser_logins`. Raises `InvalidSettings`."""
    named, directory = settings.browser_logins, ports.directory
    if named is None:
        return None
    if not isinstance(directory, OidcDirectory) or tokens.issuer is None:
        detail = "the directory is one of the program, so nobody here knows its issuer"
        raise invalid_setting("/browser_logins", "no_issuer", detail, 'write `kind = "oidc"` in `[directory]`')
    try:
        from contextos.adapters.oauth.authorization_code import AuthorizationCode
    except ModuleNotFoundError as missing:
        detail = f"`{missing.name}` is not installed"
        raise invalid_setting("/browser_logins", "missing_extra", detail, "install `contextos[http]`") from None
    secret: Callable[[], bytes] | None = None
    if named.secret_file or named.secret_env:
        file = settings.workspace / named.secret_file if named.secret_file else None
        secret = partial(read_secret, file, named.secret_env, "/browser_logins")
        secret()
    try:
        flow = AuthorizationCode(
            named.authorization_url,
            named.token_url,
            named.client_id,
            f"{named.origin}/callback",
            secret,
            scopes=named.scopes,
            internal=named.internal,
        )
    except InvalidInput as error:
        first = error.problems[0]
        raise invalid_setting("/browser_logins", first.code, first.detail, first.remedy) from None
    return BrowserLogins(named, tokens, directory, tokens.issuer, stores, ports.keys, ports.clock, flow)


def csrf_token_of(cookie: str) -> str:
    """Return the token that a page of this service sends with each request that changes something, by its session."""
    return _derived(cookie.rpartition(".")[2], "csrf")


def _read_attempt(attempt: str) -> tuple[str, str, str]:
    parts = attempt.split(".") if len(attempt) <= MAX_COOKIE_CHARS and attempt.isascii() else []
    if len(parts) != 3 or not _SECRET.fullmatch(parts[0]):
        raise SignatureInvalid("this browser began no login")
    to, tenant_id = _of_text64(parts[1]), _of_text64(parts[2])
    if not LOCAL_PATH.fullmatch(to):
        raise SignatureInvalid("this browser began no login")
    return parts[0], to, tenant_id


def _derived(secret: str, use: str) -> str:
    """Return a value for one use: 43 characters of Base64url. It reveals neither the secret nor other values."""
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), use.encode(), hashlib.sha256)).rstrip(b"=").decode()


def _text64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _of_text64(segment: str) -> str:
    if not _SEGMENT.fullmatch(segment):
        raise SignatureInvalid("a part of the cookie is not Base64url")
    try:
        return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)).decode()
    except ValueError:
        raise SignatureInvalid("a part of the cookie is not text") from None
