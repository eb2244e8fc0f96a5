"""Signing and verifying: a ring of Ed25519 keys with one purpose each, and DSSE envelopes over exact bytes.

A verifier returns the bytes whose signature it checked, so that the caller parses no others. The algorithm comes from
the key, never from the message. A key id in a message only says which key to try first. Refuses one key for two
purposes, because a signature over a head must never be accepted as one over a pack. Refuses public keys of small order,
under which anybody can make signatures.

This module implements DSSE itself, over `cryptography`, because importing `securesystemslib` takes 140 ms. The tests
check it against the published test vector and against `securesystemslib` in both directions.
Source: DSSE protocol 1.0.2 (docs/design/standards.md, "DSSE"); docs/design/contracts.md, "Wire and hashing".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from contextos.contracts.encoding.codec import MAX_BYTES, JsonValue
from contextos.contracts.encoding.secret_shapes import linear_pattern
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.ports.outside import Keys
from contextos.errors import InvalidSettings, Problem, SignatureInvalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

Purpose = Literal["head", "claim", "export", "pack", "active", "act", "checkpoint"]
PURPOSES: Final[tuple[Purpose, ...]] = ("head", "claim", "export", "pack", "active", "act", "checkpoint")

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_SIGNATURES: Final = 16
MAX_KEYS_PER_PURPOSE: Final = 128
MAX_ENVELOPE_BYTES: Final = -(-MAX_BYTES // 3) * 4 + 16_384
"""The longest envelope: the Base64 of the longest payload that `loads` reads, and 1 KiB for each signature."""

PrivateKey: TypeAlias = "bytes | Ed25519PrivateKey"
PublicKey: TypeAlias = "bytes | Ed25519PublicKey"

_FIELD: Final = 2**255 - 19
_EDWARDS_D: Final = -121665 * pow(121666, -1, _FIELD) % _FIELD

_STANDARD: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_URL_SAFE: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_ESCAPED: Final = re.compile(r"\\[bfnrt]")
_PERHAPS_KEY: Final = (
    r"(?:[0-9A-Fa-f]{2}[^0-9A-Za-z]{0,4}(?:0x)?){16}|[A-Za-z0-9+/_-]{20}|(?:[0-9]{1,3}[^0-9]{1,4}){16}"
)
"""A pattern of text that could be a part of a private key, also over several lines."""
_NO_BASE64: Final = re.compile(r"[^A-Za-z0-9+/]+")
_NO_HEX: Final = re.compile(r"[^0-9A-Fa-f]+|0x")
_NO_NUMBER: Final = re.compile(r"[^0-9]+")
_STANDARD_BASE64: Final = str.maketrans("-_", "+/")


def kid_of(public_key: bytes) -> str:
    """Return the id of a public key: `kid_` and the first 16 hex digits of the sha256 of its 32 raw bytes."""
    return "kid_" + hashlib.sha256(public_key).hexdigest()[:16]


def listed_key(private_key: bytes) -> dict[str, str]:
    """Return the public half of a person's key (32 raw bytes) as the directory lists it: `kid` and `public_key` (hex).

    Raises:
        ValueError: `private_key` has another length.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()
    return {"kid": kid_of(public), "public_key": public.hex()}


def jwk_set(keys: Mapping[str, bytes]) -> dict[str, JsonValue]:
    """Return public keys (32 raw bytes by key id) as a JWK Set (RFC 7517, RFC 8037)."""
    common: dict[str, JsonValue] = {"kty": "OKP", "crv": "Ed25519", "alg": "Ed25519", "use": "sig"}
    return {"keys": [{**common, "kid": kid, "x": encode_base64url(raw)} for kid, raw in keys.items()]}


