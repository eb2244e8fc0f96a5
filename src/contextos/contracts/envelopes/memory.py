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
RefusalReason = Literal["already_reviewed", "consent_missing", "contradiction", "rejected_before", "policy_denied"]


class MemoryCandidate(Model):
    """One statement to remember and the evidence for it. `confidence` is from 0 to 1."""

    entity_ceid: Ceid
    predicate: Name
    value: Any
    evidence_refs: NonEmpty[EvidenceRef]
    confidence: Share


class ContradictionCheck(Model):
    """The promoted memories of the same entity and predicate (`memory:` refs), and whether they fit the candidate."""

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
    """A reviewer's verdict on a proposal: the arguments of the act `memory.reviewed`.

    `fact_digest` is the digest of the statement, `proposal_digest` that of the whole proposal as it was reviewed, and
    `supersedes` the promoted memory that it replaced.
    """

    proposal_id: ProposalId
    verdict: ReviewVerdict
    reviewer: Name
    reason: Text
    at_us: Count
    integrity: IntegrityLevel
    fact_digest: Digest
    proposal_digest: Digest
    supersedes: EvidenceRef | None = None


class ReviewedProposal(Model):
    """A proposal to remember something, and its review if a person reviewed it. Stored in `memory_candidates`."""

    proposal: MemoryProposal
    review: MemoryReview | None


class PromotedMemory(Model):
    """A memory that a reviewer accepted, so that later runs can recall it. Stored in `memory_promoted`."""

    proposal: MemoryProposal
    review: MemoryReview

    @property
    def expires_at_us(self) -> int | None:
        """Return when the memory is no longer recalled, in Unix microseconds; None if it does not expire."""
        ttl_s = self.proposal.ttl_s
        return None if ttl_s is None else self.review.at_us + ttl_s * 1_000_000


class ReviewRefused(Model):
    """Why a review had no effect. `existing` lists the accepted memories that contradict the proposal."""

    reason: RefusalReason
    detail: Text
    existing: Seq[EvidenceRef] = ()
