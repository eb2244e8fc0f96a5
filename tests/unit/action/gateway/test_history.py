"""What a reservation writes, the fence of each bucket and the effect once; and what the counted effects add up to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.history import read_history, reservation
from contextos.contracts.documents.operations import COUNTED_EFFECTS, HISTORY_BUCKETS
from contextos.contracts.envelopes.policy import HistoryFact
from contextos.contracts.journal import Batch
from contextos.store.memory.stores import MemoryStores
from contextos.store.shared.clock import SystemClock

KEY = "ik_0123456789abcdef"


def test_a_reservation_raises_the_fence_that_was_read_and_keeps_the_numbers_of_the_call() -> None:
    answer = {"facts": {"paid": 3}, "at_us": 7, "buckets": {"adp.pay/user/aa": 4, "adp.pay/tenant/bb": 0}}
    args = {"amount": 5, "rate": 0.5, "fast": True, "note": "x", "idempotency_key": KEY}
    writes = reservation("adp.pay", KEY, args, answer)
    fences = [(write.key, write.expect) for write in writes if write.collection == HISTORY_BUCKETS.name]
    assert fences == [("adp.pay/user/aa", 4), ("adp.pay/tenant/bb", 0)]
    effects = list(COUNTED_EFFECTS.written(writes))
    assert [key for key, _ in effects] == [f"{bucket}/{7:020d}/{KEY}" for bucket, _ in fences]
    assert [(one.operation, one.at_us, one.numbers) for _, one in effects] == [
        (f"adp.pay/{KEY}", 7, {"amount": 5, "rate": 0.5})
    ] * 2


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
            answer = {"at_us": clock.now_us(), "buckets": {"adp_a.pay/subject/aa": number}}
            await store.commit(
                Batch("run_1", (), reservation("adp_a.pay", f"{KEY}{number}", {"amount": amount}, answer))
            )
        journal: Any = Unrecorded()
        journal.time_us = clock.now_us()
        ports: Any = SimpleNamespace(store=store, evidence=None)
        return await read_history(journal, ports, {"paid": fact}, {"paid": "adp_a.pay/subject/aa"}, "", "k")

    assert asyncio.run(read())["facts"].get("paid") == total
