"""Share out the token budget: how many tokens each bucket has, and which blocks fit.

Buckets are independent: unused tokens of one bucket are not lent to another. If the buckets add up to more than
`total_tokens`, all of them shrink in proportion. Within a bucket, blocks are taken by descending `priority`, ties by
`block_id`. The tokens of required blocks are reserved before any other block is taken. Packing is first fit: a block
that does not fit is dropped whole, never cut, and a smaller block after it can still fit.
Source: docs/design/contracts.md, "Compile"; API Contracts, "Compiled output".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from contextos.contracts.envelopes.run import BUCKETS, Bucket, RunBudget
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import MAX_TEXT_CHARS


class Shelf(NamedTuple):
    """The blocks of one bucket (part of the prompt), the tokens of each block, and the ids of the required blocks.

    `order` has the indexes of the blocks by descending priority, then by `block_id`. `needed` is the number of tokens
    of the required blocks, `total` of all blocks. `is_long`: a block has more characters than a text can have.
    """

    blocks: Sequence[dict[str, Any]]
    tokens: Sequence[int]
    required: Collection[str]
    order: Sequence[int]
    needed: int
    total: int
    is_long: bool

    @classmethod
    def of(cls, blocks: Sequence[dict[str, Any]], required: Collection[str], count: Callable[[str], int]) -> Shelf:
        """Return the shelf of these blocks. `count` returns the tokens of a text."""
        if not blocks:
            return EMPTY
        contents = [block["content"] for block in blocks]
        tokens = list(map(count, contents))
        order = sorted([(-block["priority"], block["block_id"], index) for index, block in enumerate(blocks)])
        needed = sum([tokens[index] for _, block_id, index in order if block_id in required]) if required else 0
        is_long = max(map(len, contents)) > MAX_TEXT_CHARS
        return cls(blocks, tokens, required, [index for _, _, index in order], needed, sum(tokens), is_long)


EMPTY: Final = Shelf((), (), (), (), 0, 0, False)


class Packing(NamedTuple):
    """The kept and the dropped blocks, as indexes in the list of all blocks, and the tokens used in each bucket (part
    of the prompt).

    Both lists are sorted by bucket, then by descending priority, then by `block_id`.
    """

    kept: list[int]
    dropped: list[int]
    used: dict[Bucket, int]


def allocate(budget: RunBudget) -> dict[Bucket, int]:
    """Return the token limit of each bucket (part of the prompt), scaled down so that their sum fits `total_tokens`."""
    configured: dict[Bucket, int] = {bucket: getattr(budget.bucket_tokens, bucket) for bucket in BUCKETS}
    total = sum(configured.values())
    if total <= budget.total_tokens:
        return configured
    return {bucket: tokens * budget.total_tokens // total for bucket, tokens in configured.items()}


def pack_blocks(
    shelves: Mapping[Bucket, Shelf], allocated: Mapping[Bucket, int], reserved: Mapping[Bucket, int]
) -> Packing | Failure:
    """Choose the blocks that fit the token limit of their bucket. `shelves` are in the order of the list of all blocks,
    and `reserved` tokens are subtracted first.

    Returns a `budget_exhausted` failure if the required blocks do not fit.
    """
    offsets, block_count = dict[Bucket, int](), 0
    for bucket, shelf in shelves.items():
        offsets[bucket] = block_count
        block_count += len(shelf.blocks)
        for block in shelf.blocks if shelf.is_long else ():
            if block["block_id"] in shelf.required and len(block["content"]) > MAX_TEXT_CHARS:
                return _exhausted_failure(
                    f"required block `{block['block_id']}` is longer than {MAX_TEXT_CHARS} characters"
                )
    kept, dropped, used = list[int](), list[int](), dict[Bucket, int]()
    for bucket in BUCKETS:
        shelf, limit, offset, base_tokens = shelves[bucket], allocated[bucket], offsets[bucket], reserved.get(bucket, 0)
        if base_tokens + shelf.total <= limit and not shelf.is_long:
            kept += [offset + index for index in shelf.order]
            used[bucket] = base_tokens + shelf.total
            continue
        total = base_tokens + shelf.needed
        if total > limit:
            detail = f"bucket `{bucket}` has {limit} tokens and its required blocks need {total}"
            return _exhausted_failure(f"{detail}; raise the run budget or require less")
        for index in shelf.order:
            block, tokens = shelf.blocks[index], shelf.tokens[index]
            if block["block_id"] not in shelf.required:
                if total + tokens > limit or len(block["content"]) > MAX_TEXT_CHARS:
                    dropped.append(offset + index)
                    continue
                total += tokens
            kept.append(offset + index)
        used[bucket] = total
    return Packing(kept, dropped, used)


def budget_report(
    blocks: Sequence[Mapping[str, Any]], allocated: Mapping[Bucket, int], packing: Packing
) -> dict[str, Any]:
    """Build the report on token use (`BudgetReport`) as JSON: tokens allocated and used in each bucket.

    A bucket that dropped a block (one item of the context) is also listed under `bucket_truncations` and
    `dropped_block_ids`; other buckets are not.
    """
    dropped: dict[Bucket, list[str]] = {}
    for index in packing.dropped:
        dropped.setdefault(blocks[index]["bucket"], []).append(blocks[index]["block_id"])
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
            "block_id": blocks[index]["block_id"],
            "bucket": blocks[index]["bucket"],
            "reason": "over_budget",
            "estimated_tokens": tokens[index],
            "priority": blocks[index]["priority"],
        }
        for index in packing.dropped
    ]


def _warning(bucket: str, count: int) -> str:
    return f"{bucket} bucket exceeded budget; dropped {count} low-priority block{'s' if count > 1 else ''}"


def _exhausted_failure(detail: str) -> Failure:
    return Failure(code="budget_exhausted", detail=detail)
