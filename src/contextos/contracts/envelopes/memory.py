"""Memory: what a run proposes to remember, what became of it, and what was promoted.

Source: contextos-facts.md, section 14; How It Works, step 7.
"""

from __future__ import annotations

from typing import Any, Literal

from contextos.contracts.envelopes.evidence import Classification, IntegrityLevel
from contextos.contracts.ids import Ceid, Digest, ProposalId, RunId
from contextos.contracts.model import Count, Model, Name, NonEmpty, Positive, Seq, Share, Text
from contextos.contracts.refs import EvidenceRef

WriteClass = Literal["evidence_link", "preference", "decision_outcome", "correction"]
Tier = Literal["working", "episodic", "semantic", "durable"]
ConsentCheck = Literal["passed", "not_required", "missing"]
Contradiction = Literal["no_conflict", "duplicate", "conflict"]
ReviewVerdict = Literal["promote", "reject"]
RefusalReason = Literal["already_reviewed", "consent_missing", "contradiction", "rejected_before"]


class MemoryCandidate(Model):
    """One statement that is worth remembering, and what it rests on. `confidence` lies within 0 and 1."""

    entity_ceid: Ceid
    predicate: Name
    value: Any
    evidence_refs: NonEmpty[EvidenceRef]
    confidence: Share


class ContradictionCheck(Model):
    """The promoted memories (`memory:` refs) of the same entity and predicate, and how the candidate stands to them."""

    existing: Seq[EvidenceRef] = ()
    verdict: Contradiction


class MemoryProposal(Model):
    """A candidate as a run puts it up for review. `proposed_at_us` is Unix time in microseconds.

    `auto_promote_eligible` is false: only a person promotes.
    """

    proposal_id: ProposalId
    run_id: RunId
    candidate: MemoryCandidate
    write_class: WriteClass
    tier_target: Tier
    classification: Classification
    consent_check: ConsentCheck
    contradiction_check: ContradictionCheck
    auto_promote_eligible: Literal[False]
    ttl_s: Positive | None
    proposed_at_us: Count


class MemoryReview(Model):
    """What a reviewer made of a proposal. `supersedes` names the promoted memory that it replaced."""

    proposal_id: ProposalId
    verdict: ReviewVerdict
    reviewer: Name
    reason: Text
    at_us: Count
    integrity: IntegrityLevel
    fact_digest: Digest
    supersedes: EvidenceRef | None = None


class ReviewedProposal(Model):
    """A document of `memory_candidates`: the proposal, and its review once there is one."""

    proposal: MemoryProposal
    review: MemoryReview | None


class PromotedMemory(Model):
    """A document of `memory_promoted`. It is not recalled from `expires_at_us` on; without one it stays."""

    proposal: MemoryProposal
    review: MemoryReview
    expires_at_us: Count | None


class ReviewRefused(Model):
    """Why a review changes nothing. `existing` names the promoted memory that stands in the way."""

    reason: RefusalReason
    detail: Text
    existing: Seq[EvidenceRef] = ()
