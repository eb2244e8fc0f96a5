"""A history bucket is read as the runtime left it, since any time, and while effects are counted in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.documents.operations import COUNTED_EFFECTS, HISTORY_BUCKETS, BucketEnd
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.storage import Store
from contextos.errors import Conflict, Integrity, Unavailable
from contextos.trust.rows.counted_effects import SignedCounter
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores

BUCKET = "adp.pay/tenant/aa"
KEYS = KeyRing.from_seed(b"c" * 32)


async def counted(times: Sequence[int]) -> tuple[Store, SignedCounter, BucketEnd]:
    """A bucket with an effect at each of these times, with its place as its amount."""
    store = MemoryStores().tenant("acme")
    counter, end = SignedCounter(store, "acme", KEYS), BucketEnd()
    for number, at_us in enumerate(times, 1):
        writes = counter.count(BUCKET, end, f"adp.pay/ik_{number}", at_us, {"amount": number})
        await store.commit(Batch(run=CONTROL, writes=writes))
        end, _ = await counter.read(BUCKET, 0, limit=9)
    return store, counter, end


@pytest.mark.parametrize(
    ("since_us", "amounts"), [(0, [1, 2, 3]), (10, [1, 2, 3]), (11, [2, 3]), (20, [2, 3]), (21, []), (99, [])]
)
def test_the_effects_of_a_window_are_the_last_ones(since_us: int, amounts: list[int]) -> None:
    async def go() -> None:
        _, counter, end = await counted([10, 20, 5])
        assert (end.number, end.at_us) == (3, 20), "the time never goes back"
        found, effects = await counter.read(BUCKET, since_us, limit=9)
        assert (found, [one.numbers["amount"] for one in effects or ()]) == (end, amounts)

    asyncio.run(go())


def test_more_than_the_limit_is_not_read() -> None:
    async def go() -> None:
        _, counter, end = await counted([1, 2, 3])
        assert await counter.read(BUCKET, 0, limit=2) == (end, None)
        assert await counter.read("adp.pay/tenant/bb", 0, limit=2) == (BucketEnd(), [])

    asyncio.run(go())


def test_two_that_count_behind_one_end_do_not_both_commit() -> None:
    async def go() -> None:
        store, counter, end = await counted([1])
        for expected in (None, Conflict):
            batch = Batch(run=CONTROL, writes=counter.count(BUCKET, end, "adp.pay/ik_x", 2, {"amount": 1}))
            if expected is None:
                await store.commit(batch)
            else:
                with pytest.raises(expected):
                    await store.commit(batch)

    asyncio.run(go())


def test_another_tenants_bucket_and_another_key_prove_nothing() -> None:
    async def go() -> None:
        store, _, _ = await counted([1, 2])
        for tenant, keys in (("other", KEYS), ("acme", KeyRing.from_seed(b"d" * 32))):
            with pytest.raises(Integrity, match="does not end where the runtime signed"):
                await SignedCounter(store, tenant, keys).read(BUCKET, 0, limit=9)

    asyncio.run(go())


class Busy:
    """A store in which an effect is counted after each read of the rows."""

    def __init__(self, store: Store, counter: SignedCounter, times: int) -> None:
        self._store, self._counter, self._times = store, counter, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scan(self, collection: str, **how: Any) -> Any:
        found = await self._store.scan(collection, **how)
        if collection == HISTORY_BUCKETS.name and self._times:
            self._times -= 1
            end = HISTORY_BUCKETS.read(found[0]).body.end
            writes = self._counter.count(BUCKET, end, "adp.pay/ik_more", end.at_us, {"amount": 1})
            await self._store.commit(Batch(run=CONTROL, writes=writes))
        return found


@pytest.mark.parametrize("times", [1, 5])
def test_a_bucket_in_which_more_is_counted_meanwhile_is_read_again(times: int) -> None:
    async def go() -> None:
        store, counter, _ = await counted([1])
        busy: Any = Busy(store, counter, times)
        end, effects = await SignedCounter(busy, "acme", KEYS).read(BUCKET, 0, limit=99)
        assert end.number == len(effects or ()) == 1 + times

    asyncio.run(go())


def test_a_bucket_that_changes_during_each_read_is_an_outage() -> None:
    async def go() -> None:
        store, counter, _ = await counted([1])
        busy: Any = Busy(store, counter, 99)
        with pytest.raises(Unavailable, match="faster than they can be read"):
            await SignedCounter(busy, "acme", KEYS).read(BUCKET, 0, limit=99)

    asyncio.run(go())


def test_an_altered_effect_is_found() -> None:
    async def go() -> None:
        store, counter, _ = await counted([1, 2])
        row = (await COUNTED_EFFECTS.page(store))[0]
        altered = COUNTED_EFFECTS.write(row.key, 1, replace(row.body, numbers={"amount": 0}))
        await store.commit(Batch(run=CONTROL, writes=(altered,)))
        with pytest.raises(Integrity, match="has not the effect 1"):
            await counter.read(BUCKET, 0, limit=9)

    asyncio.run(go())
