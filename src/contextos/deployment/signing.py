"""Signers: functions with which a person signs an answer, a settlement or an operator act with their private key.

The key stays with the caller; only the signed statement (a compact JWS) reaches the journal.
Source: docs/design/contracts.md, "Approval modes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from contextos.contracts.envelopes.identity import AnswerAssertion
from contextos.trust.approvals.acts import sign_act
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.settlement import sign_settlement
from contextos.trust.seal import listed_key

SignStatement = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""statement -> assertion {`kind`, `token`?}: signs an answer, a settlement or an act."""

SignAnswer = Callable[[Mapping[str, Any]], Mapping[str, Any] | AnswerAssertion]
"""As `SignStatement`, or statement -> what the runtime found in the token of a login (`login_assertion`), or
the assertion of a passkey (`passkey_assertion`).
"""


def answer_signer(private_key: bytes) -> SignStatement:
    """Return the function that signs an approval answer: pass it to `answer_approval` as `vouch`.

    `private_key` is a raw Ed25519 private key of 32 bytes; the directory holds the public half.

    Raises:
        ValueError: `private_key` has another length.
    """
    return _signer(private_key, sign_approval)


def settlement_signer(private_key: bytes) -> SignStatement:
    """Return the function that signs an operator's settlement: pass it to `settle_effect` as `vouch`.

    `private_key` is a raw Ed25519 private key of 32 bytes. A signed approval answer is never accepted as a settlement,
    nor the reverse.

    Raises:
        ValueError: `private_key` has another length.
    """
    return _signer(private_key, sign_settlement)


def act_signer(private_key: bytes) -> SignStatement:
    """Return the function that signs operator acts: pass it to `Actor` as `vouch`. Otherwise as `answer_signer`."""
    return _signer(private_key, sign_act)


def _signer(private_key: bytes, sign: Callable[[bytes, str, Mapping[str, Any]], str]) -> SignStatement:
    kid = listed_key(private_key)["kid"]
    return lambda statement: {"kind": "jws", "token": sign(private_key, kid, statement)}
