"""The statement that an approver signs, and every reason to refuse an approver's answer.

The approver signs a compact JWS (alg `Ed25519`) over the digests of the call, of its evidence and of the text that was
displayed. `unsafe_local` is an answer without a key, for development: the settings must allow it, and the decision
record names it.
Source: docs/design/contracts.md, "Approval modes"; docs/design/standards.md, "JWS and Ed25519" and "Approvals".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from contextos.contracts.encoding.codec import problems_of
from contextos.contracts.envelopes.identity import Approver, SignerAssertion
from contextos.errors import ApprovalRefused
from contextos.trust.identity.jws import sign_compact, verify_compact

APPROVAL_TYP: Final = "contextos-approval+jws"

OPERATOR_ROLE: Final = "operator"
"""The role of a person who settles uncertain effects and stops other people's runs. It does not answer any gate."""


def approval_statement(question: Mapping[str, Any], approver_id: str, verdict: str, reason: str) -> dict[str, Any]:
    """Build the statement that the approver's key signs. It fits one question, one person and one verdict only.

    `question` is the body of `approval.asked`.
    """
    return {
        "approval_id": question["approval_id"],
        "approver": approver_id,
        "binding_digest": question["binding_digest"],
        "evidence_snapshot_hash": question["evidence_snapshot_hash"],
        "shown_digest": question["shown_digest"],
        "verdict": verdict,
        "reason": reason,
    }


def sign_approval(private_key: bytes, kid: str, statement: Mapping[str, Any]) -> str:
    """Sign an approval statement with an approver's raw Ed25519 private key; return the compact JWS."""
    return sign_compact(private_key, kid, APPROVAL_TYP, statement)


def read_assertion(value: Any) -> SignerAssertion:
    """Return what a signer gave for a statement, as a `SignerAssertion`. Refuses any other member, kind or size.

    Raises:
        ApprovalRefused: `assertion_invalid`.
    """
    try:
        return SignerAssertion.model_validate(value)
    except ValidationError as error:
        problem = problems_of(error)[0]
        detail = f"the assertion is neither a `jws` with its token nor `unsafe_local`: {problem.detail}"
        raise ApprovalRefused("assertion_invalid", detail) from None


def grant_fault(approver: Approver, role: str) -> ApprovalRefused | None:
    """Return why `approver` does not validly hold `role`, or None. Another person must have granted it."""
    grantor = approver.granted_by.get(role)
    if not grantor:
        return ApprovalRefused(
            "not_granted", f"the directory does not name who granted the role `{role}` to `{approver.approver_id}`"
        )
    if grantor == approver.approver_id:
        return ApprovalRefused("self_granted", f"`{approver.approver_id}` granted the role `{role}` to themselves")
    return None


def approval_fault(
    approver: Approver, question: Mapping[str, Any], answer: Mapping[str, Any]
) -> ApprovalRefused | None:
    """Return why an approver's answer is refused, or None. Called when the answer arrives, and again before it is
    used.

    `approver` is the directory's entry, `question` the body of `approval.asked`. `answer` has `approver`, `verdict`,
    `reason` and `assertion`, the wire form of a `SignerAssertion`. The caller checks whether this deployment allows
    `unsafe_local`.
    """
    role = question["required_role"]
    if approver.approver_id != answer["approver"]:
        return ApprovalRefused("not_approver", f"`{answer['approver']}` is not the person that the directory returned")
    if approver.approver_id in question["barred"]:
        return ApprovalRefused(
            "self_approval",
            f"`{approver.approver_id}` is the requester, owns the agent or published the pack; ask somebody else",
        )
    if role not in approver.roles:
        return ApprovalRefused("not_approver", f"`{approver.approver_id}` does not hold the role `{role}`")
    bad_grant = grant_fault(approver, role)
    if bad_grant:
        return bad_grant
    if approver.granted_by[role] in question["barred"]:
        detail = f"`{approver.approver_id}` has the role `{role}` from somebody who cannot approve this call"
        return ApprovalRefused("self_granted", detail)
    assertion = SignerAssertion.model_validate(answer["assertion"])
    if assertion.token is None:
        return None
    keys = {key.kid: bytes.fromhex(key.public_key) for key in approver.keys}
    signed = verify_compact(assertion.token, keys, APPROVAL_TYP)
    if signed != approval_statement(question, approver.approver_id, answer["verdict"], answer["reason"]):
        detail = "the approver's key did not sign this answer to this question"
        return ApprovalRefused("assertion_invalid", detail)
    return None
