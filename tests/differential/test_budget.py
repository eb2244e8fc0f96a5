"""Budgets against the naive reference: same allocation, same blocks kept, same blocks dropped, same tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.context.budget import Packing, Shelf, allocate, pack_blocks
from contextos.contracts.envelopes.run import BUCKETS, Bucket, RunBudget
from contextos.contracts.envelopes.verdicts import Failure
from tests.reference_budget import allocation, packed

AMOUNTS = st.integers(min_value=0, max_value=60)
BUCKET_TOKENS = st.fixed_dictionaries(dict.fromkeys(BUCKETS, AMOUNTS))
BLOCK = st.fixed_dictionaries(
    {
        "block_id": st.text(alphabet="ab_é10", min_size=1, max_size=4),
        "bucket": st.sampled_from(BUCKETS),
        "tokens": st.integers(min_value=0, max_value=25),
        "priority": st.integers(min_value=0, max_value=3),
        "required": st.sampled_from([True, False, False, False, False]),
    }
)
BLOCKS = st.lists(BLOCK, max_size=40, unique_by=lambda block: block["block_id"])


def run_budget(tokens: dict[str, int], total: int) -> RunBudget:
    return RunBudget.model_validate(
        {
            "total_tokens": total,
            "bucket_tokens": tokens,
            "max_tool_calls": 1,
            "max_replan_attempts": 0,
            "wall_clock_ms": 1,
            "max_cost_cents": 0,
        }
    )


def pack(blocks: list[dict[str, Any]], allocated: dict[Any, int], reserved: dict[Any, int]) -> Packing | Failure:
    """Pack the blocks bucket by bucket, and name them by their places in `blocks`."""
    required = {block["block_id"] for block in blocks if block["required"]}
    places: dict[Bucket, list[int]] = {bucket: [] for bucket in BUCKETS}
    for at, block in enumerate(blocks):
        places[block["bucket"]].append(at)
    shelves = {
        bucket: Shelf.of([blocks[at] | {"content": "x" * blocks[at]["tokens"]} for at in inside], required, len)
        for bucket, inside in places.items()
    }
    packing = pack_blocks(shelves, allocated, reserved)
    if isinstance(packing, Failure):
        return packing
    order = [at for inside in places.values() for at in inside]
    return Packing([order[at] for at in packing.kept], [order[at] for at in packing.dropped], packing.used)


@pytest.mark.requirement("C-BUCKETS")
@given(BUCKET_TOKENS, st.integers(min_value=1, max_value=400))
def test_allocation_is_the_references(tokens: dict[str, int], total: int) -> None:
    allocated = allocate(run_budget(tokens, total))
    assert allocated == allocation(tokens, total)
    assert sum(allocated.values()) <= total


@pytest.mark.requirement("C-TRUNCATION")
@given(BLOCKS, BUCKET_TOKENS, st.integers(min_value=0, max_value=20))
def test_packing_is_the_references(blocks: list[dict[str, Any]], allocated: dict[Any, int], reserved: int) -> None:
    expected = packed(blocks, allocated, {"business": reserved})
    got = pack(blocks, allocated, {"business": reserved})
    if expected is None:
        assert isinstance(got, Failure)
        assert got.code == "budget_exhausted"
        return
    assert isinstance(got, Packing)
    assert [blocks[at]["block_id"] for at in got.kept] == expected["kept"]
    assert [blocks[at]["block_id"] for at in got.dropped] == expected["dropped"]
    assert got.used == expected["used"]


@given(BLOCKS, BUCKET_TOKENS, st.randoms(use_true_random=False))
def test_the_order_of_blocks_never_matters(blocks: list[dict[str, Any]], allocated: dict[Any, int], rnd: Any) -> None:
    shuffled = list(blocks)
    rnd.shuffle(shuffled)
    got, expected = pack(shuffled, allocated, {}), pack(blocks, allocated, {})
    if isinstance(got, Failure) or isinstance(expected, Failure):
        assert got == expected
        return
    assert [shuffled[at] for at in got.kept] == [blocks[at] for at in expected.kept]
    assert [shuffled[at] for at in got.dropped] == [blocks[at] for at in expected.dropped]


@pytest.mark.requirement("C-BUCKETS", "C-TRUNCATION", "C-REQUIRED")
@given(BLOCKS, BUCKET_TOKENS)
def test_nothing_is_lost_and_no_bucket_overflows(blocks: list[dict[str, Any]], allocated: dict[Any, int]) -> None:
    got = pack(blocks, allocated, {})
    if isinstance(got, Failure):
        return
    assert sorted((*got.kept, *got.dropped)) == list(range(len(blocks)))
    assert not any(blocks[at]["required"] for at in got.dropped)
    assert all(got.used[bucket] <= allocated[bucket] for bucket in BUCKETS)
    for at in got.dropped:  # first fit: nothing that is dropped would have fitted beside what is kept
        assert got.used[blocks[at]["bucket"]] + blocks[at]["tokens"] > allocated[blocks[at]["bucket"]]
