"""Attack: what waits for somebody who was away is found by a timer, long after they are back.

Source: issue K1b, class I; docs/application.md, "What is promised".
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from contextos.contracts.documents.subscriptions import SUBSCRIPTIONS, UNDELIVERED
from contextos.deployment.deployment import wake_orphans
from contextos.errors import ContextOSError, DestinationGone, InvalidInput, LostReply, Problem, Unavailable
from contextos.service.subscriptions import PROBE_US
from tests.e2e.test_heartbeats import two
from tests.unit.service.outbox.test_sending import Receiver, outbox
from tests.world import TENANT, open_world, request, run

POLL_US = 500_000


@pytest.mark.parametrize("fault", [Unavailable("desk", "no answer"), LostReply("lost")], ids=["away", "lost"])
def test_a_receiver_that_was_down_gets_everything_within_seconds_of_its_return(
    tmp_path: Path, stores: str, fault: ContextOSError
) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path, stores=stores), Receiver()
        box = await outbox(world, desk, max_attempts=20)
        desk.fault = fault
        made = [(await world.invoke(request(900, f"req_{number}"))).run_id for number in range(6)]
        for _ in range(150_000_000 // POLL_US):
            await box.deliver()
            world.clock.at_us += POLL_US
        assert desk.took == []
        # Asking whether it is back takes nothing from the attempts.
        assert await UNDELIVERED.page(world.stores.tenant(TENANT)) == []
        desk.fault = None
        for _ in range(2 * PROBE_US // POLL_US):
            await box.deliver()
            world.clock.at_us += POLL_US
        assert sorted(one.run_id for one in desk.took) == sorted(made)
        await world.aclose()

    run(act())


def test_a_notice_that_is_refused_holds_up_nobody_and_is_tried_as_rarely_as_before(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, max_attempts=5)
        desk.fault = InvalidInput(Problem("", "x", "no such field", "leave it out"))
        await world.invoke(request(900, "req_1"))
        for _ in range(60_000_000 // POLL_US):
            await box.deliver()
            world.clock.at_us += POLL_US
        assert desk.tries == 5
        [lost] = await UNDELIVERED.page(world.stores.tenant(TENANT))
        assert lost.body.failures == 5
        await world.aclose()

    run(act())


def test_no_reminder_goes_to_a_receiver_that_says_it_is_gone(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, remind_after_s=60)
        for number in (1, 2):
            await world.invoke(request(4200, f"req_{number}"))
        await box.deliver()
        desk.fault, before = DestinationGone("desk.example:443"), desk.tries
        for _ in range(10):
            world.clock.at_us += 90_000_000
            await box.deliver()
        assert desk.tries == before + 1
        await world.aclose()

    run(act())


@pytest.mark.parametrize("when", ["at once", "after it was away"])
def test_a_receiver_that_says_it_is_gone_is_called_never_again(tmp_path: Path, stores: str, when: str) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path, stores=stores), Receiver()
        box = await outbox(world, desk)
        await world.invoke(request(900, "req_1"))
        await world.invoke(request(900, "req_2"))
        if when != "at once":
            desk.fault = Unavailable("desk", "no answer")
            await box.deliver()
            world.clock.at_us += PROBE_US
        desk.fault, before = DestinationGone("desk.example:443"), desk.tries
        await box.deliver()
        await world.invoke(request(900, "req_3"))
        # Another process that begins has the same from the record.
        again = await outbox(world, desk)
        for _ in range(10):
            world.clock.at_us += 600_000_000
            await again.deliver()
            await box.deliver()
        assert desk.tries == before + 1
        store = world.stores.tenant(TENANT)
        [lost] = await UNDELIVERED.page(store)
        assert "says that it is gone" in lost.body.detail
        known = await SUBSCRIPTIONS.one(store, box.name)
        assert known is not None
        assert "under another name" in known.body.ended
        await world.aclose()

    run(act())


@pytest.mark.parametrize("mode", ["batch", "long_running"])
def test_what_a_killed_server_was_answering_is_due_at_once(tmp_path: Path, stores: str, mode: str) -> None:
    async def act() -> None:
        both = await two(tmp_path, mode=mode, stores=stores)
        due = both.world.stores.due
        await both.later(5_000_000, beating=False)
        await wake_orphans(both.other)
        assert [run_id async for _, run_id in due(both.world.clock.now_us(), limit=9)] == []
        both.other.ports = replace(both.other.ports, alive=lambda owner: owner != "worker_a")
        await wake_orphans(both.other)
        assert [run_id async for _, run_id in due(both.world.clock.now_us(), limit=9)] == [both.run_id]
        assert await both.taken_over()
        await both.finished()
        assert len(both.world.refunds()) == 1
        await both.world.aclose()

    run(act())


def test_the_run_of_a_caller_that_went_away_in_mid_call_is_due_at_once(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        both = await two(tmp_path, mode="batch", stores=stores)
        both.drive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await both.drive
        due = [run_id async for _, run_id in both.world.stores.due(both.world.clock.now_us(), limit=9)]
        assert due == [both.run_id]
        # It is anybody's, although the process of that caller lives.
        assert await both.taken_over()
        assert (await both.world.kinds(both.run_id)).count("run.resumed") == 1
        await both.world.aclose()

    run(act())
