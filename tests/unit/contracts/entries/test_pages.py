"""A stream is read in pages of bounded size, and its length is found without reading it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos.contracts.entries.pages import PAGE_ENTRIES, stream_length, stream_pages
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.store.memory.stores import MemoryStores


async def filled(count: int) -> Any:
    store = MemoryStores().tenant("acme")
    lines = tuple((CONTROL, Draft("run.retried", "", 1, "me", b"{}", bytes(16))) for _ in range(count))
    await store.commit(Batch(run=CONTROL, shared=lines))
    return store


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 9, 1000])
def test_the_length_is_the_number_of_the_last_entry(count: int) -> None:
    async def go() -> int:
        return await stream_length(await filled(count), CONTROL)

    assert asyncio.run(go()) == count


def test_a_gap_in_the_middle_does_not_shorten_a_stream() -> None:
    async def go() -> int:
        store = await filled(10)
        del store._stored.streams[CONTROL][3:8]
        return await stream_length(store, CONTROL)

    assert asyncio.run(go()) == 10


def test_pages_hold_every_entry_once_and_end_where_they_should() -> None:
    async def go(**asked: int) -> list[list[int]]:
        store = await filled(PAGE_ENTRIES + 5)
        return [[entry.seq for entry in page] async for page in stream_pages(store, CONTROL, **asked)]

    whole = asyncio.run(go())
    assert [len(page) for page in whole] == [PAGE_ENTRIES, 5]
    assert [seq for page in whole for seq in page] == list(range(1, PAGE_ENTRIES + 6))
    assert asyncio.run(go(after=2, upto=4)) == [[3, 4]]
    assert asyncio.run(go(upto=0)) == []
