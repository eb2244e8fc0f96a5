"""What a person signs is what their program asked for: the statement of the server is compared before it is signed.

A server that would have another answer signed than the one that was given is refused (`UnfitAnswer`).
Source: RFC 7515; docs/service.md, "Approve it".
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.errors import ApprovalRefused, InvalidInput, Problem, UnfitAnswer

Sign = Callable[[bytes], bytes | Awaitable[bytes]]
"""bytes to sign -> the Ed25519 signature of 64 bytes, such as `Ed25519PrivateKey.sign`."""

ED25519_BYTES: Final = 64
APPROVAL_TOKEN: Final = "contextos-approval+jws"
ACT_TOKEN: Final = "contextos-act+jws"


async def signed_token(
    inputs: Mapping[str, str], statement: Mapping[str, Any], typ: str, sign: Sign, kid: str | None
) -> str:
    """Return the compact JWS of `statement` by the key `kid`, or by the only key of the person.

    `inputs` are the bytes to sign by key, as the server gave them.

    Raises:
        ApprovalRefused: the directory lists no key of the person (`assertion_invalid`).
        InvalidInput: it lists several and `kid` is none of them; or `sign` returned no signature.
        UnfitAnswer: the bytes are not the statement.
    """
    if not inputs:
        raise ApprovalRefused("assertion_invalid", "the directory lists no key with which you could sign")
    if kid is None and len(inputs) == 1:
        [kid] = inputs
    if kid is None or kid not in inputs:
        listed = ", ".join(f"`{one[:80]}`" for one in sorted(inputs)[:8])
        raise InvalidInput(Problem("/kid", "unknown_key", f"your keys are {listed}", "name the one that `sign` uses"))
    said = inputs[kid]
    if _stated(said) != ({"alg": "Ed25519", "kid": kid, "typ": typ}, dict(statement)):
        raise UnfitAnswer("what the server gives to sign is not the statement that it shows; nothing was signed")
    made = sign(said.encode())
    signature = await made if inspect.isawaitable(made) else made
    if not isinstance(signature, bytes) or len(signature) != ED25519_BYTES:
        raise InvalidInput(Problem("/sign", "no_signature", "`sign` returned no Ed25519 signature", "return 64 bytes"))
    return f"{said}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def check_statement(statement: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise `UnfitAnswer` unless the statement says what is expected of it."""
    for name, value in expected.items():
        if name not in statement or statement[name] != value:
            raise UnfitAnswer(
                f"the statement of the server has another `{name}` than you asked for; nothing was signed"
            )


def _stated(said: str) -> tuple[Any, Any] | None:
    """The header and the payload of a signing input, or None."""
    header, _, payload = said.partition(".")
    try:
        return _segment(header), _segment(payload)
    except (ValueError, InvalidInput):
        return None


def _segment(text: str) -> Any:
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    return loads(raw)
