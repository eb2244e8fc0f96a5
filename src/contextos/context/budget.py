"""Token budgets: how many tokens each bucket has, and which blocks fit.

Buckets are independent: unused tokens of one bucket are not lent to another. If the buckets add up to more than
`total_tokens`, all of them shrink in proportion. Within a bucket, blocks are taken by descending `priority`, ties by
`block_id`. The tokens of required blocks are reserved before any other block is taken. Packing is first fit: a block
that does not fit is dropped whole, never cut, and a smaller block after it can still fit.
Source: docs/design/contracts.md, "Compile"; API Contracts, "Compiled output".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from contextos.contracts.envelopes.run import BUCKETS, Bucket, RunBudget
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import MAX_TEXT_CHARS

RANK: Final[dict[str, int]] = {bucket: rank for rank, bucket in enumerate(BUCKETS)}


class Packing(NamedTuple):
    """Which blocks of the prompt are kept and which are dropped, by their places in the list of all blocks, and the
    tokens used in each bucket (part of the prompt).

    Both lists are sorted by bucket, then by descending priority, then by `block_id`.
    """

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    used: dict[Bucket, int]


def allocate(budget: RunBudget) -> dict[Bucket, int]:
    """Return the token limit of each bucket (part of the prompt), scaled down so that their sum fits `total_tokens`."""
    configured: dict[Bucket, int] = {bucket: getattr(budget.bucket_tokens, bucket) for bucket in BUCKETS}
    total = sum(configured.values())
    if total <= budget.total_tokens:
        return configured
    return {bucket: tokens * budget.total_tokens // total for bucket, tokens in configured.items()}


def pack_blocks(
    blocks: Sequence[Mapping[str, Any]],
    tokens: Sequence[int],
    required: Set[str],
    allocated: Mapping[Bucket, int],
    reserved: Mapping[Bucket, int],
) -> Packing | Failure:
    """Choose the blocks that fit the token limit of their bucket. `tokens` are those of each block, `required` has the
    ids of blocks that are never dropped, and `reserved` tokens are subtracted first.

    Returns a `budget_exhausted` failure if the required blocks do not fit.
    """
    used = {bucket: reserved.get(bucket, 0) for bucket in BUCKETS}
    for block, needed in zip(blocks, tokens, strict=True):
        if block["block_id"] in required:
            used[block["bucket"]] += needed
            if len(block["content"]) > MAX_TEXT_CHARS:
                return _exhausted(f"required block `{block['block_id']}` is longer than {MAX_TEXT_CHARS} characters")
    for bucket in BUCKETS:
        if used[bucket] > allocated[bucket]:
            detail = f"bucket `{bucket}` has {allocated[bucket]} tokens and its required blocks need {used[bucket]}"
            return _exhausted(f"{detail}; raise the run budget or require less")
    kept, dropped = [], []
    order = [(RANK[block["bucket"]], -block["priority"], block["block_id"], at) for at, block in enumerate(blocks)]
    for _, _, block_id, at in sorted(order):
        if block_id not in required:
            bucket = blocks[at]["bucket"]
            total = used[bucket] + tokens[at]
            if total > allocated[bucket] or len(blocks[at]["content"]) > MAX_TEXT_CHARS:
                dropped.append(at)
                continue
            used[bucket] = total
        kept.append(at)
    return Packing(tuple(kept), tuple(dropped), used)


def budget_report(
    blocks: Sequence[Mapping[str, Any]], allocated: Mapping[Bucket, int], packing: Packing
) -> dict[str, Any]:
    """Build the report on token use (`BudgetReport`) as JSON: tokens allocated and used in each bucket.

    A bucket that dropped a block (one item of the context) is also listed under `bucket_truncations` and
    `dropped_block_ids`; other buckets are not.

    """
    dropped: dict[Bucket, list[str]] = {}
    for at in packing.dropped:
        dropped.setdefault(blocks[at]["bucket"], []).append(blocks[at]["block_id"])
    return {
        "tokens_allocated": dict(allocated),
        "tokens_used_at_compile": sum(packing.used.values()),
        "tokens_used_by_bucket": packing.used,
        "bucket_truncations": dict.fromkeys(dropped, True),
        "dropped_block_ids": dropped,
        "warnings": [_warning(bucket, len(ids)) for bucket, ids in dropped.items()],
    }


def omissions(blocks: Sequence[Mapping[str, Any]], tokens: Sequence[int], packing: Packing) -> list[dict[str, Any]]:
    """Build the list of dropped blocks (`Omission`) as JSON, each with the reason."""
    return [
        {
            "block_id": blocks[at]["block_id"],
            "bucket": blocks[at]["bucket"],
            "reason": "over_budget",
            "estimated_tokens": tokens[at],
            "priority": blocks[at]["priority"],
        }
        for at in packing.dropped
    ]


def _warning(bucket: str, count: int) -> str:
    return f"{bucket} bucket exceeded budget; dropped {count} low-priority block{'s' if count > 1 else ''}"


def _exhausted(detail: str) -> Failure:
    return Failure(code="budget_exhausted", detail=detail)
