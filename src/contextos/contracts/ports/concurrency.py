"""Ports for doing several outside calls at once and for bounding one in time. Planes may not import an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
OutsideCall = Callable[[], Awaitable[T]]


class Concurrency(Protocol):
    """How a process runs calls at once. The default is `Sequential`; `engine.concurrency` has one over asyncio."""

    async def gather(self, calls: Sequence[OutsideCall[None]]) -> None:
        """Run every call to its end, then raise the first error in the order of `calls`, if there is one.

        No call is cancelled because another one failed. Cancelling `gather` cancels all of them.
        """
        ...

    async def within(self, timeout_ms: int, call: OutsideCall[T]) -> T:
        """The result of `call`, cancelled after `timeout_ms` milliseconds. Raises `TimeoutError`."""
        ...


class Sequential:
    """The `Concurrency` of a process that has none: one call after the other, and no time limit.

    After the first error the calls that have not begun are not made.
    """

    async def gather(self, calls: Sequence[OutsideCall[None]]) -> None:
        for call in calls:
            await call()

    async def within(self, _timeout_ms: int, call: OutsideCall[T]) -> T:
        return await call()
