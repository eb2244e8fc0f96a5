"""Compact JWS signatures with Ed25519, for statements that people sign (approvals and settlements).

The verifier supplies the public keys and the expected header. Refuses a token whose header has any other member or
value, so a token can choose neither its algorithm nor its type. Signers choose only `iat`: when they signed, in Unix
seconds. It is in the header, so that a statement is the same whenever it is signed.
Source: RFC 7515, RFC 8037, RFC 9864; docs/design/standards.md, "JWS and Ed25519".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.encoding.codec import MAX_BYTES, MAX_DEPTH, loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import MAX_SIGNED_CHARS
from contextos.errors import InvalidInput, SignatureInvalid
from contextos.trust.seal import decode_base64, encode_base64url, verify_signature

MAX_STATED_DEPTH: Final = MAX_DEPTH + 16
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}")


def sign_compact(private_key: bytes, kid: str, typ: str, payload: Mapping[str, Any]) -> str:
    """Sign `payload` and return `header.payload.signature`. `private_key` is 32 raw bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    message = signing_input(kid, typ, payload)
    signature = Ed25519PrivateKey.from_private_bytes(private_key).sign(message)
    return f"{message.decode()}.{encode_base64url(signature)}"


def signing_input(kid: str, typ: str, payload: Mapping[str, Any], signed_at_s: int | None = None) -> bytes:
    """Return the bytes `header.payload` that the signature of a token covers. `signed_at_s`: its `iat`, or none."""
    time_member = {} if signed_at_s is None else {"iat": signed_at_s}
    return f"{_segment({'alg': 'Ed25519', 'kid': kid, 'typ': typ, **time_member})}.{_segment(payload)}".encode()


def detached(token: str, payload: Mapping[str, Any]) -> str:
    """Return a token without its payload, `header..signature` (RFC 7515, appendix F), if its payload is `payload` in
    canonical JSON. Any other token is returned as it is.
    """
    header, payload_segment, signature = token.split(".")
    return f"{header}..{signature}" if payload_segment == _segment(payload) else token


def attached(token: str, payload: Mapping[str, Any]) -> str:
    """Return a token that was `detached` with `payload` in its place again. Any other token is returned as it is."""
    return token.replace("..", f".{_segment(payload)}.", 1)


def unverified_payload(token: str) -> dict[str, Any] | None:
    """Return the payload of a compact JWS, or None if it is not a JWS. Nothing is verified."""
    return _unverified_segment(token, 1)


def unverified_time(token: str) -> int | None:
    """Return when a compact JWS says that it was signed (`iat` of its header), or None. Nothing is verified."""
    return _signed_at_s(_unverified_segment(token, 0) or {})


def _signed_at_s(header: Mapping[str, Any]) -> int | None:
    signed_at_s = header.get("iat")
    return signed_at_s if type(signed_at_s) is int else None


def _unverified_segment(token: str, part: int) -> dict[str, Any] | None:
    if not isinstance(token, str) or len(token) > MAX_SIGNED_CHARS or not _COMPACT.fullmatch(token):
        return None
    try:
        content = _read_segment(token.split(".")[part])
    except (InvalidInput, SignatureInvalid):
        return None
    return content if isinstance(content, dict) else None


def verify_compact(token: str, keys: Mapping[str, bytes], typ: str) -> dict[str, Any] | None:
    """Return the payload of `token` if one of `keys` signed it, else None.

    `keys` maps key ids to raw public keys. `typ` is the token type that the header must state.
    """
    # With padding or the other alphabet allowed, one assertion could be spelled in several ways.
    if len(token) > MAX_SIGNED_CHARS or not _COMPACT.fullmatch(token):
        return None
    parts = token.split(".")
    try:
        header, payload = loads(decode_base64(parts[0])), _read_segment(parts[1])
        signature = decode_base64(parts[2])
    except (InvalidInput, SignatureInvalid):
        return None
    if not isinstance(header, dict) or not isinstance(payload, dict) or not isinstance(header.get("kid"), str):
        return None
    time_member = {} if (signed_at_s := _signed_at_s(header)) is None else {"iat": signed_at_s}
    if header != {"alg": "Ed25519", "kid": header["kid"], "typ": typ, **time_member} or header["kid"] not in keys:
        return None
    return payload if verify_signature(keys[header["kid"]], f"{parts[0]}.{parts[1]}".encode(), signature) else None


def _read_segment(segment: str) -> Any:
    """Return the JSON of a segment. It can nest deep: a statement has the arguments of a call in it."""
    return loads(decode_base64(segment), max_depth=MAX_STATED_DEPTH, max_nodes=MAX_BYTES)


def _segment(value: Mapping[str, Any]) -> str:
    return encode_base64url(canonical(dict(value)))
