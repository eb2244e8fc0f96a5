"""A deployment for programs without an event loop: the same objects, called in the thread of a loop of their own.

There is no second implementation. An attribute that is a function is called on the loop's thread, and its result is
awaited there; an object with asynchronous methods is wrapped in turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

from contextos.adapters.loop_thread import LoopThread
from contextos.application.pages import Page

_CONTEXT: Final = ("__aenter__", "__aexit__")


class Blocking:
    """`target` without `await`: its attributes, with asynchronous functions called on the loop's thread.

    An asynchronous context manager is a context manager here, and an asynchronous iterator an iterator. Attributes
    cannot be set.
    """

    __slots__ = ("_target", "_thread")

    def __init__(self, target: Any, thread: LoopThread) -> None:
        self._target, self._thread = target, thread

    def __getattr__(self, name: str) -> Any:
        return self._blocking(getattr(self._target, name))

    def __enter__(self) -> Any:
        return self._blocking(self._thread.call(self._target.__aenter__))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self._thread.call(self._target.__aexit__, kind, error, trace)

    def __iter__(self) -> Iterator[Any]:
        steps = self._thread.call(self._target.__aiter__)
        while True:
            try:
                step = self._thread.call(steps.__anext__)
            except StopAsyncIteration:
                return
            yield self._blocking(step)

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def _blocking(self, value: Any) -> Any:
        if inspect.isroutine(value):

            def call(*args: Any, **kwargs: Any) -> Any:
                return self._blocking(self._thread.call(value, *args, **kwargs))

            return call
        if type(value) in (list, tuple):
            return type(value)(self._blocking(one) for one in value)
        if isinstance(value, Page):
            return replace(value, items=self._blocking(value.items))
        return Blocking(value, self._thread) if _is_asynchronous(type(value)) else value


class BlockingApp(Blocking):
    """An `App` without `await`, as `with contextos.open(…) as app` makes it."""

    __slots__ = ()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of this package with the deployment or parts of it, such as
        `app.call(write_facts, app.deployment, …)`, and return its result.
        """
        bare = [_bare(one) for one in args]
        return self._blocking(self._thread.call(function, *bare, **{name: _bare(one) for name, one in kwargs.items()}))


def _bare(value: Any) -> Any:
    return value._target if isinstance(value, Blocking) else value


def _is_asynchronous(kind: type) -> bool:
    """Return whether objects of this class are used with `await`, `async with` or `async for`."""
    if any(hasattr(kind, name) for name in (*_CONTEXT, "__aiter__")):
        return True
    members = (inspect.getattr_static(kind, name, None) for name in dir(kind) if not name.startswith("_"))
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in members)
