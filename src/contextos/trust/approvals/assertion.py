"""An approver's answer, asserted by the approver's own key, and every reason why an answer does not count.

The assertion is a compact JWS (alg `Ed25519`) over the digests of the action, the evidence and what was shown.
`unsafe_local` is a development stand-in without a key; it counts only where settings allow it and every record says so.
Source: shared/design/contracts.md, "Approval modes"; standards.md, A8 and B4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.envelopes.identity import Approver
from contextos.errors import ApprovalRefused
from contextos.trust.identity.jws import sign_compact, verify_compact

OPERATOR_ROLE: Final = "operator"
"""The role of who settles uncertain effects and stops runs of others. It answers no gate by itself."""


def approval_statement(asked: Mapping[str, Any], approver_id: str, verdict: str, reason: str) -> dict[str, Any]:
    """What the approver's key signs: nothing of it can be moved to another question, person or verdict."""
    return {
        "approval_id": asked["approval_id"],
        "approver": approver_id,
        "binding_digest": asked["binding_digest"],
        "evidence_snapshot_hash": asked["evidence_snapshot_hash"],
        "shown_digest": asked["shown_digest"],
        "verdict": verdict,
        "reason": reason,
    }


def sign_approval(private_key: bytes, kid: str, said: Mapping[str, Any]) -> str:
    """The compact JWS by an approver's raw Ed25519 private key."""
    return sign_compact(private_key, kid, "contextos-approval+jws", said)


def grant_fault(approver: Approver, role: str) -> ApprovalRefused | None:
    """Why nobody else stands behind a role that somebody holds, or None. A grant without a grantor is nobody's."""
    grantor = approver.granted_by.get(role)
    if not grantor:
        return ApprovalRefused(
            "not_granted", f"nobody is named who granted the role `{role}` to `{approver.approver_id}`"
        )
    if grantor == approver.approver_id:
        return ApprovalRefused("self_granted", f"`{approver.approver_id}` granted the role `{role}` to themselves")
    return None


def approval_fault(approver: Approver, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> ApprovalRefused | None:
    """Why this answer does not count, or None. Checked when it is given, and again when it is redeemed.

    `answer` has `approver`, `verdict`, `reason`, `assertion` {`kind`, `token`?}. Whether `unsafe_local` is allowed was
    decided, and recorded, when the question was answered.
    """
    role = asked["required_role"]
    if approver.approver_id != answer["approver"]:
        return ApprovalRefused("not_approver", f"`{answer['approver']}` is not who the directory knows")
    if approver.approver_id in asked["barred"]:
        return ApprovalRefused(
            "self_approval", f"`{approver.approver_id}` asked, owns the agent or published the pack; ask somebody else"
        )
    if role not in approver.roles:
        return ApprovalRefused("not_approver", f"`{approver.approver_id}` does not hold the role `{role}`")
    misgrant = grant_fault(approver, role)
    if misgrant:
        return misgrant
    if approver.granted_by[role] in asked["barred"]:
        return ApprovalRefused("self_granted", f"who asks granted the role `{role}` to `{approver.approver_id}`")
    assertion = answer["assertion"]
    if assertion["kind"] == "unsafe_local":
        return None
    if assertion["kind"] != "jws":
        return ApprovalRefused("assertion_invalid", f"assertion `{assertion['kind']}` is not supported; use `jws`")
    keys = {key.kid: bytes.fromhex(key.public_key) for key in approver.keys}
    said = verify_compact(assertion["token"], keys, "contextos-approval+jws")
    if said != approval_statement(asked, approver.approver_id, answer["verdict"], answer["reason"]):
        return ApprovalRefused("assertion_invalid", "the assertion is not by the approver's key over this question")
    return None
