"""Answers that are proved by a passkey: a WebAuthn assertion whose challenge is the digest of exactly this answer.

The challenge covers the question, the person, the verdict and the reason, so an assertion fits no other. The directory
says for which relying party and origin a passkey counts, and the proof is kept with the answer: a reader of the
journal and the directory's entry, such as a replay of an export, verifies it again without a network. The library
`fido2` performs the steps of the specification; the person has to be present and verified (PIN, finger, face).
A passkey that counts its signatures has to count up; many do not count, because they are on several devices, and say 0
each time.
Source: W3C, "Web Authentication", section 7.2.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from contextos.contracts.documents.operations import PASSKEY_COUNTS, PasskeyCount
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.identity import AnswerAssertion, Approver, ApproverPasskey, PasskeyProof
from contextos.contracts.journal import Write
from contextos.contracts.ports.storage import Store
from contextos.errors import ApprovalRefused, SignatureInvalid
from contextos.trust.seal import decode_base64, encode_base64url

PASSKEY_ALGORITHMS: Final = (-7, -8, -257)
"""The COSE algorithms that count: ES256, EdDSA and RS256."""
_COUNT_BYTES: Final = slice(33, 37)
_NO_MODEL: Final = bytes(16)


def challenge_of(statement: Mapping[str, Any]) -> str:
    """Return the challenge that a passkey signs for a statement: the 32 bytes of its digest, as unpadded Base64url."""
    return encode_base64url(bytes.fromhex(content_address(dict(statement)).removeprefix("sha256:")))


def passkey_assertion(response: Any) -> AnswerAssertion:
    """Return the assertion in the answer of a browser (`PublicKeyCredential.toJSON()`). Nothing is verified.

    Raises:
        ApprovalRefused: `assertion_invalid`; `response` is not such an answer.
    """
    parts = response.get("response") if isinstance(response, Mapping) else None
    if not isinstance(parts, Mapping) or response.get("type") != "public-key":
        raise _refusal("the answer of the browser is not an assertion of a passkey; send `credential.toJSON()`")
    try:
        proof = PasskeyProof.model_validate(
            {
                "credential_id": response.get("id"),
                "authenticator_data": parts.get("authenticatorData"),
                "client_data": parts.get("clientDataJSON"),
                "signature": parts.get("signature"),
                "user_handle": parts.get("userHandle"),
            }
        )
    except ValidationError:
        raise _refusal("a part of the passkey's assertion is missing or is no Base64url") from None
    return AnswerAssertion(kind="webauthn", passkey=proof)


def passkey_fault(approver: Approver, proof: PasskeyProof, statement: Mapping[str, Any]) -> ApprovalRefused | None:
    """Return why a passkey's assertion does not prove this answer, or None."""
    passkey = next((known for known in approver.passkeys if known.credential_id == proof.credential_id), None)
    if passkey is None:
        return _refusal(f"the directory does not know this passkey as one of `{approver.approver_id}`")
    if proof.user_handle is not None and proof.user_handle != passkey.user_handle:
        return _refusal("the passkey is of another user")
    try:
        _verify_assertion(passkey, proof, challenge_of(statement))
    except SignatureInvalid as error:
        return _refusal(f"the passkey does not prove this answer to this question; {error}")
    return None


def sign_count(proof: PasskeyProof) -> int:
    """Return how many signatures the passkey says that it has made; 0 for a passkey that does not count."""
    (count,) = struct.unpack(">I", decode_base64(proof.authenticator_data)[_COUNT_BYTES])
    return int(count)


async def count_writes(store: Store, approver_id: str, assertion: AnswerAssertion) -> tuple[Write, ...]:
    """Return the write that keeps the count of a passkey, for the commit of its answer; () for another proof.

    Raises:
        ApprovalRefused: `assertion_invalid`; the passkey counted further before, or stopped counting.
    """
    if assertion.passkey is None:
        return ()
    # A person who registers the id of somebody else's passkey must not raise that person's count.
    key = content_address([approver_id, assertion.passkey.credential_id])
    count, stored = sign_count(assertion.passkey), await PASSKEY_COUNTS.one(store, key)
    if stored is None and count == 0:
        return ()
    if stored is not None and count <= stored.body.count:
        detail = "the passkey counted further before, so this can be a copy of it; have its owner register another"
        raise _refusal(detail)
    return (PASSKEY_COUNTS.write(key, stored.version if stored else 0, PasskeyCount(count)),)


def request_options(approver: Approver, origin: str, statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options (`PublicKeyCredentialRequestOptionsJSON`) with which a page of `origin` asks a browser for the
    assertion of one of the approver's passkeys for this statement.

    Raises:
        ApprovalRefused: `assertion_invalid`; the directory has no passkey of the approver for this origin, or has some
            for several relying parties.
    """
    usable = [passkey for passkey in approver.passkeys if passkey.origin == origin]
    parties = {passkey.rp_id for passkey in usable}
    if len(parties) != 1:
        raise _refusal(f"the directory has no passkeys of `{approver.approver_id}` for one relying party here")
    return {
        "challenge": challenge_of(statement),
        "rpId": parties.pop(),
        "allowCredentials": [{"type": "public-key", "id": passkey.credential_id} for passkey in usable],
        "userVerification": "required",
    }


def _verify_assertion(passkey: ApproverPasskey, proof: PasskeyProof, challenge: str) -> None:
    """Verify an assertion as the specification says. Raises `SignatureInvalid`."""
    # Imported here, because importing `fido2` takes 130 ms.
    from cryptography.exceptions import UnsupportedAlgorithm
    from fido2 import cbor
    from fido2.cose import CoseKey
    from fido2.server import Fido2Server
    from fido2.webauthn import (
        AttestedCredentialData,
        AuthenticationResponse,
        AuthenticatorAssertionResponse,
        AuthenticatorData,
        CollectedClientData,
        PublicKeyCredentialRpEntity,
    )

    try:
        key_members = cbor.decode(decode_base64(passkey.public_key))
        if not isinstance(key_members, Mapping):
            raise TypeError
        key = CoseKey.parse(key_members)
        credential_id = decode_base64(passkey.credential_id)
        client = CollectedClientData(decode_base64(proof.client_data))
        answer = AuthenticationResponse(
            raw_id=decode_base64(proof.credential_id),
            response=AuthenticatorAssertionResponse(
                client_data=client,
                authenticator_data=AuthenticatorData(decode_base64(proof.authenticator_data)),
                signature=decode_base64(proof.signature),
            ),
        )
        if key.get(3) not in PASSKEY_ALGORITHMS:
            raise SignatureInvalid("its algorithm is none of ES256, EdDSA and RS256")
        if client.cross_origin is not False:
            raise SignatureInvalid("it was asked for by a page within another one")
        relying_party = PublicKeyCredentialRpEntity(id=passkey.rp_id, name=passkey.rp_id)
        server = Fido2Server(relying_party, verify_origin=lambda origin: origin == passkey.origin)
        credential = AttestedCredentialData.create(_NO_MODEL, credential_id, key)
        server.authenticate_complete({"challenge": challenge, "user_verification": "required"}, [credential], answer)
    except SignatureInvalid:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        NotImplementedError,
        RecursionError,
        UnsupportedAlgorithm,
        struct.error,
    ):
        # In words of our own: a replay derives them again, and other releases of the library use other words.
        detail = "its challenge, origin, relying party, flags or signature are not those that this answer needs"
        raise SignatureInvalid(detail) from None


def _refusal(detail: str) -> ApprovalRefused:
    return ApprovalRefused("assertion_invalid", detail)
