"""Subscribers: every event reaches its handler, in order per run, and what fails waits alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.subscriptions import SUBSCRIPTIONS
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX, Batch, Draft
from contextos.deployment.queries.run_events import RUN_EVENTS, RunEvent
from contextos.errors import Integrity, InvalidInput, NotFound, Unavailable
from contextos.service import subscriptions
from contextos.service.subscriptions import Subscriber
from tests.world import TENANT, TestWorld, open_world, request, run

ENDS = ("run.waiting", "run.ended")


class Recorder:
    """A handler that keeps what it was called with, and fails where the test says."""

    def __init__(self, fails: Callable[[RunEvent], bool] = lambda _event: False) -> None:
        self.seen: list[RunEvent] = []
        self.tried: list[RunEvent] = []
        self.fails = fails

    async def handle(self, event: RunEvent) -> None:
        self.tried.append(event)
        if self.fails(event):
            raise RuntimeError("the mail server is down")
        self.seen.append(event)

    def said(self) -> list[tuple[str, str]]:
        return [(one.run_id, one.event) for one in self.seen]


async def subscriber(world: TestWorld, recorder: Recorder, name: str = "inbox", events: Any = ENDS) -> Subscriber:
    made = Subscriber(world.deployment, TENANT, name, events, recorder.handle)
    await made.register()
    return made


def test_only_what_happens_after_the_registration_is_delivered_and_each_once(tmp_path: Path) -> None:
    async def act() -> None:
        world, recorder = await open_world(tmp_path), Recorder()
        await world.invoke(request(900, "req_before"))
        inbox = await subscriber(world, recorder)
        await inbox.deliver()
        assert recorder.said() == []
        first = (await world.invoke(request(900, "req_1"))).run_id
        second = (await world.invoke(request(4200, "req_2"))).run_id
        await inbox.deliver()
        assert recorder.said() == [(first, "run.ended"), (second, "run.waiting")]
        await inbox.deliver()
        again = await subscriber(world, recorder)
        await inbox.release()
        await again.deliver()
        await world.approve(second)
        await again.deliver()
        assert recorder.said() == [(first, "run.ended"), (second, "run.waiting"), (second, "run.ended")]

    run(act())


def test_a_handler_that_fails_holds_back_its_run_alone_and_is_tried_again_after_growing_waits(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        broken = (await world.invoke(request(4200, "req_broken"))).run_id
        down = [True]
        recorder = Recorder(lambda event: down[0] and event.run_id == broken)
        inbox = await subscriber(world, recorder, events=RUN_EVENTS)
        await world.approve(broken)
        other = (await world.invoke(request(900, "req_other"))).run_id
        await inbox.deliver()
        assert {one.run_id for one in recorder.seen} == {other}
        assert [one.event for one in recorder.tried if one.run_id == broken] == ["approval.answered"]
        waits = []
        for _ in range(11):
            began_us, tries = world.clock.at_us, len(recorder.tried)
            while len(recorder.tried) == tries:
                await inbox.deliver()
                world.clock.at_us += 100_000
            waits.append((world.clock.at_us - began_us) / 1e6)
        assert waits == sorted(waits)
        assert waits[0] < 2
        assert 290 < waits[-1] < 310, "the longest wait is five minutes"
        down[0] = False
        world.clock.at_us += 300_000_000
        await inbox.deliver()
        events = [one async for one in world.runs().events(TENANT)]
        assert sorted(one.sequence for one in recorder.seen) == [one.sequence for one in events][-len(recorder.seen) :]
        for run_id in (broken, other):
            delivered = [one.sequence for one in recorder.seen if one.run_id == run_id]
            assert delivered == sorted(delivered)

    run(act())


def test_a_subscriber_with_too_many_held_runs_delivers_no_new_event_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_HELD_RUNS", 2)

    async def act() -> None:
        world, down = await open_world(tmp_path), [True]
        recorder = Recorder(lambda _event: down[0])
        inbox = await subscriber(world, recorder)
        made = [(await world.invoke(request(900, f"req_{number}"))).run_id for number in range(5)]
        await inbox.deliver()
        assert [one.run_id for one in recorder.tried] == made[:2]
        down[0] = False
        world.clock.at_us += 2_000_000
        await inbox.deliver()
        assert sorted(run_id for run_id, _ in recorder.said()) == sorted(made)

    run(act())


def test_events_that_a_subscriber_did_not_name_are_passed(tmp_path: Path) -> None:
    async def act() -> None:
        world, recorder = await open_world(tmp_path), Recorder()
        inbox = await subscriber(world, recorder, events=("run.waiting",))
        await world.invoke(request(900, "req_1"))
        assert await inbox._take_lease()
        assert [await inbox._deliver_page() for _ in range(2)] == [True, False]
        assert inbox._body.cursor == await world.runs().position(TENANT)
        assert recorder.tried == []

    run(act())


def test_two_names_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async def act() -> None:
        world, good, bad = await open_world(tmp_path), Recorder(), Recorder(lambda _event: True)
        mail, page = await subscriber(world, bad, "mail"), await subscriber(world, good, "page")
        await world.invoke(request(900, "req_1"))
        await mail.deliver()
        await page.deliver()
        assert (len(bad.tried), len(good.seen)) == (1, 1)

    run(act())


def test_one_of_two_processes_delivers_and_the_other_takes_over_when_it_is_gone(tmp_path: Path) -> None:
    async def act() -> None:
        first = await open_world(tmp_path, stores="sqlite")
        second = await open_world(tmp_path, stores="sqlite")
        one, two = Recorder(), Recorder()
        mine, theirs = await subscriber(first, one), await subscriber(second, two)
        made = [(await first.invoke(request(900, "req_1"))).run_id]
        await mine.deliver()
        made.append((await first.invoke(request(900, "req_2"))).run_id)
        await theirs.deliver()
        assert (len(one.seen), len(two.seen)) == (1, 0)
        first.close()
        await theirs.deliver()
        assert [event.run_id for event in (*one.seen, *two.seen)] == made
        second.close()

    run(act())


def test_a_process_that_hangs_or_hands_over_is_followed_by_another(tmp_path: Path) -> None:
    async def act() -> None:
        first = await open_world(tmp_path, stores="sqlite")
        second = await open_world(tmp_path, stores="sqlite")
        one, two = Recorder(), Recorder()
        mine, theirs = await subscriber(first, one), await subscriber(second, two)
        await mine.deliver()
        await first.invoke(request(900, "req_1"))
        await theirs.deliver()
        assert two.seen == [], "the first process is alive"
        second.clock.at_us = first.clock.at_us + subscriptions.LEASE_US
        await theirs.deliver()
        assert len(two.seen) == 1, "its lease is over"
        await theirs.release()
        await first.invoke(request(900, "req_2"))
        first.clock.at_us = second.clock.at_us
        for _ in range(2):
            await mine.deliver()
        assert len(one.seen) == 1, "the second has handed over"
        first.close()
        second.close()

    run(act())


def test_a_delivery_that_is_cancelled_while_it_writes_still_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        inbox = await subscriber(world, Recorder())
        store = world.deployment.ports.stores.tenant(TENANT)
        commit = type(store).commit

        async def cancelled(self: Any, batch: Batch) -> None:
            await commit(self, batch)
            raise asyncio.CancelledError

        with monkeypatch.context() as patched:
            patched.setattr(type(store), "commit", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await inbox.deliver()
        assert (await SUBSCRIPTIONS.one(store, "inbox")).body.owner == world.deployment.ports.owner
        await inbox.release()
        assert (await SUBSCRIPTIONS.one(store, "inbox")).body.owner == ""

    run(act())


def test_a_delivery_that_succeeds_begins_the_waits_anew(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        down = ["run.waiting", "run.ended"]
        recorder = Recorder(lambda event: event.event in down)
        inbox = await subscriber(world, recorder)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        for _ in range(4):
            await inbox.deliver()
            world.clock.at_us += subscriptions.MAX_RETRY_US
        assert [one.failures for one in inbox._body.held] == [4]
        await world.approve(run_id)
        await inbox.deliver()
        assert [one.failures for one in inbox._body.held] == [5]
        world.clock.at_us += subscriptions.MAX_RETRY_US
        down.remove("run.waiting")
        await inbox.deliver()
        assert [one.failures for one in inbox._body.held] == [1]

    run(act())


def test_a_process_that_lost_its_lease_stops_at_the_first_event_whose_delivery_it_cannot_record(tmp_path: Path) -> None:
    async def act() -> None:
        world, one, two = await open_world(tmp_path), Recorder(), Recorder()
        mine, theirs = await subscriber(world, one), await subscriber(world, two)
        await mine.deliver()
        theirs._stored = mine._stored
        await world.invoke(request(900, "req_1"))
        await theirs.deliver()
        await world.invoke(request(900, "req_2"))
        await mine.deliver()
        assert (len(one.seen), len(two.seen)) == (1, 1), "it repeats one event, and then stops"
        await mine.deliver()
        assert {event.sequence for event in (*one.seen, *two.seen)} == {
            event.sequence async for event in world.runs().events(TENANT) if event.event == "run.ended"
        }

    run(act())


def test_an_event_that_its_run_does_not_show_is_not_delivered(tmp_path: Path) -> None:
    async def act() -> None:
        world, recorder = await open_world(tmp_path), Recorder()
        inbox = await subscriber(world, recorder)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        entries = await world.stores.tenant(TENANT).read(run_id)
        body = canonical({"run": run_id, "entries": len(entries), "head": entries[-1].hash})
        forged = Draft("run.closed", run_id, entries[-1].at_us, "runtime", body, bytes(16))
        await inbox.deliver()
        await world.stores.tenant(TENANT).commit(Batch(run=run_id, shared=((INDEX, forged),)))
        await inbox.deliver()
        assert recorder.said() == [(run_id, "run.waiting")]
        assert len(recorder.tried) == 1

    run(act())


def test_a_handler_that_hangs_is_cancelled_and_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "HANDLER_TIMEOUT_MS", 20)

    async def act() -> None:
        world, ended, slow = await open_world(tmp_path), list[str](), [True]

        async def handle(event: RunEvent) -> None:
            if slow[0]:
                await asyncio.Event().wait()
            ended.append(event.run_id)

        inbox = Subscriber(world.deployment, TENANT, "inbox", ("run.ended",), handle)
        await inbox.register()
        run_id = (await world.invoke(request(900, "req_1"))).run_id
        await inbox.deliver()
        slow[0] = False
        world.clock.at_us += 2_000_000
        await inbox.deliver()
        assert ended == [run_id]

    run(act())


async def no_handler(_event: RunEvent) -> None: ...


@pytest.mark.parametrize(
    ("name", "events", "handler", "says"),
    [
        ("inbox", ("run.end",), no_handler, "did you mean `run.ended`"),
        ("inbox", (), no_handler, "no event is named"),
        ("", ENDS, no_handler, "a printable name"),
        ("x" * 200, ENDS, no_handler, "a printable name"),
        ("inbox", ENDS, print, "not an `async def` function"),
    ],
    ids=["unknown event", "no event", "no name", "long name", "synchronous"],
)
def test_a_subscriber_that_cannot_work_is_refused_with_the_remedy(
    tmp_path: Path, name: str, events: Any, handler: Any, says: str
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        with pytest.raises(InvalidInput, match=says):
            Subscriber(world.deployment, TENANT, name, events, handler)

    run(act())


def test_a_tenant_that_the_directory_does_not_have_is_refused_and_stores_nothing(tmp_path: Path) -> None:
    """A name that was mistyped would wait for ever, and invented ones would fill the store."""

    async def act() -> None:
        world = await open_world(tmp_path)
        invented = Subscriber(world.deployment, "tenant_invented", "inbox", ENDS, no_handler)
        with pytest.raises(NotFound, match="no tenant `tenant_invented`"):
            await invented.register()
        assert await SUBSCRIPTIONS.one(world.stores.tenant("tenant_invented"), "inbox") is None

    run(act())


def test_a_name_belongs_to_its_events(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await subscriber(world, Recorder())
        with pytest.raises(InvalidInput, match="use another name for other events"):
            await subscriber(world, Recorder(), events=("run.ended",))
        await subscriber(world, Recorder(), events=ENDS[::-1])

    run(act())


def test_a_cursor_that_the_index_does_not_have_stops_the_subscriber(tmp_path: Path) -> None:
    async def act() -> None:
        from dataclasses import replace

        world = await open_world(tmp_path)
        inbox = await subscriber(world, Recorder())
        await inbox.deliver()
        await inbox._write(replace(inbox._body, cursor="7." + "0" * 32))
        with pytest.raises(Integrity, match="subscribe under another name"):
            await inbox.deliver()

    run(act())


def test_an_event_that_is_always_refused_waits_longer_each_time_whatever_is_delivered_beside_it(tmp_path: Path) -> None:
    async def act() -> None:
        world, refused = await open_world(tmp_path), set[str]()

        async def handle(event: RunEvent) -> None:
            if event.run_id in refused:
                raise Unavailable("desk", "it answers 500")

        inbox = Subscriber(world.deployment, TENANT, "inbox", ENDS, handle)
        await inbox.register()
        refused.add((await world.invoke(request(900, "req_bad"))).run_id)
        for number in range(8):
            await world.invoke(request(900, f"req_{number}"))
            await inbox.deliver()
        [held] = inbox._body.held
        assert held.run in refused
        assert held.failures == 1, "none of its times came"

    run(act())
