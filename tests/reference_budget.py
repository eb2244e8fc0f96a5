"""Token budgets once more, naively and from the specification alone (docs/design/contracts.md, "Compile").

Blocks are dicts with `block_id`, `bucket`, `tokens`, `priority`, `required`. Nothing of the product is imported.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

BUCKET_ORDER = ["policy", "tool", "evidence", "memory", "business", "session"]


def allocation(bucket_tokens: dict[str, int], total_tokens: int) -> dict[str, int]:
    """As given; if that is more than the total, every bucket shrinks by the same share, rounded down."""
    share = min(Fraction(1), Fraction(total_tokens, max(sum(bucket_tokens.values()), 1)))
    return {bucket: int(bucket_tokens[bucket] * share) for bucket in BUCKET_ORDER}


def packed(blocks: list[dict[str, Any]], allocated: dict[str, int], reserved: dict[str, int]) -> dict[str, Any] | None:
    """What is kept and dropped, in order, and the tokens used; None where the required do not fit."""
    result: dict[str, Any] = {"kept": [], "dropped": [], "used": {}}
    for bucket in BUCKET_ORDER:
        mine = [block for block in blocks if block["bucket"] == bucket]
        room = allocated[bucket] - reserved.get(bucket, 0)
        room -= sum(block["tokens"] for block in mine if block["required"])
        if room < 0:
            return None
        while mine:
            first = min(mine, key=lambda block: (-block["priority"], block["block_id"]))
            mine.remove(first)
            if first["required"]:
                result["kept"].append(first["block_id"])
            elif first["tokens"] <= room:
                room -= first["tokens"]
                result["kept"].append(first["block_id"])
            else:
                result["dropped"].append(first["block_id"])
        result["used"][bucket] = allocated[bucket] - room
    return result
