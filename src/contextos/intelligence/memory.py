"""Propose, review and recall memories: a run proposes, a person reviews, and only promoted memory is recalled.

The store has three collections. `memory_candidates` holds every proposal and its review, by proposal id.
`memory_promoted` holds one memory per entity and predicate; recall reads one key range per subject. `memory_rejected`
holds each rejected statement by its digest, so that it is not queued again. Documents are never deleted: a superseded
memory stays available through its proposal and its review.

A reviewer confirms that a statement is worth remembering, not that it is true: recalled items are `untrusted` unless
the review states `trusted`. Either way they are data for the prompt and have no name, so they satisfy no requirement.
Source: docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.collection import StoredDocument, find_documents
from contextos.contracts.documents.memories import (
    CANDIDATES,
    PROMOTED,
    REJECTED,
    promoted_key,
    review_key,
    subject_prefix,
)
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.evidence import Classification, EvidenceItem, IntegrityLevel, fact_digest
from contextos.contracts.envelopes.memory import (
    ContradictionCheck,
    MemoryCandidate,
    MemoryProposal,
    MemoryReview,
    PromotedMemory,
    ReviewedProposal,
    ReviewRefused,
    ReviewVerdict,
)
from contextos.contracts.envelopes.pack import MemoryLayer
from contextos.contracts.envelopes.plan import MemoryTemplate
from contextos.contracts.ids import CEID, PROPOSAL, derive
from contextos.contracts.journal import Write
from contextos.contracts.ports.storage import Store
from contextos.contracts.refs import memory_ref
from contextos.errors import NotFound

MAX_MEMORIES_PER_SUBJECT: Final = 1000
QUEUE_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class BoundMemory:
    """A statement that a run proposes to remember, with all values filled in. `confidence` is between 0 and 1."""

    template: MemoryTemplate
    entity_ceid: str
    value: JsonValue
    evidence_refs: tuple[str, ...]
    confidence: float | int


StoredMemories = Sequence[StoredDocument[PromotedMemory]]


class StoreMemory:
    """The port `Memory` over one tenant's store. The time is used only to leave out expired memories."""

    def __init__(
        self, store: Store, now_us: Callable[[], int], reviewed: Callable[[StoredMemories], Awaitable[StoredMemories]]
    ) -> None:
        """`reviewed` takes memories from the store and returns them in the form that reviewers promoted.

        It raises `Integrity` for a memory that no reviewer promoted. `now_us` returns Unix time in microseconds.
        """
        self._store, self._now_us, self._reviewed = store, now_us, reviewed

    async def recall(self, subject_ids: Sequence[str], *, limit: int) -> tuple[EvidenceItem, ...]:
        """Return at most `limit` accepted memories about these subjects, in the order of the subjects, then by key.

        Raises `Integrity` if a memory differs from what a reviewer promoted.
        """
        now_us, memories = self._now_us(), list[StoredDocument[PromotedMemory]]()
        prefixes = [subject_prefix(subject) for subject in dict.fromkeys(subject_ids)]
        pages = [(*PROMOTED.place(prefix), MAX_MEMORIES_PER_SUBJECT) for prefix in prefixes]
        stored = await find_documents(self._store, prefixes=pages)
        for prefix in prefixes:
            documents = stored.below(PROMOTED, prefix)
            memories += [row for row in documents if row.body.expires_at_us is None or now_us < row.body.expires_at_us]
        return tuple(_evidence_item(row.body) for row in await self._reviewed(memories[: max(limit, 0)]))


def propose_memories(
    bound: Sequence[BoundMemory],
    *,
    run_id: str,
    layer: MemoryLayer,
    recalled: Sequence[EvidenceItem],
    classification: Classification,
    consent_given: bool,
    at_us: int,
) -> tuple[MemoryProposal, ...]:
    """Build the memory proposals of a finished run. Their ids are derived from the run id.

    A statement is left out if the pack does not allow its `write_class`, if it has no evidence, or if its entity id is
    not valid. `recalled` are the accepted memories that the run read; a proposal lists those about its entity and
    predicate. The review compares again, with the memories accepted at that time. If the layer requires consent and
    `consent_given` is false, the proposal is marked as lacking consent and cannot be accepted.
    """
    return tuple(
        _build_proposal(ordinal, memory, run_id, layer, recalled, classification, consent_given, at_us)
        for ordinal, memory in enumerate(bound)
        if memory.template.write_class in layer.write_classes and memory.evidence_refs and CEID.fits(memory.entity_ceid)
    )


