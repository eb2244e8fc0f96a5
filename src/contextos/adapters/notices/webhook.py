"""`Webhook`: posts notices to one URL, signed with HMAC-SHA256 in the form of Standard Webhooks (`v1`).

The receiver computes the signature over `<webhook-id>.<webhook-timestamp>.<body>` with its copy of the secret. With
several secrets a notice has a signature of each, so that one can be exchanged without a gap. The request goes through
`OutboundClient`: to this endpoint alone, over TLS, to checked addresses, and without redirects.
Source: Standard Webhooks 1.0.0, "Signature scheme".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from contextos.adapters.outbound import OutboundClient, OutboundRequest, destination
from contextos.errors import DestinationGone, InvalidSettings, Problem, Unavailable

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.service.outbox.notices import Notice

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = range(24, 65)
MAX_SECRETS: Final = 4
GONE: Final = 410
MAX_WEBHOOK_ANSWER_BYTES: Final = 65_536


class Webhook:
    """Sends notices to `url`. `secrets` is called for each notice, and returns the text for `parsed_secrets`."""

    def __init__(
        self,
        url: str,
        secrets: Callable[[], str],
        clock: Clock,
        *,
        internal: bool = False,
        timeout_s: float = 10,
        client: OutboundClient | None = None,
    ) -> None:
        self._url, self._secrets, self._clock, self._timeout_s = url, secrets, clock, timeout_s
        endpoint = destination(url).endpoint
        self._egress = (endpoint,)
        self._client = client or OutboundClient(
            internal=self._egress if internal else (), max_response_bytes=MAX_WEBHOOK_ANSWER_BYTES
        )

    async def send(self, notice: Notice) -> None:
        """Post a notice once.

        Raises:
            InvalidInput: the address is not allowed; nothing was sent.
            InvalidSettings: there is no valid secret now; nothing was sent.
            LostReply: something was sent, and no whole answer came.
            Unavailable: nothing was sent, or the receiver did not take it (any status but 2xx).
            DestinationGone: the receiver wants nothing more (status 410).
        """
        at_s = self._clock.now_us() // 1_000_000
        body = notice.body()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "contextos",
            **notice.trace,
            "webhook-id": notice.id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": signatures(parsed_secrets(self._secrets()), notice.id, at_s, body),
        }
        request = OutboundRequest("POST", self._url, headers, body)
        answer = await self._client.send(request, egress=self._egress, timeout_s=self._timeout_s)
        if answer.status == GONE:
            raise DestinationGone(self._egress[0])
        if not 200 <= answer.status < 300:
            raise Unavailable(self._egress[0], f"it answered with the status {answer.status}")


def signatures(secrets: Sequence[bytes], message_id: str, at_s: int, body: bytes) -> str:
    """Return the header `webhook-signature` of a message: one signature for each secret."""
    message = f"{message_id}.{at_s}.".encode() + body
    digests = (hmac.new(secret, message, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def parsed_secrets(text: str) -> list[bytes]:
    """Return the secrets in a text: 1 to `MAX_SECRETS` words of `whsec_` and Base64. Else raises `InvalidSettings`."""
    secrets = [_parse_secret(word) for word in text.split()]
    if not 1 <= len(secrets) <= MAX_SECRETS:
        raise _bad_secret(f"there are {len(secrets)} secrets, and 1 to {MAX_SECRETS} are allowed")
    return secrets


def _parse_secret(text: str) -> bytes:
    try:
        raw = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(PREFIX) or len(raw) not in SECRET_BYTES:
        raise _bad_secret("a secret of a webhook is not a `whsec_` with the Base64 of 24 to 64 bytes")
    return raw


def _bad_secret(detail: str) -> InvalidSettings:
    remedy = "write `whsec_` and the Base64 of 32 random bytes, at the receiver too"
    return InvalidSettings(Problem("/outbox", "bad_secret", detail, remedy))
