"""A stream is read in pages of bounded size."""

from __future__ import annotations

import asyncio
from typing import Any

from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.trust.pages import PAGE_ENTRIES, stream_pages
from contextos_sim.memory.stores import MemoryStores


async def filled(count: int) -> Any:
    store = MemoryStores().tenant("acme")
    lines = tuple((CONTROL, Draft("run.retried", "", 1, "me", b"{}", bytes(16))) for _ in range(count))
    await store.commit(Batch(run=CONTROL, shared=lines))
    return store


def test_pages_hold_every_entry_once_and_end_where_they_should() -> None:
    async def go(**asked: int) -> list[list[int]]:
        store = await filled(PAGE_ENTRIES + 5)
        return [[entry.seq for entry in page] async for page in stream_pages(store, CONTROL, **asked)]

    whole = asyncio.run(go())
    assert [len(page) for page in whole] == [PAGE_ENTRIES, 5]
    assert [seq for page in whole for seq in page] == list(range(1, PAGE_ENTRIES + 6))
    assert asyncio.run(go(after=2, upto=4)) == [[3, 4]]
    assert asyncio.run(go(upto=0)) == []
