"""An MCP server as an OAuth 2.1 resource server: who a request is from, by its access token.

The token is one of the issuer whose users the directory knows (`[directory]` with `kind = "oidc"`). Its audience has to
be the URL of this server, exactly, so a token that was made for another service opens nothing here. The token itself
goes no further: it is verified, and no adapter, journal or log gets it.
Source: MCP 2026-07-28, "Authorization"; RFC 9728; RFC 8707.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from contextos.contracts.encoding.jcs import digest
from contextos.errors import ContextOSError, InvalidSettings, Problem, Unavailable
from contextos.port_settings import OidcDirectorySetting
from contextos.server.mcp_sessions import SESSION_PARAMETER, Client, session_of
from contextos.server.serving import PATH

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken

    from contextos.app import App

KEEP_S: Final = 60
MAX_KEPT_TOKENS: Final = 4_096

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OAuthResource:
    """What verifies access tokens: the SDK's port `TokenVerifier`.

    `url` is the resource and the audience, `issuer` the authorization server. A verified token is kept for a minute,
    and never longer than it is valid.
    """

    app: App
    tenant_id: str
    agent: str
    url: str
    issuer: str
    _kept: OrderedDict[str, tuple[int, AccessToken]] = field(default_factory=OrderedDict)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token says, or None if it is refused for any reason. The log has the reason, not the token.

        Raises:
            Unavailable: nobody knows what the token says, because the issuer or the store does not answer.
        """
        found = self._find(token, "")
        if found is None:
            try:
                found = await self._sign_in(token, "")
            except Unavailable:
                raise
            except ContextOSError as error:
                log.warning("an access token was refused: %s", error)
        return found

    async def client(self, context: Any) -> Client:
        """Return who sent a request, from its token, and the session that its URL names.

        Raises:
            InvalidInput: the URL names no session, or one with scopes that the token does not have.
            SignatureInvalid: the token is not valid any more.
            Unavailable: the issuer or the store does not answer.
        """
        token, session = _said(context)
        return await self._client(token, session, session)

    async def visitor(self, context: Any) -> Client:
        """Return who sent a request that opens no session, with the delegation of the token itself: of the name that
        the URL has for a session nothing is kept. Raises as `client`.
        """
        token, session = _said(context)
        return await self._client(token, session, "")

    async def _client(self, token: AccessToken, session: str, renewed: str) -> Client:
        found = self._find(token.token, renewed)
        if found is None or (renewed and not await self._has_scopes(found)):
            found = await self._sign_in(token.token, renewed)
        assert found.claims is not None, "it has the delegation"
        assert found.subject is not None, "the verifier states it"
        return Client(found.subject, found.claims["delegation"], session)

    async def _has_scopes(self, known: AccessToken) -> bool:
        """Whether a token still has all scopes of the delegation, which a newer token can have renewed."""
        assert known.claims is not None, "it has the delegation"
        found = await self.app.deployment.ports.directory.delegation(self.tenant_id, known.claims["delegation"])
        return found is not None and set(found.scopes) <= set(known.scopes)

    def _find(self, token: str, session: str) -> AccessToken | None:
        until_us, kept = self._kept.get(_key(token, session), (0, None))
        return kept if self.app.deployment.ports.clock.now_us() < until_us else None

    async def _sign_in(self, token: str, session: str) -> AccessToken:
        from mcp.server.auth.provider import AccessToken

        signed_in = await self.app.sign_in(self.tenant_id, token, agent_id=self.agent, session=session)
        known = AccessToken(
            token=token,
            client_id=self.agent,
            scopes=list(signed_in.scopes),
            expires_at=signed_in.expires_at,
            resource=self.url,
            subject=signed_in.user_id,
            claims={"iss": self.issuer, "delegation": signed_in.token_ref},
        )
        now_us = self.app.deployment.ports.clock.now_us()
        self._kept[_key(token, session)] = (min(now_us + KEEP_S * 1_000_000, signed_in.expires_at * 1_000_000), known)
        if len(self._kept) > MAX_KEPT_TOKENS:
            self._kept.popitem(last=False)
        return known


def _said(context: Any) -> tuple[AccessToken, str]:
    """The token of a request, and the session that its URL names. Raises `InvalidInput`."""
    token: AccessToken = context.request.user.access_token
    assert token.subject is not None, "the verifier states it"
    return token, session_of(token.subject, context.request.query_params.get(SESSION_PARAMETER))


def _key(token: str, session: str) -> str:
    return f"{digest(token.encode('utf-8', 'replace'))}/{session}"


def oauth_resource(app: App, tenant_id: str, agent: str) -> OAuthResource:
    """Return this server as a resource of the issuer that the settings name.

    Raises:
        InvalidSettings: the directory takes no tokens, or their audience is not the URL of an MCP server.
    """
    directory = app.settings.directory
    if not isinstance(directory, OidcDirectorySetting):
        detail = "the directory takes no tokens, so no client can sign in over HTTP"
        remedy = 'write `kind = "oidc"` in `[directory]`; or name a user with --user, for development'
        raise InvalidSettings(Problem("/directory", "no_tokens", detail, remedy))
    url = urlsplit(directory.audience)
    if url.scheme not in ("http", "https") or url.path != PATH or url.query or url.fragment:
        detail = f"the audience `{directory.audience[:200]}` is not the URL of an MCP server"
        remedy = (
            f"name the URL that clients use, such as `https://tools.acme.example{PATH}`, and have tokens made for it"
        )
        raise InvalidSettings(Problem("/directory/audience", "not_a_resource", detail, remedy))
    if not directory.issuer.startswith(("https://", "http://")):
        detail = f"the issuer `{directory.issuer[:200]}` is not a URL that a client can find"
        raise InvalidSettings(Problem("/directory/issuer", "not_a_url", detail, "name the issuer's URL"))
    return OAuthResource(app, tenant_id, agent, directory.audience, directory.issuer)
