"""What a failed drive leaves behind: a log record with its run, its class and its frames, and at last a dead letter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from contextos.contracts.journal import Batch, Draft, genesis, link
from contextos.workspace.engine.failure_tracker import FIRST_RETRY_MS, HEARTBEAT, SWEEP, FailureTracker, log_dead_letter
from contextos_sim.memory.stores import MemoryStores
from tests.world import ManualClock

RUN = ("acme", "run_a")
SECRET = "hunter2-of-the-vendor"


def failure(text: str = SECRET) -> Exception:
    try:
        raise KeyError(text)
    except KeyError as error:
        return error


def play(scenario: Callable[[FailureTracker, MemoryStores], Awaitable[None]]) -> None:
    async def bounded() -> None:
        stores = MemoryStores(clock=ManualClock())
        async with asyncio.timeout(30):
            await scenario(FailureTracker(stores, ManualClock(), None), stores)
            await asyncio.sleep(0)

    asyncio.run(bounded())


async def begin(stores: MemoryStores) -> None:
    entry = link(*RUN, 1, genesis(*RUN), Draft("run.received", "", 1, "test", b"{}", bytes(16)))
    await stores.tenant("acme").commit(Batch("run_a", entries=(entry,), wake_at_us=1))


def fields(record: logging.LogRecord) -> dict[str, Any]:
    names = ("tenant", "run", "error", "attempt")
    return {name: getattr(record, name) for name in names if hasattr(record, name)}


def test_a_failed_drive_is_logged_with_its_run_and_its_frames_and_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(tracker: FailureTracker, stores: MemoryStores) -> None:
        tracker.report(RUN, failure())

    with caplog.at_level(logging.DEBUG, "contextos.workspace.engine"):
        play(scenario)
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "drive failed")
    assert fields(record) == {"tenant": "acme", "run": "run_a", "error": "KeyError"}
    assert record.exc_info is None
    [name, frame] = vars(record)["traceback"]
    assert name == "KeyError"
    assert frame.endswith("in failure")
    assert SECRET not in str(vars(record))


def test_a_failure_is_logged_again_only_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(tracker: FailureTracker, stores: MemoryStores) -> None:
        for text in ("one", "one", "two"):
            tracker.report(RUN, failure(text))
        tracker.forget(RUN)
        tracker.report(RUN, failure("two"))

    with caplog.at_level(logging.DEBUG, "contextos.workspace.engine"):
        play(scenario)
    assert [record.getMessage() for record in caplog.records] == ["drive failed"] * 3


@pytest.mark.parametrize(("key", "message"), [(SWEEP, "sweep failed"), (HEARTBEAT, "heartbeats failed")])
def test_a_failure_of_the_worker_is_logged_without_a_run(
    caplog: pytest.LogCaptureFixture, key: tuple[str, str], message: str
) -> None:
    async def scenario(tracker: FailureTracker, stores: MemoryStores) -> None:
        tracker.report(key, failure())

    with caplog.at_level(logging.DEBUG, "contextos.workspace.engine"):
        play(scenario)
    [record] = caplog.records
    assert record.getMessage() == message
    assert fields(record) == {"error": "KeyError"}


def test_the_second_failure_over_one_journal_is_logged_as_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(tracker: FailureTracker, stores: MemoryStores) -> None:
        await begin(stores)
        assert await tracker.retry_delay_ms(RUN, failure()) == FIRST_RETRY_MS
        assert not caplog.records
        assert await tracker.retry_delay_ms(RUN, failure()) is None

    with caplog.at_level(logging.DEBUG, "contextos.workspace.engine"):
        play(scenario)
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "dead letter added")
    assert fields(record) == {"tenant": "acme", "run": "run_a", "attempt": 2}


def test_a_dead_letter_without_known_attempts_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "contextos.workspace.engine"):
        log_dead_letter(RUN)
    assert [fields(record) for record in caplog.records] == [{"tenant": "acme", "run": "run_a", "attempt": None}]
