"""The `Concurrency` port over asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TypeVar

from contextos.contracts.ports.concurrency import ForeignExit, OutsideCall

T = TypeVar("T")


class AsyncioConcurrency:
    """Runs calls concurrently as asyncio tasks. It has no state: one object serves any number of loops and threads."""

    async def gather(self, calls: Sequence[OutsideCall[None]]) -> None:
        """Run every call as a task, wait for all, then raise the first error in the order of `calls`."""
        results = await asyncio.gather(*(_await_call(call) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def within(self, timeout_ms: int, call: OutsideCall[T]) -> T:
        """Run foreign code as a task of its own, so that a call looks cancelled only if we cancelled it.

        Raises:
            TimeoutError: the code did not end in `timeout_ms` milliseconds; it was cancelled and is not awaited.
            ForeignExit: the code raised something that is not an `Exception`.
        """
        task = asyncio.ensure_future(_run_contained(call))
        task.add_done_callback(retrieve)
        try:
            finished, _ = await asyncio.wait({task}, timeout=timeout_ms / 1_000)
        finally:
            # A closed loop runs no task any more.
            with suppress(RuntimeError):
                task.cancel()
        if not finished:
            raise TimeoutError
        return task.result()


async def _run_contained(call: OutsideCall[T]) -> T:
    with _Contained():
        return await call()


class _Contained(AbstractContextManager[None]):
    """Turns exceptions that would stop the event loop, or look like our own cancellation, into `ForeignExit`."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            return
        raise ForeignExit(kind.__name__) from error


def retrieve(task: asyncio.Future[T]) -> None:
    """Retrieve the exception of a task that nobody may await any more, so that asyncio does not print its message."""
    if not task.cancelled():
        task.exception()


async def _await_call(call: OutsideCall[None]) -> None:
    await call()
