"""Calls run at the same time, none is cancelled because another failed, and a limit cancels one."""

from __future__ import annotations

import asyncio

import pytest

from contextos.workspace.engine.concurrency import AsyncioConcurrency


def test_calls_overlap_and_the_first_error_in_their_order_is_raised_after_all_ended() -> None:
    async def go() -> None:
        met = asyncio.Barrier(3)
        ended: list[str] = []

        async def call(name: str, fault: Exception | None = None) -> None:
            await met.wait()
            ended.append(name)
            if fault:
                raise fault

        calls = [lambda: call("a"), lambda: call("b", ValueError("b")), lambda: call("c", KeyError("c"))]
        with pytest.raises(ValueError, match="b"):
            await AsyncioConcurrency().gather(calls)
        assert sorted(ended) == ["a", "b", "c"]

    asyncio.run(go())


def test_a_call_past_its_time_is_cancelled() -> None:
    async def go() -> None:
        cancelled = asyncio.Event()

        async def hangs() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(TimeoutError):
            await AsyncioConcurrency().within(20, hangs)
        # It is cancelled and not waited for.
        assert await asyncio.wait_for(cancelled.wait(), 30)

    asyncio.run(go())