class KeyRing:
    """The keys of a runtime: for each purpose at most one signing key and all trusted public keys. Implements `Keys`.

    A key is 32 raw bytes or a key object of `cryptography`; the app reads them from files. A signing key is trusted
    for its own purpose. `trusted` adds public keys, for example the previous ones after a rotation. `retired` maps the
    id of a key to the time (Unix microseconds) after which nothing that it signs counts. `unsafe` is not empty for the
    development keys of `from_seed`.

    Raises:
        InvalidSettings: an unknown purpose, bytes that are not a key, too many keys, one key for two purposes, or a
            retired key that would sign.
    """

    unsafe: tuple[str, ...] = ()

    def __init__(
        self,
        signing: Mapping[str, PrivateKey],
        trusted: Mapping[str, Sequence[PublicKey]] | None = None,
        retired: Mapping[str, int] | None = None,
    ) -> None:
        also_trusted, self._retired = trusted or {}, dict(retired or {})
        for purpose in (*signing, *also_trusted):
            if purpose not in PURPOSES:
                raise _invalid_key(purpose, "unknown_purpose", f"there is no purpose `{purpose}`", f"use {PURPOSES}")
        self._signing: dict[str, tuple[str, Ed25519PrivateKey]] = {}
        self._trusted: dict[str, dict[str, Ed25519PublicKey]] = {purpose: {} for purpose in PURPOSES}
        for purpose, key in signing.items():
            private = _private_key(purpose, key)
            self._signing[purpose] = (self._trust(purpose, private.public_key()), private)
        for purpose, keys in also_trusted.items():
            for public in keys:
                self._trust(purpose, _public_key(purpose, public))
        for purpose, (kid, _) in self._signing.items():
            if kid in self._retired:
                raise _invalid_key(purpose, "retired_key", f"`{kid}` is retired and cannot sign", "rotate the key")

    @classmethod
    def from_seed(cls, seed: bytes) -> KeyRing:
        """Derive one signing key per purpose from 32 bytes (else `InvalidSettings`). For development and simulation."""
        if len(seed) != KEY_BYTES:
            raise _invalid_key(
                "seed", "seed_length", f"a seed has {KEY_BYTES} bytes, not {len(seed)}", "generate a new one"
            )
        ring = cls(
            {purpose: hashlib.sha256(b"contextos " + purpose.encode() + b"\0" + seed).digest() for purpose in PURPOSES}
        )
        ring.unsafe = ("unsafe_local_keys",)
        return ring

    def kids(self, purpose: str) -> Sequence[str]:
        """Return the ids of the keys trusted for `purpose`, the signing key first. Empty for an unknown purpose."""
        return tuple(self._trusted.get(purpose, ()))

    def public_key(self, purpose: str, kid: str) -> bytes | None:
        """Return the 32 raw bytes of the public key `kid`, or None if the ring has no such key for `purpose`."""
        key = self._trusted.get(purpose, {}).get(kid)
        return key.public_bytes_raw() if key else None

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """Sign `payload`; return the key id and the signature (64 bytes).

        Raises:
            InvalidSettings: the ring has no signing key for `purpose`.
        """
        if purpose not in self._signing:
            raise _invalid_key(
                purpose, "no_signing_key", f"there is no key to sign `{purpose}` with", "add one in the settings"
            )
        kid, key = self._signing[purpose]
        return kid, key.sign(payload)

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes, *, at_us: int | None = None) -> bool:
        """Return whether the key `kid`, trusted for `purpose` and not retired before `at_us`, made this signature."""
        key = self._trusted.get(purpose, {}).get(kid)
        if key is None or (at_us is not None and at_us > self._retired.get(kid, at_us)):
            return False
        return _is_valid_signature(key, payload, signature)

    def discloses(self, text: str) -> bool:
        """Return whether a text, or the JSON of a value, contains a private key of the ring: hex, Base64, numbers."""
        if linear_pattern(_PERHAPS_KEY).search(text) is None:
            return False
        text = _ESCAPED.sub("", text)
        plain, hexadecimal = _NO_BASE64.sub("", text.translate(_STANDARD_BASE64)), _NO_HEX.sub("", text).lower()
        numbers = _NO_NUMBER.sub(",", text)
        return any(
            private.hex() in hexadecimal
            or ",".join(map(str, private)) in numbers
            or any(encoded in plain for encoded in _base64_within(private))
            for _, key in self._signing.values()
            for private in [key.private_bytes_raw()]
        )

    def _trust(self, purpose: str, key: Ed25519PublicKey) -> str:
        kid = kid_of(key.public_bytes_raw())
        for other, keys in self._trusted.items():
            if other != purpose and kid in keys:
                detail = f"the key is given for `{other}` and for `{purpose}`"
                raise _invalid_key(purpose, "shared_key", detail, "make one key per purpose")
        self._trusted[purpose][kid] = key
        if len(self._trusted[purpose]) > MAX_KEYS_PER_PURPOSE:
            raise _invalid_key(purpose, "too_many_keys", f"more than {MAX_KEYS_PER_PURPOSE} keys", "remove the oldest")
        return kid


