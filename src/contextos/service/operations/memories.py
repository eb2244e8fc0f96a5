"""Memories that runs propose: list the waiting ones, and promote or reject one with the signature of a reviewer."""

from __future__ import annotations

from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.evidence import IntegrityLevel
from contextos.contracts.envelopes.memory import MemoryProposal, MemoryReview, ReviewRefused, ReviewVerdict
from contextos.contracts.model import Model
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.checks import refuse_reason
from contextos.deployment.acts.memories import review_memory
from contextos.errors import ApprovalRefused
from contextos.intelligence.memory import list_candidates
from contextos.service.acts import check_stated_at
from contextos.service.operations.operation import (
    ActReason,
    Asked,
    Named,
    Operation,
    Paged,
    StatedAt,
    opened_cursor,
    sealed_cursor,
)
from contextos.trust.approvals.acts import AUDITOR_ROLE, MEMORY_REVIEWER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE

MEMORY_READERS: Final = (MEMORY_REVIEWER_ROLE, AUDITOR_ROLE, OPERATOR_ROLE)


class ProposalPage(Model):
    """A page of the memories that wait for a review, by id. `cursor` asks for the next page; null after the last."""

    items: list[MemoryProposal]
    cursor: str | None


class ReviewDraft(Model):
    """A reviewer's verdict on a proposed memory. `trusted`: they checked that it is true. `supersede`: it replaces a
    promoted memory that contradicts it. `at_us` is the current time in Unix microseconds; it counts for 15 minutes.
    """

    verdict: ReviewVerdict
    reason: ActReason = ""
    integrity: IntegrityLevel = "untrusted"
    supersede: bool = False
    at_us: StatedAt


async def list_proposals(asked: Asked, page: Paged) -> ProposalPage:
    """List the memories that runs propose and that wait for a review."""
    list_name = (asked.tenant_id, "memories")
    store, after = asked.app.deployment.ports.stores.tenant(asked.tenant_id), opened_cursor(list_name, page.cursor)
    waiting = await list_candidates(store, after=after, limit=page.limit)
    last = waiting[-1].proposal_id if len(waiting) == page.limit else None
    return ProposalPage(items=list(waiting), cursor=sealed_cursor(list_name, last))


async def review(asked: Asked, draft: ReviewDraft) -> ActProposal[MemoryReview]:
    """Promote a memory, so that runs recall it, or reject it. The requester, the agent and its owner may not."""
    refuse_reason(draft.reason)
    check_stated_at(asked.app.deployment, draft.at_us)

    async def result(review: dict[str, Any] | ReviewRefused) -> MemoryReview:
        if isinstance(review, ReviewRefused):
            raise ApprovalRefused(review.reason, review.detail)
        return parse(MemoryReview, review)

    proposal = await review_memory.propose(
        asked.app.deployment,
        asked.tenant_id,
        asked.name,
        draft.verdict,
        by=asked.by,
        reason=draft.reason,
        integrity=draft.integrity,
        supersede=draft.supersede,
        at_us=draft.at_us,
    )
    return proposal.then(result)


MEMORY_OPERATIONS: Final = (
    Operation("memories.list", ("GET", "/memories"), MEMORY_READERS, Paged, ProposalPage, list_proposals),
    Operation(
        "memories.review",
        ("POST", "/memories/{proposal}/review"),
        (MEMORY_REVIEWER_ROLE,),
        ReviewDraft,
        MemoryReview,
        review,
        signs="promote or reject a memory",
        about=Named("proposal", "The id of a proposal."),
    ),
)
