"""`EventDelivery`: each subscriber has a task of its own, and stopping leaves the rest to another process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from contextos.deployment.queries.run_events import RunEvent
from contextos.errors import InvalidInput, Unavailable
from contextos.service.subscriptions import Subscriber
from contextos.store.shared.clock import SystemClock
from contextos.workspace.engine.event_delivery import EventDelivery
from tests.world import TENANT, TestWorld, open_world, request, run


def to(world: TestWorld, handler: Callable[[RunEvent], Awaitable[None]], name: str = "inbox") -> Subscriber:
    return Subscriber(world.deployment, TENANT, name, ("run.ended",), handler)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110 - what is waited for is in a handler
            await asyncio.sleep(0.01)


def test_a_handler_that_waits_for_ever_holds_up_no_other_subscriber(tmp_path: Path) -> None:
    async def act() -> None:
        world, delivery, seen, stuck = await open_world(tmp_path, clock=SystemClock()), EventDelivery(), [], []

        async def record(event: RunEvent) -> None:
            seen.append(event.run_id)

        async def wait(event: RunEvent) -> None:
            stuck.append(event.run_id)
            await asyncio.Event().wait()

        await delivery.begin(to(world, wait, "slow"))
        await delivery.begin(to(world, record))
        made = [(await world.invoke(request(900, f"req_{number}"))).run_id for number in range(3)]
        await until(lambda: len(seen) == 3 and len(stuck) == 1)
        assert seen == made
        await delivery.stop()

    run(act())


def test_what_was_stopped_in_its_handler_is_delivered_by_the_next_one(tmp_path: Path) -> None:
    async def act() -> None:
        world, seen, begun = await open_world(tmp_path, clock=SystemClock()), [], []
        first, second = EventDelivery(), EventDelivery()

        async def interrupted(event: RunEvent) -> None:
            begun.append(event.run_id)
            await asyncio.Event().wait()

        async def record(event: RunEvent) -> None:
            seen.append(event.run_id)

        await first.begin(to(world, interrupted))
        run_id = (await world.invoke(request(900, "req_1"))).run_id
        await until(lambda: begun == [run_id])
        await first.stop()
        await second.begin(to(world, record))
        await until(lambda: seen == [run_id])
        await second.stop()

    run(act())


def test_a_name_is_used_once_in_a_process(tmp_path: Path) -> None:
    async def act() -> None:
        world, delivery = await open_world(tmp_path, clock=SystemClock()), EventDelivery()

        async def record(_event: RunEvent) -> None: ...

        await delivery.begin(to(world, record))
        with pytest.raises(InvalidInput, match="this process has a subscriber `inbox`"):
            await delivery.begin(to(world, record))
        await delivery.stop()
        await delivery.begin(to(world, record))
        delivery.close()

    run(act())


def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextos.workspace.engine.event_delivery.FAULT_PAUSE_S", 0.01)

    async def act() -> None:
        world, delivery, seen, faults = await open_world(tmp_path, clock=SystemClock()), EventDelivery(), [], []

        async def record(event: RunEvent) -> None:
            seen.append(event.run_id)

        inbox = to(world, record)
        deliver = Subscriber.deliver

        async def fails_at_first(self: Subscriber) -> int:
            if len(faults) < 3:
                faults.append(Unavailable("store", "it is restarted"))
                raise faults[-1]
            return await deliver(self)

        monkeypatch.setattr(Subscriber, "deliver", fails_at_first)
        await delivery.begin(inbox)
        run_id = (await world.invoke(request(900, "req_1"))).run_id
        await until(lambda: seen == [run_id])
        assert len(faults) == 3
        assert (await world.runs().get(TENANT, run_id)).state == "completed"
        await delivery.stop()

    run(act())
