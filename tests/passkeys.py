"""A software authenticator: passkeys as a phone or a security key has them, and assertions, also wrong ones."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from fido2 import cbor, cose

RP_ID = "acme.example"
ORIGIN = "https://console.acme.example"
PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass
class Passkey:
    """`count` is what it counts up with each assertion; None: it does not count."""

    algorithm: str = "ES256"
    credential_id: bytes = b"credential-1"
    user_handle: bytes = b"user-handle-77"
    count: int | None = None
    key: Any = field(init=False)

    def __post_init__(self) -> None:
        made: dict[str, Any] = {
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
            "PS256": lambda: rsa.generate_private_key(65537, 2048),
        }
        self.key = made[self.algorithm]()

    def listed(self, **changes: Any) -> dict[str, Any]:
        """The entry of the directory."""
        key = getattr(cose, self.algorithm).from_cryptography_key(self.key.public_key())
        return {
            "credential_id": base64url(self.credential_id),
            "public_key": base64url(cbor.encode(dict(key))),
            "rp_id": RP_ID,
            "origin": ORIGIN,
            "user_handle": base64url(self.user_handle),
            **changes,
        }

    def sign(self, message: bytes) -> bytes:
        if self.algorithm == "ES256":
            return bytes(self.key.sign(message, ec.ECDSA(hashes.SHA256())))
        if self.algorithm == "EdDSA":
            return bytes(self.key.sign(message))
        if self.algorithm == "PS256":
            pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
            return bytes(self.key.sign(message, pss, hashes.SHA256()))
        return bytes(self.key.sign(message, padding.PKCS1v15(), hashes.SHA256()))

    def create(
        self,
        options: dict[str, Any],
        *,
        origin: str = ORIGIN,
        rp_id: str | None = None,
        flags: int = PRESENT | VERIFIED | ATTESTED,
        client: dict[str, Any] | None = None,
        attested: dict[str, Any] | None = None,
        credential_id: bytes | None = None,
    ) -> dict[str, Any]:
        """What a browser returns for `navigator.credentials.create(options)`, as JSON. `client` replaces client data,
        `attested` parts of the attestation object, and `credential_id` the id in it.
        """
        said = {"type": "webauthn.create", "challenge": options["challenge"], "origin": origin, "crossOrigin": False}
        stated = json.dumps({**said, **(client or {})}).encode()
        self.user_handle = base64.urlsafe_b64decode(options["user"]["id"] + "==")
        key = getattr(cose, self.algorithm).from_cryptography_key(self.key.public_key())
        place = hashlib.sha256((rp_id or options["rp"]["id"]).encode()).digest()
        named = credential_id or self.credential_id
        data = place + struct.pack(">BI", flags, self.count or 0)
        if flags & ATTESTED:
            data += bytes(16) + struct.pack(">H", len(named)) + named + cbor.encode(dict(key))
        made = {"fmt": "none", "attStmt": {}, "authData": data, **(attested or {})}
        return {
            "id": base64url(self.credential_id),
            "rawId": base64url(self.credential_id),
            "type": "public-key",
            "authenticatorAttachment": "platform",
            "clientExtensionResults": {"credProps": {"rk": True}},
            "response": {
                "clientDataJSON": base64url(stated),
                "attestationObject": base64url(cbor.encode(made)),
                "transports": ["internal"],
            },
        }

    def get(
        self,
        options: dict[str, Any],
        *,
        origin: str = ORIGIN,
        rp_id: str | None = None,
        flags: int = PRESENT | VERIFIED,
        client: dict[str, Any] | None = None,
        handle: bytes | None = ...,  # type: ignore[assignment]
        more: bytes = b"",
    ) -> dict[str, Any]:
        """What a browser returns for `navigator.credentials.get(options)`, as JSON. `client` replaces client data."""
        said = {"type": "webauthn.get", "challenge": options["challenge"], "origin": origin, "crossOrigin": False}
        stated = json.dumps({**said, **(client or {})}).encode()
        handle = self.user_handle if handle is ... else handle
        if self.count is not None:
            self.count += 1
        place = hashlib.sha256((rp_id or options["rpId"]).encode()).digest()
        data = place + struct.pack(">BI", flags, self.count or 0) + more
        return {
            "id": base64url(self.credential_id),
            "rawId": base64url(self.credential_id),
            "type": "public-key",
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": base64url(stated),
                "authenticatorData": base64url(data),
                "signature": base64url(self.sign(data + hashlib.sha256(stated).digest())),
                "userHandle": base64url(handle) if handle else None,
            },
        }
