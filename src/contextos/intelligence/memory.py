"""Memory: a run proposes, a person reviews, only what was promoted is recalled.

Three collections of the store. `memory_candidates`, by proposal id, holds every proposal and its review.
`memory_promoted` holds one memory per entity and predicate, keyed so that recall reads one range per subject.
`memory_rejected`, by the statement's digest, remembers what a reviewer refused, so that it is not queued again.
A document is never deleted: what was superseded stays with its proposal and its review.

A reviewer says that something is worth remembering, not that it is true: recalled items are `untrusted` unless the
review says `trusted`. Either way they are data for the prompt, carry no name and so close no gate.
Source: contextos-facts.md, section 14; shared/design/contracts.md, "Compile".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.memories import CANDIDATES, PROMOTED, REJECTED, promoted_key, subject_prefix
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import Classification, EvidenceItem, IntegrityLevel
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
from contextos.contracts.journal import Draft, Write
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.storage import Store
from contextos.contracts.refs import memory_ref
from contextos.errors import NotFound
from contextos.intelligence.retrieval import fact_digest

REVIEWED: Final = "memory.reviewed"
"""The kind of the `control` entry that a review leaves."""

MAX_MEMORIES_PER_SUBJECT: Final = 1000
QUEUE_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class BoundMemory:
    """A memory template with its bindings resolved. `confidence` lies within 0 and 1."""

    template: MemoryTemplate
    entity_ceid: str
    value: JsonValue
    evidence_refs: tuple[str, ...]
    confidence: float | int


@dataclass(frozen=True, slots=True)
class MemoryReviewChange:
    """What a review changes: the compare-and-set writes and the entry of the `control` stream, for one commit."""

    writes: tuple[Write, ...]
    control: Draft
    review: MemoryReview


class StoreMemory:
    """The `Memory` seam over one tenant's store. The clock only tells what has expired."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def recall(self, subject_ids: Sequence[str], *, limit: int) -> tuple[EvidenceItem, ...]:
        """Promoted memory about these subjects: in their order, then by predicate key; at most `limit`."""
        now_us, found = self._clock.now_us(), list[EvidenceItem]()
        for subject in dict.fromkeys(subject_ids):
            if len(found) >= limit:
                break
            documents = await PROMOTED.page(self._store, prefix=subject_prefix(subject), limit=MAX_MEMORIES_PER_SUBJECT)
            memories = [document.body for document in documents]
            found += [_recalled(m) for m in memories if m.expires_at_us is None or now_us < m.expires_at_us]
        return tuple(found[: max(limit, 0)])


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
    """What a finished run proposes to remember; pure, with ids derived from the run.

    Leaves out a candidate whose write class the pack does not allow, one without evidence, and one about what is no
    entity. `recalled` is what the run knows of promoted memory; a review compares with the store again.
    """
    return tuple(
        _proposal(ordinal, one, run_id, layer, recalled, classification, consent_given, at_us)
        for ordinal, one in enumerate(bound)
        if one.template.write_class in layer.write_classes and one.evidence_refs and CEID.fits(one.entity_ceid)
    )


def candidate_writes(proposals: Sequence[MemoryProposal]) -> tuple[Write, ...]:
    """The documents of these proposals, for the run's final commit. One without the consent it needs is not kept."""
    return tuple(
        CANDIDATES.write(proposal.proposal_id, 0, ReviewedProposal(proposal=proposal, review=None))
        for proposal in proposals
        if proposal.consent_check != "missing"
    )


async def list_candidates(store: Store, *, after: str = "", limit: int = 100) -> tuple[MemoryProposal, ...]:
    """At most `limit` proposals that wait for a review, by id after `after`.

    Leaves out what says the same as one before it, as something that was rejected, or as what is promoted already.
    """
    waiting: dict[str, MemoryProposal] = {}
    while len(waiting) < limit and (page := await CANDIDATES.page(store, after=after, limit=QUEUE_PAGE)):
        for document in page:
            held, after = document.body, document.key
            if held.review is None and len(waiting) < limit and not await _settled(store, held.proposal):
                waiting.setdefault(_digest_of(held.proposal), held.proposal)
    return tuple(waiting.values())


