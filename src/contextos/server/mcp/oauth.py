"""An MCP server as an OAuth 2.1 resource server: finds the sender of a request by its access token.

The token comes from the issuer whose users the directory knows (`[directory]` with `kind = "oidc"`). Its audience must
be exactly the URL of this server, so a token for another service opens nothing here. The token is only verified: no
adapter, journal or log gets it.
Source: MCP 2026-07-28, "Authorization"; RFC 9728; RFC 8707.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextos.contracts.urls import url_parts
from contextos.errors import ContextOSError, InvalidSettings, NotFound, Problem, SignatureInvalid, Unavailable
from contextos.server.mcp.sessions import SESSION_PARAMETER, Client, session_of
from contextos.server.serving import PATH
from contextos.trust.identity.refusals import refusal_line
from contextos.workspace.settings.directory import OidcDirectorySetting

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken

    from contextos.trust.identity.callers import Acting, Caller
    from contextos.workspace import App
    from contextos.workspace.logins.bearer import BearerTokens

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OAuthResource:
    """Verifies access tokens, as the SDK's port `TokenVerifier`.

    `url` is the resource and the audience, `issuer` the authorization server. `workspace.logins.bearer` verifies the
    tokens.
    """

    app: App
    tenant_id: str
    agent: str
    url: str
    issuer: str
    _tokens: BearerTokens | None = None

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the claims of a token, or None if it is refused for any reason. The log has the reason, not the token.

        Raises:
            Unavailable: the token cannot be checked, because the issuer or the store does not answer.
        """
        from mcp.server.auth.provider import AccessToken

        token = token.strip()
        try:
            caller, acting = await self._acting(token, "")
        except Unavailable:
            raise
        except (SignatureInvalid, NotFound):
            return None
        except ContextOSError as error:
            log.warning("%s", refusal_line(token, error))
            return None
        return AccessToken(
            token=token,
            client_id=self.agent,
            scopes=list(caller.scopes),
            expires_at=caller.expires_at,
            resource=self.url,
            subject=caller.subject,
            claims={"iss": self.issuer, "delegation": acting.token},
        )

    async def client(self, context: Any) -> Client:
        """Return who sent a request, from its token, and the session that its URL names.

        Raises:
            InvalidInput: the URL names no session, or a session with scopes that the token does not have.
            SignatureInvalid: the token is not valid any more.
            Unavailable: the issuer or the store does not answer.
        """
        token, session = _token_and_session(context)
        _, acting = await self._acting(token.token, session)
        return Client(acting.user, acting.token, session)

    async def visitor(self, context: Any) -> Client:
        """Return who sent a request that opens no session, with the delegation of the token itself. Nothing is kept for
        the session name in the URL. Raises as `client`.
        """
        token, session = _token_and_session(context)
        _, acting = await self._acting(token.token, "")
        return Client(acting.user, acting.token, session)

    async def _acting(self, token: str, session: str) -> tuple[Caller, Acting]:
        from contextos.workspace.logins.bearer import tokens_of_issuer

        if self._tokens is None:
            self._tokens = tokens_of_issuer(self.app.settings, self.app.deployment.ports)
        caller = await self._tokens.caller(token, tenant_id=self.tenant_id)
        return caller, await self._tokens.acting(caller, agent=self.agent, session=session)


def _token_and_session(context: Any) -> tuple[AccessToken, str]:
    """Return the token of a request and the session that its URL names. Raises `InvalidInput` if it names none."""
    token: AccessToken = context.request.user.access_token
    assert token.subject is not None, "the verifier states it"
    return token, session_of(token.subject, context.request.query_params.get(SESSION_PARAMETER))


def oauth_resource(app: App, tenant_id: str, agent: str) -> OAuthResource:
    """Return this server as a resource of the issuer that the settings name.

    Raises:
        InvalidSettings: the directory takes no tokens, their audience is not the URL of an MCP server, or their issuer
            is not a URL.
    """
    directory = app.settings.directory
    if not isinstance(directory, OidcDirectorySetting):
        detail = "the directory takes no tokens, so no client can sign in over HTTP"
        remedy = 'write `kind = "oidc"` in `[directory]`; or name a user with --user, for development'
        raise InvalidSettings(Problem("/directory", "no_tokens", detail, remedy))
    if url_parts(directory.audience).path != PATH:
        detail = f"the audience `{directory.audience[:200]}` is not the URL of an MCP server"
        remedy = (
            f"name the URL that clients use, such as `https://tools.acme.example{PATH}`, and have tokens made for it"
        )
        raise InvalidSettings(Problem("/directory/audience", "not_a_resource", detail, remedy))
    if not url_parts(directory.issuer).scheme:
        detail = f"the issuer `{directory.issuer[:200]}` is not a URL that a client can find"
        raise InvalidSettings(Problem("/directory/issuer", "not_a_url", detail, "name the issuer's URL"))
    return OAuthResource(app, tenant_id, agent, directory.audience, directory.issuer)
