"""The `Concurrency` port over asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from contextos.contracts.ports.concurrency import OutsideCall

T = TypeVar("T")


class AsyncioConcurrency:
    """Calls are tasks of the running event loop. Stateless: one object serves any number of loops and threads."""

    async def gather(self, calls: Sequence[OutsideCall[None]]) -> None:
        """Run every call as a task, wait for all, then raise the first error in the order of `calls`."""
        results = await asyncio.gather(*(_awaited(call) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def within(self, timeout_ms: int, call: OutsideCall[T]) -> T:
        """The result of `call`, cancelled after `timeout_ms` milliseconds. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_ms / 1_000):
            return await call()


async def _awaited(call: OutsideCall[None]) -> None:
    await call()
