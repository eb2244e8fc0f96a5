"""Memory: a proposal by a run, its review by a person, and the promoted memory.

Source: How It Works, step 7.
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
    """One statement to remember, with its evidence. `confidence` is from 0 to 1."""

    entity_ceid: Ceid
    predicate: Name
    value: Any
    evidence_refs: NonEmpty[EvidenceRef]
    confidence: Share


class ContradictionCheck(Model):
    """The promoted memories of the same entity and predicate (`memory:` refs), and whether the candidate agrees."""

    existing: Seq[EvidenceRef] = ()
    verdict: Contradiction


class MemoryProposal(Model):
    """A candidate that a run proposes for review. `proposed_at_us` is Unix time in microseconds.

    `auto_promote_eligible` is always false: only a person promotes a memory. `ttl_s` is in seconds.
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
    """A reviewer's verdict on a proposal. `supersedes` is the promoted memory that it replaced."""

    proposal_id: ProposalId
    verdict: ReviewVerdict
    reviewer: Name
    reason: Text
    at_us: Count
    integrity: IntegrityLevel
    fact_digest: Digest
    supersedes: EvidenceRef | None = None


class ReviewedProposal(Model):
    """A document of `memory_candidates`: the proposal, and its review if there is one."""

    proposal: MemoryProposal
    review: MemoryReview | None


class PromotedMemory(Model):
    """A document of `memory_promoted`. It is recalled until `expires_at_us` (Unix time in microseconds), or always."""

    proposal: MemoryProposal
    review: MemoryReview
    expires_at_us: Count | None


class ReviewRefused(Model):
    """The reason why a review had no effect. `existing` names the promoted memories that contradict it."""

    reason: RefusalReason
    detail: Text
    existing: Seq[EvidenceRef] = ()
