"""Signers: the statement comes back signed by the very key, and each kind of statement under its own type."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.deployment.signing import answer_signer, settlement_signer
from contextos.trust.identity.jws import verify_compact
from contextos.trust.seal import kid_of

KEY = bytes(range(32))
PUBLIC_KEY = Ed25519PrivateKey.from_private_bytes(KEY).public_key().public_bytes_raw()
TRUSTED = {kid_of(PUBLIC_KEY): PUBLIC_KEY}
STATEMENT = {"verdict": "approved"}
APPROVAL, SETTLEMENT = "contextos-approval+jws", "contextos-settlement+jws"


def test_an_answer_is_signed_as_an_approval_and_not_as_a_settlement() -> None:
    assertion = answer_signer(KEY)(STATEMENT)
    assert assertion["kind"] == "jws"
    assert verify_compact(assertion["token"], TRUSTED, APPROVAL) == STATEMENT
    assert verify_compact(assertion["token"], TRUSTED, SETTLEMENT) is None


def test_a_settlement_is_signed_as_a_settlement_and_not_as_an_approval() -> None:
    token = settlement_signer(KEY)(STATEMENT)["token"]
    assert verify_compact(token, TRUSTED, SETTLEMENT) == STATEMENT
    assert verify_compact(token, TRUSTED, APPROVAL) is None


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32"):
        answer_signer(b"short")
