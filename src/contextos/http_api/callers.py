"""Who sent a request: the bearer token of its `Authorization` header, verified, as a `Caller`.

`Authenticator` is the seam to identity: it turns a token into who it is of. Nothing else of a request says who the
caller is or of which tenant, and what a body states about them is compared with the token.
Source: RFC 6750; RFC 9110, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Request

from contextos.app import App
from contextos.errors import NotFound, SignatureInvalid
from contextos.http_api.problems import HttpProblem

REALM: Final = "contextos"


@dataclass(frozen=True, slots=True)
class Caller:
    """A person of one tenant. `subject` is their id in the directory."""

    tenant_id: str
    subject: str

    def is_behind(self, user_id: str | None, _agent_id: str | None) -> bool:
        """Return whether a run of this user and agent is the caller's own."""
        return user_id == self.subject


@dataclass(frozen=True, slots=True)
class Acting:
    """For whom a session is opened: the ids of user and agent, and the reference of the delegation between both."""

    user: str
    agent: str
    token: str | None


class Authenticator(Protocol):
    """Says whose a bearer token is, and what a request can state of who acts."""

    async def caller(self, token: str) -> Caller:
        """Return who a token is of.

        Raises:
            SignatureInvalid: the token is refused, for any reason.
            Unavailable: nobody knows now, because the issuer or the directory does not answer.
        """

    async def request(self, caller: Caller, body: Any) -> dict[str, Any]:
        """Return the body of an `InvokeRequest` with the identities that the token proves.

        Raises:
            InvalidInput: the body states another tenant or another user.
        """

    async def acting(self, caller: Caller, *, agent: str | None, delegation: str | None) -> Acting:
        """Return for whom the caller acts in a session of this agent.

        Raises:
            InvalidInput: the caller cannot act as this agent, or not under this delegation.
        """


def opened_app(request: Request) -> App:
    """Return the deployment that the API is over."""
    app: App = request.app.state.contextos
    return app


def served_authenticator(request: Request) -> Authenticator:
    """Return what says whose a bearer token is."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


AppHere = Annotated[App, Depends(opened_app)]
AuthenticatorHere = Annotated[Authenticator, Depends(served_authenticator)]


async def authenticated(request: Request, authenticator: AuthenticatorHere) -> Caller:
    """Return who sent a request.

    Raises:
        HttpProblem: there is no bearer token, or it is refused (401). The answer does not say why.
        Unavailable: as `Authenticator.caller`.
    """
    sent = request.headers.getlist("authorization")
    scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise _unauthenticated(f'Bearer realm="{REALM}"')
    try:
        return await authenticator.caller(token.strip())
    except (SignatureInvalid, NotFound):
        raise _unauthenticated(f'Bearer realm="{REALM}", error="invalid_token"') from None


CallerHere = Annotated[Caller, Depends(authenticated)]


def _unauthenticated(challenge: str) -> HttpProblem:
    detail = "send a valid access token as `Authorization: Bearer TOKEN`"
    return HttpProblem(401, "unauthenticated", detail, {"WWW-Authenticate": challenge})
