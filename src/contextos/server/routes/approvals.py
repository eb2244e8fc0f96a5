"""Approvals: the questions that wait for people, the statement that an answer signs, and the answer.

A bearer token shows a question and records nothing. An answer counts by the signature of the person's own key, by one
of their passkeys, or by a login for exactly this answer; `service.approvals` checks each of them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from pydantic import Field, Strict

from contextos.contracts.encoding.codec import loads
from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS
from contextos.contracts.model import ListOnly, Model, OpenObject
from contextos.errors import ApprovalRefused, InvalidEnvelope, Problem
from contextos.server.access import RolesHere, RunName, askable_question, reads_every_run
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.server.rates import ListsHere
from contextos.server.shared.pages import Cursor, Limit
from contextos.service.operations.operation import ActReason, ActToken
from contextos.service.views import AnswerReceipt, QuestionDocument, QuestionPage, StatementDocument, UnverifiedDocument
from contextos.trust.identity.jws import unverified_payload

approval_routes: Final = APIRouter(tags=["approvals"])


class AnswerDraft(Model):
    """The answer that a person is about to sign."""

    verdict: Literal["approved", "denied"]
    reason: ActReason = ""


class SignedAnswer(AnswerDraft):
    """An answer with exactly one proof.

    `tokens` has a compact JWS by the person's key over the statement. `passkey` is what the browser returned for the
    options in the statement (`credential.toJSON()`), and `login_token` the OIDC token of a login whose nonce is that of
    the statement.
    """

    tokens: Annotated[tuple[ActToken, ...], Strict(False), Field(max_length=1), ListOnly()] = ()
    passkey: OpenObject | None = None
    login_token: str | None = Field(default=None, max_length=MAX_TOKEN_CHARS)


DraftBody = Annotated[AnswerDraft, json_of(AnswerDraft)]
SignedBody = Annotated[SignedAnswer, json_of(SignedAnswer)]


@approval_routes.get("/approvals", response_model_exclude_unset=True)
async def get_questions(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    lists: ListsHere,
    role: Annotated[str | None, Query(max_length=512, description="Only questions to this role.")] = None,
    limit: Limit = 50,
    cursor: Cursor = "",
) -> QuestionPage:
    """List the open questions to the roles that the caller holds, newest first."""
    if role is not None and role not in roles:
        raise HttpProblem(403, "not_allowed", "you do not hold this role")
    with lists.place(caller.tenant_id):
        page = await app.approvals.waiting(caller.tenant_id, role=role, roles=roles, limit=limit, cursor=cursor)
    return QuestionPage(
        items=[QuestionDocument.of_content(question.content, question.void) for question in page.items],
        cursor=page.cursor,
        unverified=[
            UnverifiedDocument(run_id=run.run_id, fault=run.fault) for run in page.unverified if reads_every_run(roles)
        ],
    )


@approval_routes.get("/approvals/{run}", response_model_exclude_unset=True)
async def get_question(app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName) -> QuestionDocument:
    """Read the question on which a run waits."""
    question = await askable_question(app, caller, roles, name)
    return QuestionDocument.of_content(question.content, question.void)


@approval_routes.post(
    "/approvals/{run}/statement", response_model_exclude_unset=True, openapi_extra=body_of(AnswerDraft)
)
async def post_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, draft: DraftBody
) -> StatementDocument:
    """Return what the caller signs to give an answer. Nothing is recorded."""
    question = await askable_question(app, caller, roles, name)
    approval = question.statement(caller.subject, draft.verdict, draft.reason)
    approver = await app.deployment.ports.directory.approver(caller.tenant_id, caller.subject)
    statement = loads(approval.payload)
    assert isinstance(statement, dict), "a statement is an object"
    kids = [key.kid for key in approver.keys] if approver else []
    passkeys = {}
    for origin in sorted({passkey.origin for passkey in approver.passkeys} if approver else ()):
        # An origin with passkeys of several relying parties is left out: no page can ask for them at once.
        with suppress(ApprovalRefused):
            passkeys[origin] = await question.passkey_options(approval, origin=origin)
    return StatementDocument.of_statement(approval, statement, kids, passkeys)


@approval_routes.post("/approvals/{run}/answer", response_model_exclude_unset=True, openapi_extra=body_of(SignedAnswer))
async def post_answer(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, signed: SignedBody
) -> AnswerReceipt:
    """Record the caller's answer, with its proof."""
    question = await askable_question(app, caller, roles, name, answering=True)
    proofs = [proof for proof in (*signed.tokens, signed.passkey, signed.login_token) if proof is not None]
    if len(proofs) != 1:
        remedy = "send `tokens` with one token, or `passkey`, or `login_token`"
        raise InvalidEnvelope(Problem("", "no_proof", "the answer has not exactly one proof", remedy))
    if signed.tokens:
        await question.answer(_check_token(signed, caller.subject))
    else:
        statement = question.statement(caller.subject, signed.verdict, signed.reason)
        if signed.passkey is not None:
            await question.answer_with_passkey(signed.passkey, statement)
        else:
            assert signed.login_token is not None, "it is the last proof"
            await question.answer_with_login(signed.login_token, statement)
    app.engine.submit(caller.tenant_id, question.run_id)
    return AnswerReceipt(
        run_id=question.run_id, approval_id=question.approval_id, binding_digest=question.binding_digest
    )


def _check_token(signed: SignedAnswer, person: str) -> str:
    """Return the unverified token of an answer. Raises `ApprovalRefused` if it states another answer or person."""
    [token] = signed.tokens
    payload = unverified_payload(token)
    if payload is not None and payload.get("approver", person) != person:
        raise ApprovalRefused("other_person", "the answer is signed for another person than the token is of")
    if payload is not None and (payload.get("verdict"), payload.get("reason")) != (signed.verdict, signed.reason):
        detail = "the token signs another answer than was sent; ask for the statement of this one"
        raise ApprovalRefused("assertion_invalid", detail)
    return token
