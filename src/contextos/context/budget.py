"""Token budgets: what each bucket may hold, and which blocks it keeps.

Buckets are independent: unused tokens of one are not lent to another. Where their sum is above `total_tokens`, all
shrink in proportion, so that the whole holds whichever buckets are full. Within a bucket required blocks come first;
then a larger `priority`, ties by `block_id`. First fit: a block that does not fit is dropped whole, never cut, and a
smaller one after it may still fit.
Source: shared/design/contracts.md, "Compile"; API Contracts, "Compiled output".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from contextos.contracts.envelopes.run import BUCKETS, Bucket, RunBudget
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import MAX_TEXT_CHARS

RANK: Final[dict[str, int]] = {bucket: rank for rank, bucket in enumerate(BUCKETS)}


class Piece(NamedTuple):
    """What packing knows of a block; `place` finds the block again. A `required` one is never dropped."""

    bucket: Bucket
    block_id: str
    priority: int
    tokens: int
    chars: int
    required: bool
    place: int


class Packing(NamedTuple):
    """What was kept and what was dropped, both by bucket, priority descending and `block_id`."""

    kept: tuple[Piece, ...]
    dropped: tuple[Piece, ...]
    used: dict[Bucket, int]


def allocate(budget: RunBudget) -> dict[Bucket, int]:
    """Tokens per bucket: as given, or shrunk in proportion (rounded down) to fit `total_tokens`."""
    given: dict[Bucket, int] = {bucket: getattr(budget.bucket_tokens, bucket) for bucket in BUCKETS}
    asked = sum(given.values())
    if asked <= budget.total_tokens:
        return given
    return {bucket: tokens * budget.total_tokens // asked for bucket, tokens in given.items()}


def pack(pieces: Sequence[Piece], allocated: Mapping[Bucket, int], reserved: Mapping[Bucket, int]) -> Packing | Failure:
    """Fill every bucket to its allocation; `reserved` tokens are taken in each before any block.

    Refuses (`budget_exhausted`) to start a run whose required blocks do not fit, rather than drop one of them.
    """
    used = {bucket: reserved.get(bucket, 0) for bucket in BUCKETS}
    for piece in pieces:
        if piece.required:
            used[piece.bucket] += piece.tokens
            if piece.chars > MAX_TEXT_CHARS:
                return _exhausted(f"required block `{piece.block_id}` is longer than {MAX_TEXT_CHARS} characters")
    for bucket in BUCKETS:
        if used[bucket] > allocated[bucket]:
            need = f"the required blocks of bucket `{bucket}` need {used[bucket]} tokens and it has {allocated[bucket]}"
            return _exhausted(f"{need}; raise the run budget or require less")
    kept, dropped = [], []
    for piece in sorted(pieces, key=_order):
        fits = used[piece.bucket] + piece.tokens <= allocated[piece.bucket] and piece.chars <= MAX_TEXT_CHARS
        if piece.required:
            kept.append(piece)
        elif fits:
            used[piece.bucket] += piece.tokens
            kept.append(piece)
        else:
            dropped.append(piece)
    return Packing(tuple(kept), tuple(dropped), used)


def budget_report(allocated: Mapping[Bucket, int], packing: Packing) -> dict[str, Any]:
    """`BudgetReport` in its wire form. Buckets that dropped nothing are absent from the truncation lists."""
    dropped: dict[Bucket, list[str]] = {}
    for piece in packing.dropped:
        dropped.setdefault(piece.bucket, []).append(piece.block_id)
    return {
        "tokens_allocated": dict(allocated),
        "tokens_used_at_compile": sum(packing.used.values()),
        "tokens_used_by_bucket": packing.used,
        "bucket_truncations": dict.fromkeys(dropped, True),
        "dropped_block_ids": dropped,
        "warnings": [_warning(bucket, len(ids)) for bucket, ids in dropped.items()],
    }


def omissions(packing: Packing) -> list[dict[str, Any]]:
    """`Omission`s in their wire form."""
    return [
        {
            "block_id": piece.block_id,
            "bucket": piece.bucket,
            "reason": "over_budget",
            "estimated_tokens": piece.tokens,
            "priority": piece.priority,
        }
        for piece in packing.dropped
    ]


def _order(piece: Piece) -> tuple[int, int, str]:
    return RANK[piece.bucket], -piece.priority, piece.block_id


def _warning(bucket: str, count: int) -> str:
    return f"{bucket} bucket exceeded budget; dropped {count} low-priority block{'s' if count > 1 else ''}"


def _exhausted(detail: str) -> Failure:
    return Failure(code="budget_exhausted", detail=detail)