def candidate_writes(proposals: Sequence[MemoryProposal]) -> tuple[Write, ...]:
    """Return the writes that store these proposals in the run's last commit. Proposals without consent are left out."""
    return tuple(
        CANDIDATES.write(proposal.proposal_id, 0, ReviewedProposal(proposal=proposal, review=None))
        for proposal in proposals
        if proposal.consent_check != "missing"
    )


async def list_candidates(store: Store, *, after: str = "", limit: int = 100) -> tuple[MemoryProposal, ...]:
    """Return at most `limit` memory proposals that wait for a review, ordered by id, after the id `after`.

    A proposal is left out if an earlier one makes the same statement, or if the statement was rejected or is accepted.
    """
    waiting: dict[str, MemoryProposal] = {}
    while len(waiting) < limit and (page := await CANDIDATES.page(store, after=after, limit=QUEUE_PAGE)):
        for document in page:
            candidate, after = document.body, document.key
            if candidate.review is None and len(waiting) < limit and not await _is_decided(store, candidate.proposal):
                waiting.setdefault(_digest_of(candidate.proposal), candidate.proposal)
    return tuple(waiting.values())


async def stored_candidate(store: Store, proposal_id: str) -> StoredDocument[ReviewedProposal]:
    """Return a proposal as it is stored, with its review if it has one.

    Raises:
        NotFound: there is no such proposal in this tenant.
    """
    candidate = await CANDIDATES.one(store, proposal_id) if PROPOSAL.fits(proposal_id) else None
    if candidate is None:
        raise NotFound(f"there is no memory proposal `{proposal_id}`; list the waiting proposals")
    return candidate


async def review_proposal(
    store: Store,
    proposal_id: str,
    verdict: ReviewVerdict,
    *,
    reviewer: str,
    at_us: int,
    reason: str = "",
    integrity: IntegrityLevel = "untrusted",
    supersede: bool = False,
) -> ProposedAct | ReviewRefused:
    """Return the act for a reviewer's verdict on a memory proposal, with its writes. Nothing is written here.

    The caller checks that the reviewer is allowed to review. Refuses a second review, and an acceptance without
    consent. Unless `supersede` is set, also refuses an acceptance that contradicts an accepted memory of the same
    entity and predicate, or that repeats a rejected statement. The writes include the version of every document that
    was read, so a concurrent change is a `Conflict` at commit.

    Raises:
        NotFound: there is no such proposal in this tenant.
    """
    candidate = await stored_candidate(store, proposal_id)
    stored = candidate.body
    promoted = await PROMOTED.one(store, _promoted_key(stored.proposal))
    rejected = await REJECTED.one(store, _digest_of(stored.proposal))
    current = promoted.body if promoted else None
    if refusal := _refusal(stored, verdict, current, rejected is not None, supersede):
        return refusal
    replaced = current.proposal.proposal_id if current and verdict == "promote" else None
    review = MemoryReview(
        proposal_id=proposal_id,
        verdict=verdict,
        reviewer=reviewer,
        reason=reason,
        at_us=at_us,
        integrity=integrity,
        fact_digest=_digest_of(stored.proposal),
        proposal_digest=content_address(stored.proposal.to_json()),
        supersedes=memory_ref(replaced) if replaced else None,
    )
    writes = (
        CANDIDATES.write(proposal_id, candidate.version, ReviewedProposal(proposal=stored.proposal, review=review)),
        *_verdict_writes(stored.proposal, review, _stored_version(promoted), _stored_version(rejected)),
    )
    target = review_key(stored.proposal.candidate.entity_ceid, stored.proposal.candidate.predicate)
    return ProposedAct("memory.reviewed", target, review.to_json(), candidate.version, writes)


