"""A tenant with slow functions leaves threads to the others, and its queue is bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from contextos.adapters.function.threads import Threads


@pytest.fixture
def threads() -> Iterator[Threads]:
    pool = Threads(4, queue_limit=1, name="test")
    yield pool
    pool.close()


def test_a_slow_tenant_gets_half_of_the_threads_and_another_still_runs(threads: Threads) -> None:
    release = threading.Event()
    slow = [threads.submit("slow", lambda: release.wait(30)) for _ in range(4)]
    assert slow[3] is None, "two run, one waits, one is refused"
    quick = threads.submit("quick", lambda: 7)
    assert quick is not None
    assert quick.result(30) == 7
    assert not any(future.done() for future in slow if future)
    release.set()
    assert all(future.result(30) for future in slow if future)


def test_a_function_cancelled_before_its_turn_never_runs(threads: Threads) -> None:
    release, ran = threading.Event(), threading.Event()
    busy = [threads.submit("t", lambda: release.wait(30)) for _ in range(2)]
    waiting = threads.submit("t", ran.set)
    assert waiting is not None
    assert waiting.cancel()
    release.set()
    assert all(future and future.result(30) for future in busy)
    after = threads.submit("t", lambda: "next")
    assert after is not None
    assert after.result(30) == "next"
    assert not ran.is_set()


def test_an_error_reaches_its_caller_and_frees_the_thread(threads: Threads) -> None:
    def fails() -> None:
        raise KeyError("mine")

    for _ in range(9):
        future = threads.submit("t", fails)
        assert future is not None
        with pytest.raises(KeyError):
            future.result(30)


def test_a_closed_pool_takes_nothing_and_cancels_waiting_functions() -> None:
    pool, release = Threads(1, queue_limit=9, name="test"), threading.Event()
    running, waiting = pool.submit("t", lambda: release.wait(30)), pool.submit("t", lambda: None)
    pool.close()
    release.set()
    assert pool.submit("t", lambda: None) is None
    assert waiting is not None
    assert waiting.cancelled()
    assert running is not None
    assert running.result(30) is True
