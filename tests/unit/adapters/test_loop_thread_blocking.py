"""An app without an event loop: the same objects, called on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from contextos.adapters.loop_thread import Blocking, BlockingRoot, LoopThread
from contextos.errors import InvalidInput, NotFound
from contextos.service.pages import Page


class Part:
    """Something with asynchronous methods, a context and an iterator."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.number = 7

    async def where(self) -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    def plain(self) -> str:
        return threading.current_thread().name

    async def fail(self) -> None:
        raise NotFound("there is no such thing")

    async def numbers(self) -> AsyncIterator[int]:
        try:
            for number in range(3):
                await asyncio.sleep(0)
                yield number
        finally:
            self.seen.append("closed")

    async def parts(self) -> list[Part]:
        return [Part(), Part()]

    async def page(self) -> Page[Part]:
        return Page((Part(), Part()), "2")

    async def __aenter__(self) -> Part:
        self.seen.append("entered")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.seen.append(f"left {error[0]}")


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


def test_everything_runs_on_the_thread_of_the_loop(thread: LoopThread) -> None:
    part = Blocking(Part(), thread)
    assert (part.where(), part.plain(), part.number) == ("contextos", "contextos", 7)
    assert [one.where() for one in part.parts()] == ["contextos"] * 2, "what a call returns is wrapped, too"
    assert list(part.numbers()) == [0, 1, 2]
    page = part.page()
    assert ([one.where() for one in page.items], page.cursor) == (["contextos"] * 2, "2")


def test_an_iterator_that_is_left_early_is_closed(thread: LoopThread) -> None:
    part = Part()
    for number in Blocking(part, thread).numbers():
        assert number == 0
        break
    assert part.seen == ["closed"]


def test_an_error_is_the_same_error(thread: LoopThread) -> None:
    with pytest.raises(NotFound, match="no such thing"):
        Blocking(Part(), thread).fail()


def test_an_asynchronous_context_is_a_context(thread: LoopThread) -> None:
    part = Part()
    with Blocking(part, thread) as entered:
        assert entered.where() == "contextos"
    with pytest.raises(ValueError, match="mine"), Blocking(part, thread):
        raise ValueError("mine")
    assert part.seen == ["entered", "left None", "entered", "left <class 'ValueError'>"]


def test_a_function_of_the_package_takes_wrapped_objects(thread: LoopThread) -> None:
    async def add(part: Any, number: int, *, more: Any) -> int:
        assert isinstance(part, Part)
        assert isinstance(more, Part)
        return part.number + number

    part = Blocking(Part(), thread)
    assert BlockingRoot(Part(), thread).call(add, part, 3, more=part) == 10


def test_a_wrapped_object_takes_no_attribute(thread: LoopThread) -> None:
    with pytest.raises(AttributeError):
        Blocking(Part(), thread).number = 8


def test_after_the_end_a_call_is_refused_and_what_was_open_is_closed() -> None:
    thread, part = LoopThread(), Part()
    numbers = iter(Blocking(part, thread).numbers())
    assert next(numbers) == 0
    forever = asyncio.run_coroutine_threadsafe(asyncio.Event().wait(), thread._loop)
    thread.close()
    assert forever.cancelled()
    assert part.seen == ["closed"]
    with pytest.raises(InvalidInput) as refused:
        Blocking(part, thread).where()
    assert refused.value.problems[0].code == "closed"
