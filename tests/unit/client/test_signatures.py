"""The token of a statement: by the key that is named, over exactly the bytes that the server gave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.client.signatures import ACT_TOKEN, APPROVAL_TOKEN, signed_token
from contextos.errors import ApprovalRefused, InvalidInput
from contextos.service.approvals import APPROVAL_TYP
from contextos.trust.approvals.acts import ACT_TYP
from contextos.trust.identity.jws import signing_input, verify_compact

KEY = Ed25519PrivateKey.generate()
STATEMENT = {"verdict": "approved", "reason": "é"}


def inputs(*kids: str) -> dict[str, str]:
    return {kid: signing_input(kid, APPROVAL_TYP, STATEMENT).decode() for kid in kids}


def token(given: dict[str, str], sign: Any = KEY.sign, kid: str | None = None) -> str:
    return asyncio.run(signed_token(given, STATEMENT, APPROVAL_TOKEN, sign, kid))


def test_the_token_verifies_as_the_server_verifies_it() -> None:
    keys = {"k1": KEY.public_key().public_bytes_raw()}
    assert verify_compact(token(inputs("k1")), keys, APPROVAL_TYP) == STATEMENT
    assert (APPROVAL_TOKEN, ACT_TOKEN) == (APPROVAL_TYP, ACT_TYP)


def test_a_key_service_signs_asynchronously_with_the_key_that_is_named() -> None:
    async def sign(signed: bytes) -> bytes:
        return KEY.sign(signed)

    keys = {"k2": KEY.public_key().public_bytes_raw()}
    assert verify_compact(token(inputs("k1", "k2"), sign, "k2"), keys, APPROVAL_TYP) == STATEMENT


def test_a_key_has_to_be_named_where_there_are_several() -> None:
    for kid in (None, "k3"):
        with pytest.raises(InvalidInput, match="`k1`, `k2`"):
            token(inputs("k1", "k2"), kid=kid)
    with pytest.raises(ApprovalRefused, match="no key"):
        token({})


@pytest.mark.parametrize("made", [b"", bytes(63), "x" * 64, None])
def test_what_is_no_signature_is_not_sent(made: Any) -> None:
    with pytest.raises(InvalidInput, match="64 bytes"):
        token(inputs("k1"), lambda _signed: made)
