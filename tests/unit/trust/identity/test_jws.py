"""A token chooses neither its algorithm nor its type nor its key, and has one spelling."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.trust.identity.jws import sign_compact, signing_input, unverified_time, verify_compact
from tests.world import APPROVER_KEY, OPERATOR_KEY, public_key

TYP, KID = "test+jws", "key_1"
KEYS = {KID: public_key(APPROVER_KEY)}
PAYLOAD = {"amount": 1, "by": "ann"}


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def token(header: dict[str, Any] | None = None, key: bytes = APPROVER_KEY, kid: str = KID) -> str:
    made = sign_compact(key, kid, TYP, PAYLOAD)
    return made if header is None else ".".join([part(header), *made.split(".")[1:]])


def test_a_signed_payload_is_read_back() -> None:
    assert verify_compact(token(), KEYS, TYP) == PAYLOAD


HEADER = {"alg": "Ed25519", "kid": KID, "typ": TYP}


@pytest.mark.parametrize(
    "forged",
    [
        token({**HEADER, "alg": "none"}),
        token({**HEADER, "alg": "HS256"}),
        token({**HEADER, "typ": "other+jws"}),
        token({**HEADER, "jwk": {"kty": "OKP"}}),
        token({**HEADER, "kid": ["key_1"]}),
        token({**HEADER, "kid": "unknown"}),
        token(key=OPERATOR_KEY),
        token(kid="unknown"),
        token() + "=",
        token() + ".x",
        token().rsplit(".", 1)[0] + ".",
        token().rsplit(".", 1)[0],
        ".".join([token().split(".")[0], part({**PAYLOAD, "amount": 9}), token().split(".")[2]]),
        "a" * 16_385,
        "..",
        "",
    ],
)
def test_a_forged_token_has_no_payload(forged: str) -> None:
    assert verify_compact(forged, KEYS, TYP) is None


@pytest.mark.parametrize(("stated", "counts"), [(1, True), (True, False), (1.5, False), ("1", False), (None, False)])
def test_the_time_of_signing_is_a_whole_number_that_the_signer_signed(stated: Any, counts: bool) -> None:
    signed = f"{part({**HEADER, 'iat': stated})}.{part(PAYLOAD)}"
    signature = Ed25519PrivateKey.from_private_bytes(APPROVER_KEY).sign(signed.encode())
    made = f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert verify_compact(made, KEYS, TYP) == (PAYLOAD if counts else None)
    assert unverified_time(made) == (stated if counts else None)
    later = ".".join([part({**HEADER, "iat": 2}), *made.split(".")[1:]])
    assert (verify_compact(later, KEYS, TYP), unverified_time(later)) == (None, 2)
    assert unverified_time(token()) is None
    assert signing_input(KID, TYP, PAYLOAD, 1).count(b".") == 1


def test_a_token_of_another_type_does_not_count() -> None:
    assert verify_compact(token(), KEYS, "approval+jws") is None
