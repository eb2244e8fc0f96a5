"""An event loop in a thread of its own: who calls it, from where, and after its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from contextos.adapters.loop_thread import LoopThread
from contextos.errors import InvalidInput


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


async def where() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_a_call_from_the_loop_itself_is_refused_and_does_not_hang(thread: LoopThread) -> None:
    async def inside() -> str:
        return str(thread.call(where))

    with pytest.raises(InvalidInput) as refused:
        thread.call(inside)
    assert refused.value.problems[0].code == "own_thread"


def test_after_the_end_a_call_is_refused() -> None:
    thread = LoopThread()
    assert thread.call(where) == "contextos"
    thread.close()
    with pytest.raises(InvalidInput) as refused:
        thread.call(where)
    assert refused.value.problems[0].code == "closed"


def test_calls_from_several_threads_are_answered(thread: LoopThread) -> None:
    answers: list[str] = []
    callers = [threading.Thread(target=lambda: answers.append(thread.call(where))) for _ in range(8)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert answers == ["contextos"] * 8