async def review_proposal(
    store: Store,
    proposal_id: str,
    verdict: ReviewVerdict,
    *,
    reviewer: str,
    at_us: int,
    salt: bytes,
    reason: str = "",
    integrity: IntegrityLevel = "untrusted",
    supersede: bool = False,
) -> MemoryReviewChange | ReviewRefused:
    """What to commit for a reviewer's verdict; nothing is written here. Whether the reviewer may, the caller decides.

    Refuses a second review; a promotion without consent; and, unless `supersede` says that the reviewer means it, one
    that contradicts promoted memory of the same entity and predicate, or repeats what was rejected.
    Every document that was looked at is in the writes with its version, so a lost race is a `Conflict`.

    Raises:
        NotFound: no such proposal in this tenant.
    """
    candidate = await CANDIDATES.one(store, proposal_id) if PROPOSAL.fits(proposal_id) else None
    if candidate is None:
        raise NotFound(f"there is no memory proposal `{proposal_id}`; list those that wait")
    held = candidate.body
    promoted = await PROMOTED.one(store, _promoted_key(held.proposal))
    rejected = await REJECTED.one(store, _digest_of(held.proposal))
    standing = promoted.body if promoted else None
    if refused := _refusal(held, verdict, standing, rejected is not None, supersede):
        return refused
    replaced = standing.proposal.proposal_id if standing and verdict == "promote" else None
    made = MemoryReview(
        proposal_id=proposal_id,
        verdict=verdict,
        reviewer=reviewer,
        reason=reason,
        at_us=at_us,
        integrity=integrity,
        fact_digest=_digest_of(held.proposal),
        supersedes=memory_ref(replaced) if replaced else None,
    )
    writes = (
        CANDIDATES.write(proposal_id, candidate.version, ReviewedProposal(proposal=held.proposal, review=made)),
        *_verdict_writes(held.proposal, made, _version(promoted), _version(rejected)),
    )
    control = Draft(REVIEWED, proposal_id, at_us, reviewer, canonical(made.to_json()), salt)
    return MemoryReviewChange(writes, control, made)


def _refusal(
    held: ReviewedProposal, verdict: ReviewVerdict, standing: PromotedMemory | None, rejected: bool, supersede: bool
) -> ReviewRefused | None:
    if held.review is not None:
        return ReviewRefused(
            reason="already_reviewed", detail=f"`{held.review.reviewer}` reviewed it; propose it again"
        )
    if verdict == "reject":
        return None
    if held.proposal.consent_check == "missing":
        return ReviewRefused(reason="consent_missing", detail="consent was not given; ask for it and propose again")
    if supersede:
        return None
    if standing and _digest_of(standing.proposal) != _digest_of(held.proposal):
        existing = memory_ref(standing.proposal.proposal_id)
        detail = f"`{existing}` says otherwise; reject this one, or supersede what is promoted"
        return ReviewRefused(reason="contradiction", detail=detail, existing=(existing,))
    if rejected:
        return ReviewRefused(reason="rejected_before", detail="this was rejected before; supersede that to promote it")
    return None


def _proposal(
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
            "contradiction_check": _contradictions(bound, recalled),
            "auto_promote_eligible": False,
            "ttl_s": layer.tier_ttls.get(template.tier_target),
            "proposed_at_us": at_us,
        }
    )


def _contradictions(bound: BoundMemory, recalled: Sequence[EvidenceItem]) -> ContradictionCheck:
    about = (bound.entity_ceid, bound.template.predicate)
    same = [item for item in recalled if (item.subject, item.predicate) == about]
    digest = fact_digest(*about, bound.value)
    verdict = "no_conflict" if not same else "duplicate" if all(i.digest == digest for i in same) else "conflict"
    return ContradictionCheck.construct_trusted(
        {"existing": tuple(item.evidence_ref for item in same), "verdict": verdict}
    )


async def _settled(store: Store, proposal: MemoryProposal) -> bool:
    if await REJECTED.one(store, _digest_of(proposal)):
        return True
    promoted = await PROMOTED.one(store, _promoted_key(proposal))
    return promoted is not None and _digest_of(promoted.body.proposal) == _digest_of(proposal)


def _recalled(memory: PromotedMemory) -> EvidenceItem:
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


def _verdict_writes(proposal: MemoryProposal, made: MemoryReview, promoted: int, rejected: int) -> tuple[Write, Write]:
    """The writes to promoted and rejected memory, at these versions; the one that the verdict is not about checks."""
    promoted_at, rejected_at = _promoted_key(proposal), _digest_of(proposal)
    if made.verdict == "reject":
        return PROMOTED.check(promoted_at, promoted), REJECTED.write(rejected_at, rejected, made)
    expires = made.at_us + proposal.ttl_s * 1_000_000 if proposal.ttl_s is not None else None
    memory = PromotedMemory(proposal=proposal, review=made, expires_at_us=expires)
    return PROMOTED.write(promoted_at, promoted, memory), REJECTED.check(rejected_at, rejected)


def _digest_of(proposal: MemoryProposal) -> str:
    candidate = proposal.candidate
    return fact_digest(candidate.entity_ceid, candidate.predicate, candidate.value)


def _promoted_key(proposal: MemoryProposal) -> str:
    return promoted_key(proposal.candidate.entity_ceid, proposal.candidate.predicate)


def _version(document: StoredDocument[Any] | None) -> int:
    return document.version if document else 0
