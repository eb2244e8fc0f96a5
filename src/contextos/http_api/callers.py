"""Who sent a request: the bearer token of its `Authorization` header, verified, as a `Caller`.

`App.bearer_tokens` verifies it. Nothing else of a request says who the caller is or of which tenant, and what a body
states about them is compared with the token.
Source: RFC 6750; RFC 9110, section 11.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request

from contextos.app import App
from contextos.app.bearer import BearerTokens
from contextos.errors import NotFound, SignatureInvalid
from contextos.http_api.problems import HttpProblem
from contextos.trust.identity.callers import Caller

REALM: Final = "contextos"


async def opened_app(request: Request) -> App:
    """Return the deployment that the API is over."""
    app: App = request.app.state.contextos
    return app


async def served_tokens(request: Request) -> BearerTokens:
    """Return what verifies bearer tokens."""
    tokens: BearerTokens = request.app.state.bearer_tokens
    return tokens


AppHere = Annotated[App, Depends(opened_app)]
TokensHere = Annotated[BearerTokens, Depends(served_tokens)]


async def authenticated(request: Request, tokens: TokensHere) -> Caller:
    """Return who sent a request.

    Raises:
        HttpProblem: there is no bearer token, or it is refused (401). The answer does not say why.
        Unavailable: as `BearerTokens.caller`.
    """
    sent = request.headers.getlist("authorization")
    scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise _unauthenticated(f'Bearer realm="{REALM}"')
    try:
        return await tokens.caller(token.strip())
    except (SignatureInvalid, NotFound):
        raise _unauthenticated(f'Bearer realm="{REALM}", error="invalid_token"') from None


CallerHere = Annotated[Caller, Depends(authenticated)]


def _unauthenticated(challenge: str) -> HttpProblem:
    detail = "send a valid access token as `Authorization: Bearer TOKEN`"
    return HttpProblem(401, "unauthenticated", detail, {"WWW-Authenticate": challenge})
