"""`BrowserLogins`: people log in with a browser at the directory's issuer, and a cookie then identifies them.

A login is the authorization code flow with PKCE. The browser keeps one random secret while it is away; `state`, `nonce`
and the verifier of PKCE are computed from it, so an answer counts only in the browser that asked for it.

A session (`BrowserSessions`) is the content of the issuer's verified token. No token is kept. A session ends when the
token expires, after `max_session_s` seconds, or at logout; each login makes a new one.
Source: OpenID Connect Core 1.0; RFC 9700 (OAuth 2.0 Security Best Current Practice); RFC 9207 (`iss`).
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from contextos.adapters.encrypted_keys import read_secret
from contextos.adapters.oidc_directory import OidcDirectory
from contextos.contracts.ports.storage import Stores
from contextos.deployment.ports import Ports
from contextos.errors import InvalidInput, Problem, SignatureInvalid
from contextos.trust.identity.callers import Caller
from contextos.trust.identity.oidc import VerifiedToken
from contextos.trust.identity.refusals import logged_refusal
from contextos.workspace.logins.sessions import (
    MAX_COOKIE_CHARS,
    SECRET,
    BrowserSessions,
    derived_secret,
    of_text64,
    text64,
)
from contextos.workspace.settings import Settings
from contextos.workspace.settings.logins import BrowserLoginsSetting
from contextos.workspace.settings.reading import invalid_setting

if TYPE_CHECKING:
    from contextos.adapters.oauth.authorization_code import AuthorizationCode
    from contextos.workspace.logins.bearer import BearerTokens

MAX_CODE_CHARS: Final = 4_096
MAX_TENANT_CHARS: Final = 512
LOCAL_PATH: Final = re.compile(r"/(?:(?!/)[A-Za-z0-9._~!$&'()*+,;=:@/?%#-]{0,1023})?")
"""A path of this service: it begins with one `/`, and has no backslash and no host."""


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
    sessions: BrowserSessions
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
            state=derived_secret(secret, "state"),
            nonce=derived_secret(secret, "nonce"),
            verifier=derived_secret(secret, "verifier"),
        )
        return BegunLogin(url, f"{secret}.{text64(to)}.{text64(tenant_id)}")

    def path_asked(self, attempt: str) -> str:
        """Return the `to` with which a login began. Raises `SignatureInvalid` if this browser began none."""
        return _read_attempt(attempt)[1]

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
        if not hmac.compare_digest(state.encode(), derived_secret(secret, "state").encode()):
            raise SignatureInvalid("the answer belongs to another login than the one that this browser began")
        if issuer not in (None, self.issuer):
            raise SignatureInvalid("the answer is of another issuer")
        if not 0 < len(code) <= MAX_CODE_CHARS:
            raise SignatureInvalid("the answer has no code")
        issued = await self.flow.tokens(code, verifier=derived_secret(secret, "verifier"))
        client_id = self.setting.client_id
        with logged_refusal(issued.id_token):
            nonce = derived_secret(secret, "nonce")
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
        tenant_id, session = await self.sessions.get(cookie)
        if session["issuer"] != self.issuer:
            raise SignatureInvalid("the session is of an issuer that counts no longer")
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
        return await self.tokens.caller_of(token, tenant_id=tenant_id)

    async def end(self, cookie: str) -> None:
        """End the session of a cookie. Does nothing if the session has ended or never existed.

        Raises:
            Unavailable, Conflict: the store does not answer, or many sessions of the person change at this moment.
        """
        await self.sessions.end(cookie)

    async def _opened(self, caller: Caller, token: VerifiedToken) -> str:
        now_s = self.sessions.clock.now_us() // 1_000_000
        session = {
            "issuer": token.issuer,
            "subject": token.subject,
            "audience": token.audience,
            "issued_at": int(token.issued_at_s),
            "ends_at": min(int(token.expires_at_s), now_s + self.setting.max_session_s),
            "token_digest": token.token_digest,
            "claims": self.directory.claims_read(token),
        }
        return await self.sessions.begin(caller, session)


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
    sessions = BrowserSessions(stores, ports.keys, ports.clock, directory.tenants)
    return BrowserLogins(named, tokens, directory, tokens.issuer, sessions, flow)


def _read_attempt(attempt: str) -> tuple[str, str, str]:
    parts = attempt.split(".") if len(attempt) <= MAX_COOKIE_CHARS and attempt.isascii() else []
    if len(parts) != 3 or not SECRET.fullmatch(parts[0]):
        raise SignatureInvalid("this browser began no login")
    to, tenant_id = of_text64(parts[1]), of_text64(parts[2])
    if not LOCAL_PATH.fullmatch(to):
        raise SignatureInvalid("this browser began no login")
    return parts[0], to, tenant_id
