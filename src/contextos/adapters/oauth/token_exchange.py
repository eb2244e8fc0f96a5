"""`TokenExchange`: the `Credentials` port over the token endpoint of an authorization server (RFC 8693).

The user is the subject and the agent is the actor, each in a token that this runtime signed. The server knows the
runtime by its client id and secret (`client_secret_basic`), and trusts the key for claims.
Source: RFC 8693, sections 2.1 and 2.2; RFC 6749, sections 2.3.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from contextos.adapters.oauth.issued_token import (
    ACCESS_TOKEN,
    MAX_TOKEN_ANSWER_BYTES,
    answered_object,
    basic_authorization,
    issued_credential,
)
from contextos.adapters.outbound import OutboundClient, OutboundRequest, OutboundResponse, destination
from contextos.contracts.ports.credentials import Credential, CredentialRequest
from contextos.contracts.ports.outside import Clock
from contextos.errors import InvalidInput, LostReply, Problem, Unavailable

GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
EXCHANGE_REMEDIES: Final = {
    "invalid_client": "check `client_id` and the secret in `[credentials]`",
    "invalid_grant": "let the issuer trust the key for claims of this runtime",
    "invalid_request": "let the issuer trust the key for claims of this runtime, and know the user and the agent",
    "invalid_scope": "let the issuer grant the `required_scopes` of the tool, or correct them",
    "invalid_target": "let the issuer know the `audience` of the adapter, or correct it",
    "unauthorized_client": "let the issuer allow this client to exchange tokens",
    "unsupported_grant_type": "use an issuer that exchanges tokens (RFC 8693)",
}
"""The remedy for each error code of a token endpoint. Nothing else of its answer is shown."""


class TokenExchange:
    """Exchanges tokens at `url`. `issuer` is the server's identifier, and the audience of the tokens that it gets.

    `secret` is called for each request and returns the secret of the client, so that it can be replaced. `client` sends
    the requests; None: a client is made. `internal`: a person said that the server is at a loopback or private address.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: Callable[[], bytes],
        clock: Clock,
        *,
        issuer: str = "",
        internal: bool = False,
        timeout_s: float = 5,
        client: OutboundClient | None = None,
    ) -> None:
        self._url, self._endpoint = url, destination(url).endpoint
        self._client_id, self._secret, self._clock, self._timeout_s = client_id, secret, clock, timeout_s
        self._issuer = issuer or url
        self._client = client or OutboundClient(
            internal=[self._endpoint] if internal else [], max_response_bytes=MAX_TOKEN_ANSWER_BYTES
        )

    @property
    def issuer(self) -> str:
        """Return the identifier of the authorization server."""
        return self._issuer

    async def exchange(self, request: CredentialRequest) -> Credential:
        """Return a token with exactly what `request` asks for, or less.

        Raises:
            InvalidInput: the server refuses the request, or its answer is not what was asked for.
            Unavailable: the server did not answer, or says that it cannot; or the secret cannot be read.
        """
        sent_us = self._clock.now_us()
        try:
            answer = await self._client.send(self._request(request), egress=[self._endpoint], timeout_s=self._timeout_s)
        except LostReply:
            # If the token was issued, nobody received it, so nobody can use it.
            raise Unavailable(self._endpoint, "it gave no whole answer in time") from None
        if answer.status == 200:
            return issued_credential(answer.body, request, sent_us)
        raise self._refusal(answer)

    def _request(self, request: CredentialRequest) -> OutboundRequest:
        form = {
            "grant_type": GRANT_TYPE,
            "subject_token": request.subject_token,
            "subject_token_type": JWT,
            "actor_token": request.actor_token,
            "actor_token_type": JWT,
            "audience": request.audience,
            "scope": " ".join(request.scopes),
            "requested_token_type": ACCESS_TOKEN,
        }
        headers = {
            **request.trace,
            "Accept": "application/json",
            "Authorization": basic_authorization(self._client_id, self._secret, "credentials"),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return OutboundRequest("POST", self._url, headers, urlencode(form).encode())

    def _refusal(self, answer: OutboundResponse) -> InvalidInput | Unavailable:
        status = answer.status
        if status in (408, 429) or status >= 500:
            return Unavailable(self._endpoint, f"it issued no token, and answered {status}")
        code = _error_code(answer)
        remedy = EXCHANGE_REMEDIES.get(code, "check the URL of the token endpoint")
        reason = f"`{code}`" if code else f"the status {status}"
        return InvalidInput(Problem("", code or "refused", f"the token endpoint refuses with {reason}", remedy))


def _error_code(answer: OutboundResponse) -> str:
    """Return the error code of an answer, if it is a known code: any other text could quote the request."""
    code = answered_object(answer.body, MAX_TOKEN_ANSWER_BYTES).get("error")
    return code if isinstance(code, str) and code in EXCHANGE_REMEDIES else ""
