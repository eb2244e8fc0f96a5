"""Checks stored memories and proposals: only those that the journal proves are believed.

A promoted memory counts only if a sealed act of a reviewer in the stream `control` states exactly it, and no act
superseded it. A proposal counts only if a signed entry of the run that it names states it.
Source: docs/design/journal.md, "Rows that the journal proves".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.memories import CANDIDATES, PROMOTED, REJECTED, promoted_key, review_key
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.memory import MemoryProposal, MemoryReview, PromotedMemory, ReviewedProposal
from contextos.contracts.journal import CONTROL, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.contracts.refs import memory_ref
from contextos.errors import ChainBroken, Integrity, InvalidInput, Unavailable
from contextos.trust.approvals.acts import read_act
from contextos.trust.journal.signed_heads import read_proved
from contextos.trust.pages import stream_pages

MAX_READS: Final = 8


@dataclass(frozen=True, slots=True)
class Reviews:
    """The reviews that sealed acts of reviewers state, by the id of the proposal."""

    by_proposal: dict[str, MemoryReview]

    @classmethod
    def read(cls, control: Iterable[Entry], keys: Keys) -> Reviews:
        """Read the acts `memory.reviewed` in these entries. Raises `ChainBroken` for an act that is not sealed."""
        reviews: dict[str, MemoryReview] = {}
        for entry in control:
            if entry.kind != "memory.reviewed":
                continue
            try:
                review = parse(MemoryReview, dict(read_act(entry, keys).act.arguments))
            except InvalidInput as error:
                raise ChainBroken(CONTROL, entry.seq, f"is not a review of a memory: {error}") from None
            reviews[review.proposal_id] = review
        return cls(reviews)

    def superseded(self) -> set[str | None]:
        """Return the references of the memories that a reviewer replaced by another."""
        return {review.supersedes for review in self.by_proposal.values()}

    def promoted(self) -> set[str]:
        """Return the ids of the proposals that a reviewer promoted."""
        return {key for key, review in self.by_proposal.items() if review.verdict == "promote"}

    def fault(self, stored: StoredDocument[PromotedMemory]) -> str | None:
        """Return why this stored memory is not believed, or None. Does not check whether it was superseded."""
        memory, proposal = stored.body, stored.body.proposal
        if stored.key != promoted_key(proposal.candidate.entity_ceid, proposal.candidate.predicate):
            return "is stored under another subject or predicate than it states"
        review = self.by_proposal.get(proposal.proposal_id)
        is_stated = review is not None and (review.verdict, review.proposal_digest) == ("promote", _digest(proposal))
        return None if is_stated and review == memory.review else "is not what a sealed act of a reviewer promoted"


async def reviewed_memories(
    store: Store, keys: Keys, memories: Sequence[StoredDocument[PromotedMemory]]
) -> tuple[StoredDocument[PromotedMemory], ...]:
    """Return these memories, each as a sealed act of a reviewer left it. A memory that was superseded since it was
    read is read again.

    Raises:
        Integrity: a memory was made up, altered, moved or brought back; names it.
        ChainBroken: an act about one of these memories is not sealed.
        Unavailable: they changed during each of `MAX_READS` reads.
    """
    by_key = {memory.key: memory for memory in memories}
    for _ in range(MAX_READS if by_key else 0):
        review_keys = {_review_key(memory.body.proposal) for memory in by_key.values()}
        reviews = Reviews.read(await store.lines(CONTROL, *sorted(review_keys)), keys)
        superseded = reviews.superseded()
        changed = False
        for key, memory in list(by_key.items()):
            fault = reviews.fault(memory)
            if fault is None and memory_ref(memory.body.proposal.proposal_id) in superseded:
                fault = "was superseded"
            if fault is None:
                continue
            reread = await PROMOTED.one(store, key)
            if reread is None or reread == memory:
                detail = f"the memory `{memory.body.proposal.proposal_id}` {fault}; it is not evidence: "
                raise Integrity(detail + "find out who wrote it")
            by_key[key], changed = reread, True
        if not changed:
            break
    else:
        if by_key:
            raise Unavailable("store", "memories are written faster than they can be read")
    return tuple(by_key.values())


async def require_proposed(
    store: Store, tenant_id: str, keys: Keys, stored: StoredDocument[ReviewedProposal]
) -> Sequence[Entry]:
    """Check that a stored proposal is what its run proposed, and that no review of it was taken back; return the
    signed entries of the run.

    Raises:
        Integrity: the proposal was made up, altered or made reviewable again; or the promoted memory of the same entity
            and predicate is not what a reviewer promoted.
        ChainBroken: the run or an act does not verify.
    """
    proposal, expected = stored.body.proposal, canonical(stored.body.proposal.to_json())
    entries = await read_proved(store, tenant_id, proposal.run_id, keys)
    bodies = [read_body(entry) for entry in entries if entry.kind == "memory.proposed"]
    proposed = [canonical(item) for body in bodies if body is not None for item in body["proposals"]]
    label = f"the proposal `{proposal.proposal_id}`"
    if stored.key != proposal.proposal_id or expected not in proposed:
        remedy = "it cannot be reviewed: find out who wrote it"
        raise Integrity(f"{label} is not what a signed entry of `{proposal.run_id}` proposes; {remedy}")
    reviews = Reviews.read(await store.lines(CONTROL, _review_key(proposal)), keys)
    if stored.body.review is None and proposal.proposal_id in reviews.by_proposal:
        reread = await CANDIDATES.one(store, stored.key)
        if reread is None or reread.body.review is None:
            raise Integrity(f"{label} was reviewed, and is stored as one that was not; find out who wrote it")
    current = await PROMOTED.one(store, promoted_key(proposal.candidate.entity_ceid, proposal.candidate.predicate))
    await reviewed_memories(store, keys, [current] if current else [])
    return entries


async def verify_memories(store: Store, upto: int, keys: Keys) -> int:
    """Check that every promoted memory and every rejection is as the acts left it, and that none is gone; return the
    number of memories.

    `upto` is the number of entries that `control` had before the call. Acts that are added meanwhile prove
    what is stored, but what they add need not be stored yet.

    Raises:
        ChainBroken: an act is not sealed, or a memory or a rejection is missing, surplus or altered; names it.
    """
    rejected = list[StoredDocument[MemoryReview]]()
    while rows := await REJECTED.page(store, after=rejected[-1].key if rejected else ""):
        rejected += rows
    memories = list[StoredDocument[PromotedMemory]]()
    while page := await PROMOTED.page(store, after=memories[-1].key if memories else ""):
        memories += page
    before = Reviews({})
    async for entries in stream_pages(store, CONTROL, upto=upto):
        before.by_proposal.update(Reviews.read(entries, keys).by_proposal)
    added = Reviews.read(await store.read(CONTROL, after=upto), keys)
    after = Reviews(before.by_proposal | added.by_proposal)
    gone_before, gone_after = before.superseded(), after.superseded()
    for memory in memories:
        proposal_id = memory.body.proposal.proposal_id
        if fault := after.fault(memory):
            raise ChainBroken(CONTROL, upto, f"is the last, and the memory `{proposal_id}` {fault}")
        if memory_ref(proposal_id) in gone_before:
            raise ChainBroken(CONTROL, upto, f"is the last, and the memory `{proposal_id}` was superseded")
    stored_ids = {memory.body.proposal.proposal_id for memory in memories}
    missing = {key for key in before.promoted() - stored_ids if memory_ref(key) not in gone_after}
    if missing:
        raise ChainBroken(CONTROL, upto, f"is the last, and the memory `{min(missing)}` is gone")
    if fault := _rejection_fault(rejected, before, after):
        raise ChainBroken(CONTROL, upto, f"is the last, and {fault}")
    return len(memories)


def _rejection_fault(rejected: Sequence[StoredDocument[MemoryReview]], before: Reviews, after: Reviews) -> str | None:
    """Return why the stored rejections differ from the acts, or None. A row's key is the digest of its statement."""
    for row in rejected:
        acted = after.by_proposal.get(row.body.proposal_id)
        if acted != row.body or (row.body.verdict, row.body.fact_digest) != ("reject", row.key):
            return f"no sealed act of a reviewer states the rejection `{row.key[:80]}`"
    expected = {review.fact_digest for review in before.by_proposal.values() if review.verdict == "reject"}
    missing = expected - {row.key for row in rejected}
    return f"the rejection `{min(missing)}` is gone" if missing else None


def _review_key(proposal: MemoryProposal) -> str:
    return review_key(proposal.candidate.entity_ceid, proposal.candidate.predicate)


def _digest(proposal: MemoryProposal) -> str:
    return content_address(proposal.to_json())
