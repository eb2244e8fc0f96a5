"""Suspended loops are a bounded cache, and a loop between two rests behaves as if it were awaited directly."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.contracts.journal import Rest
from contextos.deployment.suspended_runs import MAX_SUSPENDED, MAX_SUSPENDED_BYTES, ResumableLoop, SuspendedRuns


def test_a_loop_stops_at_a_rest_and_goes_on_in_another_event_loop() -> None:
    async def loop() -> str:
        await asyncio.sleep(0)
        await Rest(7)
        await asyncio.sleep(0)
        return "ended"

    async def drive(one: ResumableLoop) -> Any:
        return await one

    resumable = ResumableLoop(loop())
    rest = asyncio.run(drive(resumable))
    assert isinstance(rest, Rest)
    assert rest.wake_at_us == 7
    assert asyncio.run(drive(resumable)) == "ended"


def test_an_error_of_the_loop_reaches_its_driver() -> None:
    async def loop() -> None:
        raise KeyError("mine")

    async def drive() -> None:
        await ResumableLoop(loop())

    with pytest.raises(KeyError):
        asyncio.run(drive())


def suspended(size: int = 0) -> Any:
    return SimpleNamespace(journal=SimpleNamespace(stored_bytes=lambda: size))


def test_the_oldest_loop_leaves_when_there_are_too_many() -> None:
    kept = SuspendedRuns()
    for number in range(MAX_SUSPENDED + 1):
        kept.keep(("t", str(number)), suspended())
    assert kept.take(("t", "0")) is None
    assert kept.take(("t", "1")) is not None
    assert kept.take(("t", "1")) is None, "a loop is resumed once"


def test_large_journals_leave_first_in_first_out_and_one_beyond_the_limit_is_never_kept() -> None:
    kept = SuspendedRuns()
    kept.keep(("t", "old"), suspended(MAX_SUSPENDED_BYTES))
    kept.keep(("t", "new"), suspended(1))
    assert kept.take(("t", "old")) is None
    kept.keep(("t", "huge"), suspended(MAX_SUSPENDED_BYTES + 1))
    assert kept.take(("t", "huge")) is None
    kept.keep(("t", "a"), suspended())
    kept.clear()
    assert kept.take(("t", "a")) is None
