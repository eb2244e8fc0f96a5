"""Memories that runs propose: list those that wait, and promote or reject one by the signature of a reviewer."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.evidence import IntegrityLevel
from contextos.contracts.envelopes.memory import MemoryProposal, MemoryReview, ReviewRefused, ReviewVerdict
from contextos.contracts.model import Model
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.checks import refuse_reason
from contextos.deployment.acts.memories import review_memory
from contextos.intelligence.memory import list_candidates
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.server.shared.forms import ActReason
from contextos.server.shared.pages import Limit, LongCursor, opened_cursor, sealed_cursor
from contextos.server.shared.signing import Signed, StatedAt, act_document, signing_actor
from contextos.service.acts import check_stated_at
from contextos.service.views import ActDocument
from contextos.trust.approvals.acts import AUDITOR_ROLE, MEMORY_REVIEWER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE
from contextos.workspace import App

memory_routes: Final = APIRouter(tags=["memories"])

MEMORY_READERS: Final = (MEMORY_REVIEWER_ROLE, AUDITOR_ROLE, OPERATOR_ROLE)

ProposalName = Annotated[str, Path(alias="proposal", max_length=200, description="The id of a proposal.")]


class ProposalPage(Model):
    """A page of the memories that wait for a review, by id. `cursor` asks for the next page; null after the last."""

    items: list[MemoryProposal]
    cursor: str | None


class ReviewDraft(Model):
    """A reviewer's verdict on a proposed memory. `trusted`: they checked that it is true. `supersede`: it replaces a
    promoted memory that contradicts it. `at_us` is now, in Unix microseconds, and counts for 15 minutes.
    """

    verdict: ReviewVerdict
    reason: ActReason = ""
    integrity: IntegrityLevel = "untrusted"
    supersede: bool = False
    at_us: StatedAt


class SignedReview(ReviewDraft, Signed):
    """A verdict, with the reviewer's proof."""


ReviewBody = Annotated[ReviewDraft, json_of(ReviewDraft)]
SignedReviewBody = Annotated[SignedReview, json_of(SignedReview)]


@memory_routes.get("/memories")
async def get_proposals(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: LongCursor = ""
) -> ProposalPage:
    """List the memories that runs propose and that wait for a review."""
    require_role(roles, *MEMORY_READERS)
    of = (caller.tenant_id, "memories")
    store, after = app.stores.tenant(caller.tenant_id), opened_cursor(of, cursor)
    waiting = await list_candidates(store, after=after, limit=limit)
    last = waiting[-1].proposal_id if len(waiting) == limit else None
    return ProposalPage(items=list(waiting), cursor=sealed_cursor(of, last))


@memory_routes.post("/memories/{proposal}/review/statement", openapi_extra=body_of(ReviewDraft))
async def post_review_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, proposal: ProposalName, sent: ReviewBody
) -> ActDocument:
    """Return what the caller signs to promote or reject a memory. Nothing is recorded."""
    require_role(roles, MEMORY_REVIEWER_ROLE)
    return await act_document(app, caller, lambda by: _review(app, caller.tenant_id, proposal, sent, by))


@memory_routes.post("/memories/{proposal}/review", openapi_extra=body_of(SignedReview))
async def post_review(
    app: AppHere, caller: CallerHere, roles: RolesHere, proposal: ProposalName, sent: SignedReviewBody
) -> MemoryReview:
    """Promote a memory, so that runs recall it, or reject it. The requester, the agent and its owner may not."""
    require_role(roles, MEMORY_REVIEWER_ROLE)
    return await _review(app, caller.tenant_id, proposal, sent, signing_actor(app, caller, sent))


async def _review(app: App, tenant_id: str, proposal: str, sent: ReviewDraft, by: Actor) -> MemoryReview:
    refuse_reason(sent.reason)
    check_stated_at(app.deployment, sent.at_us)
    done = await review_memory(
        app.deployment,
        tenant_id,
        proposal,
        sent.verdict,
        by=by,
        reason=sent.reason,
        integrity=sent.integrity,
        supersede=sent.supersede,
        at_us=sent.at_us,
    )
    if isinstance(done, ReviewRefused):
        raise HttpProblem(409, done.reason, done.detail)
    return parse(MemoryReview, done)
