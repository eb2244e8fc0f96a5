"""Without concurrency the calls are made one after the other, and none after the first error."""

from __future__ import annotations

import asyncio

import pytest

from contextos.contracts.ports.concurrency import Sequential


def test_calls_are_made_in_order_up_to_the_first_error() -> None:
    made: list[str] = []

    async def call(name: str, *, fails: bool = False) -> None:
        made.append(name)
        if fails:
            raise KeyError(name)

    calls = [lambda: call("a"), lambda: call("b", fails=True), lambda: call("c")]
    with pytest.raises(KeyError, match="b"):
        asyncio.run(Sequential().gather(calls))
    assert made == ["a", "b"]


def test_there_is_no_time_limit() -> None:
    async def answer() -> int:
        return 7

    assert asyncio.run(Sequential().within(0, answer)) == 7
