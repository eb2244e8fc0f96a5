"""Documents about memory: proposals, promoted memories and rejections by a reviewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from contextos.contracts.documents.collection import Collection
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.memory import MemoryReview, PromotedMemory, ReviewedProposal
from contextos.contracts.model import Model

MAX_PROPOSAL_BYTES: Final = 8 << 20

ModelT = TypeVar("ModelT", bound=Model)


def subject_prefix(entity_ceid: str) -> str:
    """Return the prefix of the keys of all promoted memories about one entity.
    `entity_ceid` is the entity's id (`type:id`), which contains no `|`.
    """
    return f"{entity_ceid}|"


def promoted_key(entity_ceid: str, predicate: str) -> str:
    """Return the key of a promoted memory, `<ceid>|<digest of the predicate>`: recall reads one range per subject."""
    return subject_prefix(entity_ceid) + content_address(predicate)[7:39]


def review_key(entity_ceid: str, predicate: str) -> str:
    """Return the key of each act `memory.reviewed` about one entity and predicate, which the key does not reveal."""
    return content_address(promoted_key(entity_ceid, predicate))


def _encode(model: Model) -> bytes:
    return canonical(model.to_json())


def _decoder(model: type[ModelT]) -> Callable[[bytes], ModelT]:
    def decode(raw: bytes) -> ModelT:
        return parse(model, raw, max_bytes=MAX_PROPOSAL_BYTES)

    return decode


CANDIDATES: Final[Collection[ReviewedProposal]] = Collection("memory_candidates", _encode, _decoder(ReviewedProposal))
"""By proposal id."""

PROMOTED: Final[Collection[PromotedMemory]] = Collection("memory_promoted", _encode, _decoder(PromotedMemory))
"""By `promoted_key`."""

REJECTED: Final[Collection[MemoryReview]] = Collection("memory_rejected", _encode, _decoder(MemoryReview))
"""By the digest of the rejected statement."""
