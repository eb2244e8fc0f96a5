"""A new passkey of an approver: the options with which a page asks a browser, and the directory's entry from the reply.

The entry counts for nothing until the keeper of the directory writes it there. The library `fido2` performs the steps
of the specification; the person has to be present and verified. Attestation is neither asked for nor believed:
somebody who looks at the person decides.
Source: W3C, "Web Authentication", section 7.1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from contextos.contracts.encoding.jcs import canonical, content_address, digest
from contextos.contracts.envelopes.identity import Approver, ApproverPasskey
from contextos.errors import ApprovalRefused
from contextos.trust.approvals.passkeys import PASSKEY_ALGORITHMS
from contextos.trust.identity.jwt import MIN_RSA_BITS
from contextos.trust.seal import encode_base64url

REGISTRATION_TIMEOUT_MS: Final = 300_000
RS256: Final = -257


def relying_party_of(origin: str) -> str:
    """Return the relying party of a page of `origin`: its host. Raises `ApprovalRefused` for an address."""
    host = urlsplit(origin).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return host
    raise _refusal("browsers make passkeys for a host name and not for an address; use `localhost` instead")


def creation_options(tenant_id: str, approver: Approver, origin: str, challenge: str) -> dict[str, Any]:
    """Return the options (`PublicKeyCredentialCreationOptionsJSON`) with which a page of `origin` asks a browser for a
    new passkey of the approver. `challenge` is unpadded Base64url.

    Raises:
        ApprovalRefused: browsers make no passkeys for this origin.
    """
    rp_id = relying_party_of(origin)
    return {
        "rp": {"id": rp_id, "name": rp_id},
        "user": {
            "id": _user_handle(tenant_id, approver.approver_id),
            "name": approver.approver_id,
            "displayName": approver.approver_id,
        },
        "challenge": challenge,
        "pubKeyCredParams": [{"type": "public-key", "alg": algorithm} for algorithm in PASSKEY_ALGORITHMS],
        "timeout": REGISTRATION_TIMEOUT_MS,
        "excludeCredentials": [{"type": "public-key", "id": passkey.credential_id} for passkey in approver.passkeys],
        "authenticatorSelection": {"residentKey": "preferred", "userVerification": "required"},
        "attestation": "none",
    }


def registered_passkey(
    tenant_id: str, approver_id: str, origin: str, challenge: str, response: Mapping[str, Any]
) -> ApproverPasskey:
    """Return the directory's entry for the passkey that a browser made (`credential.toJSON()`) for `creation_options`.

    Raises:
        ApprovalRefused: `assertion_invalid`; it was made for another challenge, origin or relying party, without
            verifying the person or with an algorithm that does not count, or `response` is not such an answer.
    """
    rp_id = relying_party_of(origin)
    credential_id, public_key = _verify_registration(response, rp_id, origin, challenge)
    try:
        return ApproverPasskey(
            credential_id=encode_base64url(credential_id),
            public_key=encode_base64url(public_key),
            rp_id=rp_id,
            origin=origin,
            user_handle=_user_handle(tenant_id, approver_id),
        )
    except ValidationError:
        raise _refusal("the passkey is larger than the directory takes") from None


def registration_digest(approver_id: str, passkey: ApproverPasskey) -> str:
    """Return the digest by which a person and the keeper of the directory check that they mean the same passkey."""
    return content_address({"approver_id": approver_id, "passkey": passkey.to_json()})


def _verify_registration(response: Mapping[str, Any], rp_id: str, origin: str, challenge: str) -> tuple[bytes, bytes]:
    """Return the id and COSE key of a new credential, verified as the specification says. Raises `ApprovalRefused`."""
    # Imported here, because importing `fido2` takes 130 ms.
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from fido2 import cbor
    from fido2.server import Fido2Server
    from fido2.webauthn import PublicKeyCredentialRpEntity, RegistrationResponse

    parts = response.get("response")
    if not isinstance(parts, Mapping) or response.get("type") != "public-key":
        raise _refusal("the answer of the browser is not a new passkey; send `credential.toJSON()`")
    fields = {
        "id": response.get("id"),
        "rawId": response.get("rawId"),
        "type": "public-key",
        "response": {name: parts.get(name) for name in ("clientDataJSON", "attestationObject")},
    }
    try:
        registration = RegistrationResponse.from_dict(fields)
        if registration.response.client_data.cross_origin is not False:
            raise _refusal("the passkey was asked for by a page within another one")
        relying_party = PublicKeyCredentialRpEntity(id=rp_id, name=rp_id)
        server = Fido2Server(relying_party, verify_origin=lambda page_origin: page_origin == origin)
        data = server.register_complete({"challenge": challenge, "user_verification": "required"}, registration)
        credential = data.credential_data
        if credential is None or credential.credential_id != registration.raw_id:
            raise _refusal("the passkey has another id than its authenticator says")
        if credential.public_key.get(3) not in PASSKEY_ALGORITHMS:
            raise _refusal("the algorithm of the passkey is none of ES256, EdDSA and RS256")
        key = credential.public_key
        if key.get(3) == RS256 and int.from_bytes(key[-1]).bit_length() < MIN_RSA_BITS:
            raise _refusal(f"the RSA key of the passkey has less than {MIN_RSA_BITS} bits")
        with suppress(InvalidSignature):
            # What is not a key, such as a point that is not on the curve, is refused before it verifies anything.
            key.verify(b"", bytes(64))
        return credential.credential_id, cbor.encode(dict(key))
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        AssertionError,
        NotImplementedError,
        RecursionError,
        UnsupportedAlgorithm,
        struct.error,
    ):
        detail = "its challenge, origin, relying party, flags or key are not those that this registration needs"
        raise _refusal(f"the passkey does not count; {detail}") from None


def _user_handle(tenant_id: str, approver_id: str) -> str:
    return encode_base64url(bytes.fromhex(digest(canonical([tenant_id, approver_id])).removeprefix("sha256:")))


def _refusal(detail: str) -> ApprovalRefused:
    return ApprovalRefused("assertion_invalid", detail)
