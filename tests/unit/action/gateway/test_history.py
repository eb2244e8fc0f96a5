"""What a reservation writes, the fence of each bucket and the effect once; and what the counted effects add up to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.history import read_history, reservation
from contextos.contracts.documents.operations import COUNTED_EFFECTS, HISTORY_BUCKETS, BucketEnd
from contextos.contracts.envelopes.policy import HistoryFact
from contextos.contracts.journal import Batch
from contextos.store.shared.clock import SystemClock
from contextos.trust.rows.counted_effects import SignedCounter
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores

KEY = "ik_0123456789abcdef"


def counter(store: Any = None) -> SignedCounter:
    return SignedCounter(store, "tenant_acme", KeyRing.from_seed(b"h" * 32))


def test_a_reservation_raises_the_fence_that_was_read_and_keeps_the_numbers_of_the_call() -> None:
    ends = {"adp.pay/user/aa": BucketEnd(4, 9, "sha256:4"), "adp.pay/tenant/bb": BucketEnd()}
    answer = {"facts": {"paid": 3}, "at_us": 7, "buckets": {name: asdict(end) for name, end in ends.items()}}
    args = {"amount": 5, "rate": 0.5, "fast": True, "note": "x", "idempotency_key": KEY}
    writes = reservation(counter(), f"adp.pay/{KEY}", args, answer)
    fences = [(write.key, write.expect) for write in writes if write.collection == HISTORY_BUCKETS.name]
    assert fences == [("adp.pay/user/aa", 4), ("adp.pay/tenant/bb", 0)]
    effects = dict(COUNTED_EFFECTS.written(writes))
    assert list(effects) == [f"adp.pay/user/aa/{9:020d}/{5:012d}", f"adp.pay/tenant/bb/{7:020d}/{1:012d}"], (
        "the time in a bucket never goes back"
    )
    assert [(one.operation, one.numbers, one.before) for one in effects.values()] == [
        (f"adp.pay/{KEY}", {"amount": 5, "rate": 0.5}, end) for end in ends.values()
    ]
    assert [one.end for _, one in HISTORY_BUCKETS.written(writes)] == [one.end() for one in effects.values()]


class Unrecorded:
    async def record(self, _kind: str, _key: str, _facts: Any, answer: Callable[[], Awaitable[Any]]) -> Any:
        return await answer()


@pytest.mark.parametrize(("amounts", "total"), [((), 0), ((5, 7), 12), ((5, -5), None), ((5, "7"), None)])
def test_a_sum_is_unknown_with_an_effect_whose_number_is_negative_or_missing(
    amounts: tuple[Any, ...], total: int | None
) -> None:
    fact = HistoryFact(
        capability="adp_a.pay", aggregate="sum", of="amount", over="subject", subject="order", window_s=60
    )
    clock = SystemClock()

    async def read() -> Any:
        store = MemoryStores().tenant("tenant_acme")
        for number, amount in enumerate(amounts):
            end, _ = await counter(store).read("adp_a.pay/subject/aa", 0, limit=9)
            answer = {"at_us": clock.now_us(), "buckets": {"adp_a.pay/subject/aa": asdict(end)}}
            writes = reservation(counter(store), f"adp_a.pay/{KEY}{number}", {"amount": amount}, answer)
            await store.commit(Batch("run_1", (), writes))
        journal: Any = Unrecorded()
        journal.time_us = clock.now_us()
        ports: Any = SimpleNamespace(store=store, effects=counter(store))
        return await read_history(journal, ports, {"paid": fact}, {"paid": "adp_a.pay/subject/aa"}, {}, "", "k")

    assert asyncio.run(read())["facts"].get("paid") == total
