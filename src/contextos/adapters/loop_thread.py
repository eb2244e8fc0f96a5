"""`LoopThread`: an event loop in a thread of its own, for callers that have no loop or must not block theirs.

`Blocking` wraps an asynchronous object for such callers. There is no second implementation: a function of the object is
called on the loop's thread, and its result is awaited there. An attribute with asynchronous methods is wrapped in turn.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, TypeVar

from contextos.errors import InvalidInput, Problem
from contextos.service.pages import Page

ReturnT = TypeVar("ReturnT")
RootT = TypeVar("RootT")

_CONTEXT: Final = ("__aenter__", "__aexit__")


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

        async def await_result() -> Any:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        future = asyncio.run_coroutine_threadsafe(await_result(), self._loop)
        with ExitStack() as on_exit:
            # Ctrl-C cancels the call, as a cancelled task cancels the calls in it. A finished call is not changed.
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


class Blocking:
    """`target` without `await`: its attributes, with asynchronous functions called on the loop's thread.

    An asynchronous context manager is a context manager here, and an asynchronous iterator an iterator. Attributes
    cannot be set.
    """

    __slots__ = ("_target", "_thread")

    def __init__(self, target: Any, thread: LoopThread) -> None:
        self._target, self._thread = target, thread

    def __getattr__(self, name: str) -> Any:
        return self._wrap(getattr(self._target, name))

    def __enter__(self) -> Any:
        return self._wrap(self._thread.call(self._target.__aenter__))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self._thread.call(self._target.__aexit__, kind, error, trace)

    def __iter__(self) -> Iterator[Any]:
        steps = self._thread.call(self._target.__aiter__)
        try:
            while True:
                try:
                    step = self._thread.call(steps.__anext__)
                except StopAsyncIteration:
                    return
                yield self._wrap(step)
        finally:
            # Also if the reader stopped before the end. The loop's thread has perhaps closed it already.
            if hasattr(steps, "aclose"):
                with suppress(InvalidInput):
                    self._thread.call(steps.aclose)

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def _wrap(self, value: Any) -> Any:
        if inspect.isroutine(value):

            def call(*args: Any, **kwargs: Any) -> Any:
                return self._wrap(self._thread.call(value, *args, **kwargs))

            return call
        if type(value) in (list, tuple):
            return type(value)(self._wrap(item) for item in value)
        if isinstance(value, Page):
            return replace(value, items=self._wrap(value.items))
        return Blocking(value, self._thread) if _is_asynchronous(type(value)) else value


class BlockingRoot(Blocking):
    """The object of `with contextos.open(…) as app` and of `with contextos.client.connect(…) as client`."""

    __slots__ = ()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of this package with this object or parts of it, such as
        `app.call(write_facts, app.deployment, …)`, and return its result.
        """
        plain = [_unwrap(arg) for arg in args]
        return self._wrap(self._thread.call(function, *plain, **{name: _unwrap(item) for name, item in kwargs.items()}))


def _unwrap(value: Any) -> Any:
    return value._target if isinstance(value, Blocking) else value


class BothContexts(AbstractAsyncContextManager[RootT], AbstractContextManager[BlockingRoot]):
    """A context for `async with`, and for `with` if no event loop runs: a thread then runs one."""

    _thread: LoopThread | None = None

    def __enter__(self) -> BlockingRoot:
        thread = LoopThread()
        with ExitStack() as on_failure:
            on_failure.callback(thread.close)
            root = thread.call(self.__aenter__)
            on_failure.pop_all()
        self._thread = thread
        return BlockingRoot(root, thread)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None, "it was entered"
        try:
            thread.call(self.__aexit__, kind, error, trace)
        finally:
            thread.close()


def _is_asynchronous(kind: type) -> bool:
    """Return whether objects of this class are used with `await`, `async with` or `async for`."""
    if any(hasattr(kind, name) for name in (*_CONTEXT, "__aiter__")):
        return True
    members = (inspect.getattr_static(kind, name, None) for name in dir(kind) if not name.startswith("_"))
    return any(inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member) for member in members)