def _refusal(
    stored: ReviewedProposal, verdict: ReviewVerdict, current: PromotedMemory | None, rejected: bool, supersede: bool
) -> ReviewRefused | None:
    if stored.review is not None:
        return ReviewRefused(
            reason="already_reviewed", detail=f"`{stored.review.reviewer}` reviewed it already; propose it again"
        )
    if verdict == "reject":
        return None
    if stored.proposal.consent_check == "missing":
        return ReviewRefused(reason="consent_missing", detail="consent is missing; obtain it and propose again")
    if supersede:
        return None
    if current and _digest_of(current.proposal) != _digest_of(stored.proposal):
        existing = memory_ref(current.proposal.proposal_id)
        detail = f"`{existing}` contradicts it; reject this proposal, or supersede the promoted memory"
        return ReviewRefused(reason="contradiction", detail=detail, existing=(existing,))
    if rejected:
        return ReviewRefused(
            reason="rejected_before", detail="this statement was rejected; supersede that to promote it"
        )
    return None


def _build_proposal(
    ordinal: int,
    bound: BoundMemory,
    run_id: str,
    layer: MemoryLayer,
    recalled: Sequence[EvidenceItem],
    classification: Classification,
    consent_given: bool,
    at_us: int,
) -> MemoryProposal:
    template = bound.template
    consent = "passed" if consent_given else "missing" if layer.consent_required else "not_required"
    return MemoryProposal.construct_trusted(
        {
            "proposal_id": derive("mwp_", run_id, "memory_proposal", ordinal),
            "run_id": run_id,
            "candidate": MemoryCandidate.construct_trusted(
                {
                    "entity_ceid": bound.entity_ceid,
                    "predicate": template.predicate,
                    "value": bound.value,
                    "evidence_refs": bound.evidence_refs,
                    "confidence": bound.confidence,
                }
            ),
            "write_class": template.write_class,
            "tier_target": template.tier_target,
            "classification": classification,
            "consent_check": consent,
            "contradiction_check": _contradiction_check(bound, recalled),
            "auto_promote_eligible": False,
            "ttl_s": layer.tier_ttls.get(template.tier_target),
            "proposed_at_us": at_us,
        }
    )


def _contradiction_check(bound: BoundMemory, recalled: Sequence[EvidenceItem]) -> ContradictionCheck:
    about = (bound.entity_ceid, bound.template.predicate)
    same = [item for item in recalled if (item.subject, item.predicate) == about]
    digest = fact_digest(*about, bound.value)
    verdict = "no_conflict" if not same else "duplicate" if all(fact.digest == digest for fact in same) else "conflict"
    return ContradictionCheck.construct_trusted(
        {"existing": tuple(item.evidence_ref for item in same), "verdict": verdict}
    )


async def _is_decided(store: Store, proposal: MemoryProposal) -> bool:
    if await REJECTED.one(store, _digest_of(proposal)):
        return True
    promoted = await PROMOTED.one(store, _promoted_key(proposal))
    return promoted is not None and _digest_of(promoted.body.proposal) == _digest_of(proposal)


def _evidence_item(memory: PromotedMemory) -> EvidenceItem:
    candidate = memory.proposal.candidate
    return EvidenceItem(
        evidence_ref=memory_ref(memory.proposal.proposal_id),
        name=None,
        subject=candidate.entity_ceid,
        predicate=candidate.predicate,
        value=candidate.value,
        origin="memory",
        integrity=memory.review.integrity,
        classification=memory.proposal.classification,
        observed_at_us=memory.proposal.proposed_at_us,
        digest=_digest_of(memory.proposal),
        hop=0,
    )


def _verdict_writes(
    proposal: MemoryProposal, review: MemoryReview, promoted: int, rejected: int
) -> tuple[Write, Write]:
    """Return the writes to promoted and rejected memory at these versions. One of the two only checks its version."""
    promoted_at, rejected_at = _promoted_key(proposal), _digest_of(proposal)
    if review.verdict == "reject":
        return PROMOTED.check(promoted_at, promoted), REJECTED.write(rejected_at, rejected, review)
    memory = PromotedMemory(proposal=proposal, review=review)
    return PROMOTED.write(promoted_at, promoted, memory), REJECTED.check(rejected_at, rejected)


def _digest_of(proposal: MemoryProposal) -> str:
    candidate = proposal.candidate
    return fact_digest(candidate.entity_ceid, candidate.predicate, candidate.value)


def _promoted_key(proposal: MemoryProposal) -> str:
    return promoted_key(proposal.candidate.entity_ceid, proposal.candidate.predicate)


def _stored_version(document: StoredDocument[Any] | None) -> int:
    return document.version if document else 0
