"""`LoopThread`: an event loop in a thread of its own, for callers that have none or must not wait on theirs."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from contextos.errors import InvalidInput, Problem

ReturnT = TypeVar("ReturnT")


class LoopThread:
    """An event loop in a thread of its own, from the constructor to `close`."""

    def __init__(self, name: str = "contextos") -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` on the loop's thread, await what it returns, and return the result.

        Raises:
            InvalidInput: the deployment is closed, or the caller is on the loop's thread itself.
        """
        if self._closed:
            raise InvalidInput(Problem("", "closed", "this deployment is closed", "open it again"))
        if threading.current_thread() is self._thread:
            detail = "this call would wait for its own thread"
            raise InvalidInput(Problem("", "own_thread", detail, "open the deployment with `async with` there"))

        async def called() -> Any:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        future = asyncio.run_coroutine_threadsafe(called(), self._loop)
        with ExitStack() as on_exit:
            # After Ctrl-C what was begun is cancelled, as a task is whose caller is. What is done stays so.
            on_exit.callback(future.cancel)
            return future.result()

    def submit(self, coroutine: Coroutine[Any, Any, ReturnT]) -> Future[ReturnT]:
        """Run a coroutine on the loop, and return the future of its result at once."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[..., None], *args: Any) -> None:
        """Call `function` on the loop's thread, and do not wait for it. Does nothing after `close`."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Cancel what still runs on the loop, and end its thread."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()
