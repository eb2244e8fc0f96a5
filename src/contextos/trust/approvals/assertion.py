"""The signature of an approver, and every reason to refuse an approver's answer.

The approver signs a compact JWS (alg `Ed25519`) over the call in clear: its binding, arguments and evidence.
`unsafe_local` is an answer without a key, for development: the settings must allow it, and the decision record names
it.
Source: docs/design/contracts.md, "Approval modes"; docs/design/standards.md, "JWS and Ed25519" and "Approvals".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from contextos.contracts.encoding.codec import problems_of
from contextos.contracts.encoding.jcs import content_address, same_json
from contextos.contracts.envelopes.identity import AnswerAssertion, Approver, LoginProof, SignerAssertion
from contextos.contracts.statements.questions import approval_statement
from contextos.errors import ApprovalRefused, SignatureInvalid
from contextos.trust.approvals.passkeys import passkey_fault
from contextos.trust.identity.jws import attached, detached, sign_compact, verify_compact
from contextos.trust.identity.oidc import TrustedIssuer, verify_oidc_token
from contextos.trust.identity.refusals import logged_refusal

APPROVAL_TYP: Final = "contextos-approval+jws"

OPERATOR_ROLE: Final = "operator"
"""The role of a person who settles uncertain effects and stops other people's runs. It does not answer any gate."""


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


def read_answer_assertion(value: Any) -> AnswerAssertion:
    """As `read_assertion`, for an answer. Also accepts the result of `login_assertion` or `passkey_assertion`. A login
    that is only stated is refused.
    """
    if isinstance(value, AnswerAssertion):
        return value
    return AnswerAssertion.model_validate(read_assertion(value).to_json())


def recorded_assertion(assertion: AnswerAssertion, statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form of a proof for the journal: a token is detached from the statement, in our spelling of it."""
    fields = assertion.to_json()
    return fields | {"token": detached(assertion.token, statement)} if assertion.token is not None else fields


def grant_fault(approver: Approver, role: str) -> ApprovalRefused | None:
    """Return why `approver` does not validly hold `role`, or None. Another person must have granted it."""
    grantor = approver.granted_by.get(role)
    if not grantor:
        return ApprovalRefused(
            "not_granted", f"the directory does not name who granted the role `{role}` to `{approver.approver_id}`"
        )
    if grantor in (approver.approver_id, *approver.user_ids):
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
    if not {approver.approver_id, *approver.user_ids}.isdisjoint(question["barred"]):
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
    assertion = AnswerAssertion.model_validate(answer["assertion"])
    statement = approval_statement(question, approver.approver_id, answer["verdict"], answer["reason"])
    if assertion.login is not None:
        return _login_fault(approver, assertion.login, statement)
    if assertion.passkey is not None:
        return passkey_fault(approver, assertion.passkey, statement)
    if assertion.token is None:
        return None
    keys = {key.kid: bytes.fromhex(key.public_key) for key in approver.keys}
    signed = verify_compact(attached(assertion.token, statement), keys, APPROVAL_TYP)
    if not same_json(signed, statement):
        detail = "the approver's key did not sign this answer to this question"
        return ApprovalRefused("assertion_invalid", detail)
    return None


def login_assertion(
    token: str,
    issuer: TrustedIssuer,
    jwks: Mapping[str, Any],
    statement: Mapping[str, Any],
    *,
    now_us: int,
    max_auth_age_s: int,
) -> AnswerAssertion:
    """Return the assertion of a person who logged in at `issuer` at most `max_auth_age_s` seconds ago for exactly this
    statement: the nonce of the token is its digest, which covers the question, the person, the verdict and the reason.

    Raises:
        ApprovalRefused: `assertion_invalid`; the token is refused, for the reason named.
    """
    nonce = content_address(dict(statement))
    try:
        with logged_refusal(token):
            verified = verify_oidc_token(token, issuer, jwks, now_us=now_us, nonce=nonce, max_auth_age_s=max_auth_age_s)
    except SignatureInvalid as error:
        raise ApprovalRefused("assertion_invalid", str(error)) from None
    assert verified.auth_time_s is not None, "a token with a recent login states its time"
    proof = LoginProof(
        issuer=verified.issuer,
        subject=verified.subject,
        auth_time_s=int(verified.auth_time_s),
        statement_digest=nonce,
        token_digest=verified.token_digest,
    )
    return AnswerAssertion(kind="oidc", login=proof)


def _login_fault(approver: Approver, login: LoginProof, statement: Mapping[str, Any]) -> ApprovalRefused | None:
    """Return why a login that the runtime verified does not prove this answer, or None.

    That the runtime verified it is proved by the signed head over the entry (`signed_heads.is_unsigned`).
    """
    if all((known.issuer, known.subject) != (login.issuer, login.subject) for known in approver.logins):
        detail = f"the directory does not know this login as one of `{approver.approver_id}`"
        return ApprovalRefused("assertion_invalid", detail)
    if login.statement_digest != content_address(dict(statement)):
        return ApprovalRefused("assertion_invalid", "the person did not log in for this answer to this question")
    return None
