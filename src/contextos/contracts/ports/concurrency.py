"""Ports for doing several outside calls at once and for bounding one in time. Planes may not import an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
OutsideCall = Callable[[], Awaitable[T]]


class ForeignExit(Exception):
    """Foreign code raised something that is not an `Exception`, such as `SystemExit`; it is the cause of this error."""


class Concurrency(Protocol):
    """How a process runs calls at once. The default is `Sequential`; `workspace.engine.concurrency` has another, over
    asyncio.
    """

    async def gather(self, calls: Sequence[OutsideCall[None]]) -> None:
        """Run every call to its end, then raise the first error in the order of `calls`, if there is one.

        No call is cancelled because another one failed. Cancelling `gather` cancels all of them.
        """
        ...

    async def within(self, timeout_ms: int, call: OutsideCall[T]) -> T:
        """Run foreign code and return its result. After `timeout_ms` milliseconds it is cancelled and not waited for.

        Raises:
            TimeoutError: the time is over.
            ForeignExit: `call` raised something that would stop the event loop or look like a cancellation of ours.
        """
        ...


class Sequential:
    """A `Concurrency` without concurrency: it makes one call after the other and has no time limit.

    After the first error the remaining calls are not made.
    """

    async def gather(self, calls: Sequence[OutsideCall[None]]) -> None:
        for call in calls:
            await call()

    async def within(self, _timeout_ms: int, call: OutsideCall[T]) -> T:
        try:
            return await call()
        except (SystemExit, KeyboardInterrupt) as exit_:
            raise ForeignExit(type(exit_).__name__) from exit_
