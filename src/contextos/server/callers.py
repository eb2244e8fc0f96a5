"""Finds the `Caller` of a request, by the bearer token of its `Authorization` header or the session of its cookie.

`App.bearer_tokens` verifies a token, and `App.browser_logins` a session. A request with both is refused, because it is
unclear which one counts. Only the token or session says who the caller is and of which tenant; an identity that a body
states is compared with it.
Source: RFC 6750; RFC 9110, section 11; RFC 9728.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Request

from contextos.contracts.urls import url_parts
from contextos.errors import NotFound, SignatureInvalid
from contextos.server.cookies import SESSION_COOKIE, Logins, check_same_origin, cookie_of
from contextos.server.problems import HttpProblem
from contextos.server.rates import RequestRates
from contextos.trust.identity.callers import Caller
from contextos.workspace import App
from contextos.workspace.logins.bearer import BearerTokens
from contextos.workspace.settings import Settings
from contextos.workspace.settings.directory import OidcDirectorySetting

REALM: Final = "contextos"
RESOURCE_PATH: Final = "/.well-known/oauth-protected-resource"


def resource_metadata(settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the address and the document of the metadata of the API as an OAuth 2.0 resource (RFC 9728), whose URL is
    the audience of tokens. Both are empty if the directory is not `oidc`, or if audience or issuer is not a URL.
    """
    directory = settings.directory
    if not isinstance(directory, OidcDirectorySetting):
        return "", {}
    resource = url_parts(directory.audience)
    if not resource.scheme or not url_parts(directory.issuer).scheme:
        return "", {}
    issuers = {"authorization_servers": [directory.issuer], "bearer_methods_supported": ["header"]}
    path = RESOURCE_PATH + resource.path.removesuffix("/")
    return resource._replace(path=path).geturl(), {"resource": directory.audience, **issuers}


async def opened_app(request: Request) -> App:
    """Return the app that the API serves (dependency of routes)."""
    app: App = request.app.state.contextos
    return app


async def served_tokens(request: Request) -> BearerTokens:
    """Return the verifier of bearer tokens (dependency of routes)."""
    tokens: BearerTokens = request.app.state.bearer_tokens
    return tokens


AppHere = Annotated[App, Depends(opened_app)]
TokensHere = Annotated[BearerTokens, Depends(served_tokens)]


async def session_cookie(request: Request) -> str | None:
    """Return the session cookie of a request; None without one, or if this server has no browser logins. The session is
    not verified.

    Raises:
        HttpProblem: the request has a bearer token too (400), or fails `check_same_origin` (403).
    """
    logins: Logins | None = request.app.state.browser_logins
    cookie = None if logins is None else cookie_of(request, logins, SESSION_COOKIE)
    if logins is None or cookie is None:
        return None
    if "authorization" in request.headers:
        detail = "the request has a token and the cookie of a session; send one of them"
        raise HttpProblem(400, "two_credentials", detail)
    check_same_origin(request, logins, cookie)
    return cookie


SessionHere = Annotated[str | None, Depends(session_cookie)]


async def sender_of(request: Request) -> Caller:
    """Return who sent a request, by its bearer token or its session.

    Raises:
        HttpProblem: as `session_cookie`; or the token or session is missing or refused (401), without the reason.
        Unavailable: as `BearerTokens.caller` and `BrowserLogins.caller`.
    """
    session = await session_cookie(request)
    try:
        if session is None:
            return await (await served_tokens(request)).caller(_bearer_token(request))
        caller: Caller = await request.app.state.browser_logins.caller(session)
        return caller
    except (SignatureInvalid, NotFound):
        error = ', error="invalid_token"' if session is None else ""
        raise _unauthenticated(request, error) from None


async def authenticated(request: Request) -> Caller:
    """Return who sent a request, and count the request.

    Raises:
        HttpProblem: as `sender_of`.
        Overloaded: the caller or their tenant sent too many requests (429).
        Unavailable: as `sender_of`.
    """
    caller = await sender_of(request)
    rates: RequestRates = request.app.state.rates
    rates.count(caller)
    return caller


CallerHere = Annotated[Caller, Depends(authenticated)]


def _bearer_token(request: Request) -> str:
    """Return the bearer token of a request. Raises `HttpProblem` (401) if it has none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise _unauthenticated(request)
    return token.strip()


def _unauthenticated(request: Request, error: str = "") -> HttpProblem:
    metadata, _ = request.app.state.resource_metadata
    hint = f', resource_metadata="{metadata}"' if metadata else ""
    detail = "send a valid access token as `Authorization: Bearer TOKEN`"
    return HttpProblem(401, "unauthenticated", detail, {"WWW-Authenticate": f'Bearer realm="{REALM}"{error}{hint}'})