def _base64_within(raw: bytes) -> Iterator[str]:
    """Yield the characters of `raw` within the Base64 of a longer text, for each offset in a group of three bytes."""
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw).decode()
        yield encoded[-(-8 * offset // 6) : 8 * (offset + len(raw)) // 6]


def verify_signature(public_key: bytes, payload: bytes, signature: bytes) -> bool:
    """Return whether this raw Ed25519 public key made this signature; False for bytes that are not a key.

    Also False for a key of small order. Used for the keys of people, which come from the directory, not from a ring.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(public_key) != KEY_BYTES or is_small_order(public_key):
        return False
    return _is_valid_signature(Ed25519PublicKey.from_public_bytes(public_key), payload, signature)


@lru_cache(maxsize=1024)
def is_small_order(public_key: bytes) -> bool:
    """Return whether the 32 bytes of an Ed25519 public key encode a point whose order divides 8, or are not canonical.

    Under such a key a signature without any private key verifies for one message in eight or more.
    Doubling a point three times multiplies it by 8, and the y of a doubled point depends on y alone (RFC 8032, 5.1).
    """
    y = int.from_bytes(public_key, "little") & ((1 << 255) - 1)
    if y >= _FIELD:
        return True
    for _ in range(3):
        y_squared = y * y % _FIELD
        x_squared = (y_squared - 1) * pow(_EDWARDS_D * y_squared + 1, -1, _FIELD) % _FIELD
        y = (y_squared + x_squared) * pow(1 - _EDWARDS_D * x_squared * y_squared, -1, _FIELD) % _FIELD
    return y == 1


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that a DSSE v1 signature is made over: type and payload, each with its length in bytes.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    type_bytes = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(type_bytes), type_bytes, len(payload), payload)


def seal(payload_type: str, payload: bytes, keys: Keys, purpose: Purpose) -> dict[str, JsonValue]:
    """Sign exactly these bytes with the signing key for `purpose`; return the DSSE envelope."""
    kid, signature = keys.sign(purpose, pae(payload_type, payload))
    return {
        "payloadType": payload_type,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": kid, "sig": base64.b64encode(signature).decode()}],
    }


def open_sealed(
    envelope: JsonValue, keys: Keys, purpose: Purpose, payload_types: Collection[str], *, at_us: int | None = None
) -> bytes:
    """Return the payload of a DSSE envelope that a key trusted for `purpose` signed: exactly the signed bytes.

    Tries every trusted key, the key that `keyid` names first. With `at_us` (Unix microseconds) only keys that were not
    retired before count. Ignores unknown fields.

    Raises:
        SignatureInvalid: no signature verifies, the payload type is not in `payload_types`, there are zero or more than
            16 signatures, or Base64 is malformed.
    """
    fields = envelope if isinstance(envelope, Mapping) else {}
    payload_type, signatures = fields.get("payloadType"), fields.get("signatures")
    if not isinstance(payload_type, str) or payload_type not in payload_types:
        raise SignatureInvalid(
            f"payload type `{str(payload_type)[:80]}` is not expected here; send one of {sorted(payload_types)}"
        )
    if not isinstance(signatures, list | tuple) or not 1 <= len(signatures) <= MAX_SIGNATURES:
        raise SignatureInvalid(f"an envelope has 1 to {MAX_SIGNATURES} signatures; seal it again")
    payload = decode_base64(fields.get("payload"))
    message = pae(payload_type, payload)
    trusted = keys.kids(purpose)
    for entry in signatures:
        hint = entry.get("keyid") if isinstance(entry, Mapping) else None
        signature = decode_base64(entry.get("sig") if isinstance(entry, Mapping) else None)
        for kid in sorted(trusted, key=lambda candidate: candidate != hint):
            if keys.verify(purpose, kid, message, signature, at_us=at_us):
                return payload
    raise SignatureInvalid(f"no key that is trusted for `{purpose}` signed this envelope; check who sealed it")


def encode_base64url(raw: bytes) -> str:
    """Return Base64 in the URL-safe alphabet without padding.

    >>> encode_base64url(bytes([255]))
    '_w'
    """
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_base64(text: JsonValue) -> bytes:
    """Decode Base64 in the standard or the URL-safe alphabet, with correct padding or with none.

    Refuses everything that two decoders could read differently: both alphabets in one text, stray characters, wrong
    padding, and unused bits in the last character that are not zero.

    Raises:
        SignatureInvalid: the text is refused.
    """
    if not isinstance(text, str) or not (_STANDARD.fullmatch(text) or _URL_SAFE.fullmatch(text)):
        raise SignatureInvalid("this is not Base64; encode the bytes as RFC 4648 says")
    unpadded = text.rstrip("=").replace("-", "+").replace("_", "/")
    padded = unpadded + "=" * (-len(unpadded) % 4)
    if "=" in text and len(text) != len(padded):
        raise SignatureInvalid("the padding of this Base64 is wrong; encode the bytes as RFC 4648 says")
    try:
        raw = base64.b64decode(padded, validate=True)
    except binascii.Error:
        raise SignatureInvalid("this Base64 is cut short; encode the bytes as RFC 4648 says") from None
    if base64.b64encode(raw).decode() != padded:
        raise SignatureInvalid("this Base64 has bits left over; encode the bytes as RFC 4648 says")
    return raw


def _private_key(purpose: str, key: PrivateKey) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if isinstance(key, Ed25519PrivateKey):
        return key
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise _invalid_key(purpose, "not_a_key", "this is not an Ed25519 private key", f"use {KEY_BYTES} raw bytes")
    return Ed25519PrivateKey.from_private_bytes(key)


def _public_key(purpose: str, key: PublicKey) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    raw = key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else key
    if not isinstance(raw, bytes) or len(raw) != KEY_BYTES:
        raise _invalid_key(purpose, "not_a_key", "this is not an Ed25519 public key", f"use {KEY_BYTES} raw bytes")
    if is_small_order(raw):
        raise _invalid_key(purpose, "weak_key", "anybody can sign for this public key", "make a new key")
    return Ed25519PublicKey.from_public_bytes(raw)


_VALID: Final = RecentlyUsed[bool](8_192)
"""By public key, signature and SHA-256 of the payload: the signatures that this process verified."""


def _is_valid_signature(key: Ed25519PublicKey, payload: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    if len(signature) != SIGNATURE_BYTES:
        return False
    verified = key.public_bytes_raw() + signature + hashlib.sha256(payload).digest()
    if _VALID.get(verified):
        return True
    try:
        key.verify(signature, payload)
    except InvalidSignature:
        return False
    return _VALID.keep(verified, True)


def _invalid_key(purpose: str, code: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem(f"/keys/{purpose}", code, detail, remedy))
