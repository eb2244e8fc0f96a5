"""`AuthorizationCode`: the authorization code flow of OpenID Connect with PKCE, against the endpoints of one issuer.

It makes the URL to which a browser is sent, and exchanges the code that comes back for tokens. It verifies no token;
`OidcDirectory` does. A client with a secret authenticates with `client_secret_basic`.
Source: OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE); RFC 6749, sections 4.1 and 5.2.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from contextos.adapters.oauth.issued_token import answered_object, basic_authorization
from contextos.adapters.outbound import OutboundClient, OutboundRequest, destination
from contextos.contracts.urls import is_loopback
from contextos.errors import LostReply, SignatureInvalid, Unavailable

MAX_TOKENS_BYTES: Final = 131_072
TOKEN_TIMEOUT_S: Final = 10.0
_REFUSED_CODE: Final = "invalid_grant"


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """The tokens that a token endpoint returned for a code. A refresh token is not kept."""

    id_token: str = field(repr=False)
    access_token: str = field(repr=False)


class AuthorizationCode:
    """The flow of one client. `secret` is called for each request and returns the client's secret; None: it is public.

    `internal`: a person said that `token_url` is at a private address.

    Raises:
        InvalidInput: an address is not valid.
    """

    def __init__(
        self,
        authorization_url: str,
        token_url: str,
        client_id: str,
        redirect_uri: str,
        secret: Callable[[], bytes] | None,
        *,
        scopes: tuple[str, ...] = ("openid",),
        internal: bool = False,
        timeout_s: float = TOKEN_TIMEOUT_S,
    ) -> None:
        place = destination(token_url)
        destination(authorization_url)
        self._authorization_url, self._token_url, self._endpoint = authorization_url, token_url, place.endpoint
        self._client_id, self._redirect_uri, self._secret, self._scopes = client_id, redirect_uri, secret, scopes
        self._timeout_s = timeout_s
        # A URL with a loopback host says by itself that it is internal.
        internal_endpoints = (place.endpoint,) if internal or is_loopback(place.host) else ()
        self._client = OutboundClient(internal=internal_endpoints, max_response_bytes=MAX_TOKENS_BYTES)

    def url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the URL to which a browser is sent to log in. It holds the digest of `verifier`, not `verifier`."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self._scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{self._authorization_url}?{urlencode(query)}"

    async def tokens(self, code: str, *, verifier: str) -> IssuedTokens:
        """Exchange a code for tokens. Nothing of them is verified.

        Raises:
            SignatureInvalid: the issuer refuses the code: it was used, has expired, or is of another client or login.
            Unavailable: the issuer gives no answer that can be used; the message says why, and quotes nothing of it.
        """
        try:
            answer = await self._client.send(
                self._request(code, verifier), egress=[self._endpoint], timeout_s=self._timeout_s
            )
        except LostReply:
            raise Unavailable(self._endpoint, "it gave no whole answer in time") from None
        body = answered_object(answer.body, MAX_TOKENS_BYTES)
        if answer.status != 200:
            if body.get("error") == _REFUSED_CODE:
                raise SignatureInvalid("the issuer refuses the code: it was used, has expired, or is of another login")
            detail = f"it issued no token, and answered {answer.status}; check `client_id` and its secret"
            raise Unavailable(self._endpoint, detail)
        tokens = [body.get(name) for name in ("id_token", "access_token")]
        if (
            not all(isinstance(token, str) and token for token in tokens)
            or str(body.get("token_type")).lower() != "bearer"
        ):
            raise Unavailable(self._endpoint, "its answer has not an `id_token` and a bearer `access_token`")
        return IssuedTokens(str(tokens[0]), str(tokens[1]))

    def _request(self, code: str, verifier: str) -> OutboundRequest:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if self._secret is None:
            form["client_id"] = self._client_id
        else:
            headers["Authorization"] = basic_authorization(self._client_id, self._secret, "browser_logins")
        return OutboundRequest("POST", self._token_url, headers, urlencode(form).encode())
