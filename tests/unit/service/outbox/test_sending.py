"""The outbox: at least once, in order per run, whatever does not answer and whatever is killed."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.subscriptions import REMINDERS, UNDELIVERED
from contextos.errors import NotFound, Unavailable
from contextos.service.outbox.notices import NOTICE_TYPES, Notice
from contextos.service.outbox.sending import REMIND_EVERY_US, Outbox
from contextos.service.subscriptions import Subscriber
from tests.world import TENANT, TestWorld, open_world, request, run

LINK = "https://console.acme.example/runs/{run}"


class Killed(BaseException):
    """The process is gone before it stores that a notice was sent."""


class Receiver:
    """A destination that is down where the test says. The process dies behind the `dies_behind`th notice."""

    def __init__(self, dies_behind: int = 0) -> None:
        self.down = self.dead = False
        self.fault: Exception | None = None
        self.took: list[Notice] = []
        self.tries = 0
        self.dies_behind = dies_behind

    async def send(self, notice: Notice) -> None:
        self.tries += 1
        if self.fault:
            raise self.fault
        if self.down:
            raise Unavailable("desk.example:443", "it answered with the status 503")
        self.took.append(notice)
        if len(self.took) == self.dies_behind:
            self.dead = True

    def said(self, run_id: str | None = None) -> list[str]:
        return [one.type for one in self.took if run_id in (None, one.run_id)]


async def outbox(world: TestWorld, receiver: Receiver, **changes: Any) -> Outbox:
    given = {"destination": "desk", "types": NOTICE_TYPES, "link": LINK, "remind_after_s": 0, "max_attempts": 50}
    made = Outbox(deployment=world.deployment, tenant_id=TENANT, send=receiver.send, **{**given, **changes})
    await made.register()
    return made


def test_asked_decided_and_finished_are_sent_once_each_with_a_link_and_no_argument(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk)
        run_id = (await world.invoke(request(4217, "req_1"))).run_id
        await box.deliver()
        await world.approve(run_id)
        await box.deliver()
        await box.deliver()
        assert desk.said() == ["question.asked", "question.decided", "run.finished"]
        asked, decided, finished = (json.loads(one.body()) for one in desk.took)
        assert asked["data"]["required_role"] == "finance_lead"
        assert asked["data"]["capability_id"] == "adp_payments.issue_refund"
        assert (decided["data"]["verdict"], decided["data"]["by"]) == ("approved", "user_finance_lead_77")
        assert finished["data"]["end"] == "completed"
        assert {one["data"]["link"] for one in (asked, decided, finished)} == {LINK.replace("{run}", run_id)}
        said = "".join(one.body().decode() + one.text() + one.subject() for one in desk.took)
        assert [word for word in ("4217", "ord_881", "eyJ") if word in said] == []
        assert "approves nothing" in desk.took[0].text()
        assert len({one.id for one in desk.took}) == 3

    run(act())


def test_while_the_receiver_is_down_nothing_is_lost_and_everything_arrives_in_order_per_run(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk)
        desk.down = True
        made = []
        for number in range(4):
            made.append((await world.invoke(request(4200 + number if number % 2 else 900, f"req_{number}"))).run_id)
            await box.deliver()
            if number % 2:
                await world.approve(made[-1])
            world.clock.at_us += 2_000_000
            await box.deliver()
        assert desk.took == []
        assert desk.tries > 4
        desk.down = False
        for _ in range(40):
            world.clock.at_us += 60_000_000
            await box.deliver()
        for number, run_id in enumerate(made):
            whole = ["question.asked", "question.decided", "run.finished"] if number % 2 else ["run.finished"]
            assert desk.said(run_id) == whole
        assert await UNDELIVERED.page(world.stores.tenant(TENANT)) == []

    run(act())


@pytest.mark.parametrize("dies_behind", range(1, 7))
def test_a_process_that_is_killed_behind_any_notice_loses_none_and_repeats_at_most_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_behind: int
) -> None:
    first, write = Receiver(dies_behind), Subscriber._write

    async def write_while_alive(self: Subscriber, *args: Any) -> None:
        if first.dead:
            raise Killed
        await write(self, *args)

    async def act() -> None:
        world = await open_world(tmp_path)
        monkeypatch.setattr(Subscriber, "_write", write_while_alive)
        box = await outbox(world, first)
        for number in range(2):
            await world.approve((await world.invoke(request(4200 + number, f"req_{number}"))).run_id)
        with pytest.raises(Killed):
            await box.deliver()
        first.dead = False
        # The next process: the same owner in this test, so that the lease is its own.
        second = Receiver()
        await (await outbox(world, second)).deliver()
        ids = [one.id for one in first.took], [one.id for one in second.took]
        assert len({*ids[0], *ids[1]}) == 6
        assert ids[0][-1] == ids[1][0], "what was in flight has the same id"
        assert len(ids[0]) + len(ids[1]) == 7
        by_run = defaultdict(list)
        for one in (*first.took, *second.took):
            by_run[one.run_id].append(one.sequence)
        assert all(a <= b for each in by_run.values() for a, b in pairwise(each))

    run(act())


def test_what_nobody_takes_is_given_up_on_record_and_the_next_one_follows(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, max_attempts=3)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        await world.approve(run_id)
        desk.down = True
        for _ in range(2):
            await box.deliver()
            world.clock.at_us += 10_000_000
        assert await UNDELIVERED.page(world.stores.tenant(TENANT)) == []
        desk.down = False

        async def refuse_questions(notice: Notice) -> None:
            if notice.type == "question.asked":
                raise Unavailable("desk.example:443", "it answered with the status 400")
            await desk.send(notice)

        box.send = refuse_questions
        await box.deliver()
        (lost,) = [one.body for one in await UNDELIVERED.page(world.stores.tenant(TENANT))]
        assert (lost.run, lost.event, lost.failures) == (run_id, "run.waiting", 3)
        assert "400" in lost.detail
        assert desk.said() == ["question.decided", "run.finished"]

    run(act())


def test_the_first_attempt_is_the_last_where_the_settings_say_so(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, max_attempts=1)
        desk.down = True
        await world.invoke(request(900, "req_1"))
        await box.deliver()
        assert [one.body.failures for one in await UNDELIVERED.page(world.stores.tenant(TENANT))] == [1]

    run(act())


def test_a_question_is_reminded_of_once_after_its_time_and_never_after_its_answer(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, remind_after_s=600)
        waits = (await world.invoke(request(4200, "req_1"))).run_id
        answered = (await world.invoke(request(4300, "req_2"))).run_id
        await box.deliver()
        world.clock.at_us += 300_000_000
        await box.deliver()
        assert desk.said() == ["question.asked", "question.asked"]
        await world.approve(answered, "denied")
        world.clock.at_us += 301_000_000
        for _ in range(3):
            await box.deliver()
            world.clock.at_us += REMIND_EVERY_US
        assert desk.said(waits) == ["question.asked", "question.reminded"]
        assert desk.said(answered) == ["question.asked", "question.decided", "run.finished"]
        again = Receiver()
        await box.release()
        await (await outbox(world, again, remind_after_s=600)).deliver()
        assert again.took == [], "another process knows that it was sent"
        assert desk.took[0].id != next(one.id for one in desk.took if one.type == "question.reminded")

    run(act())


def test_a_reminder_that_is_not_taken_is_tried_again_and_given_up_in_the_end(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, remind_after_s=60, max_attempts=2)
        await world.invoke(request(4200, "req_1"))
        await box.deliver()
        desk.down = True
        world.clock.at_us += 61_000_000
        await box.deliver()
        (known,) = await REMINDERS.page(world.stores.tenant(TENANT))
        assert known.body.failures == 1
        for _ in range(4):
            world.clock.at_us += REMIND_EVERY_US
            await box.deliver()
        (lost,) = [one.body for one in await UNDELIVERED.page(world.stores.tenant(TENANT))]
        assert (lost.event, lost.failures, desk.tries) == ("question.reminded", 2, 3)

    run(act())


def test_a_question_that_was_not_sent_yet_is_not_reminded_of(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, remind_after_s=1)
        desk.down = True
        await world.invoke(request(4200, "req_1"))
        await box.deliver()
        world.clock.at_us += 1_500_000
        desk.down = False
        box._subscriber.handler = lambda _event: desk_fails()  # type: ignore[assignment]
        await box.deliver()
        assert desk.took == []

    async def desk_fails() -> None:
        raise Unavailable("desk.example:443", "it is down")

    run(act())


def test_a_run_that_nobody_answered_needs_a_decision_and_other_types_can_be_left_out(tmp_path: Path) -> None:
    async def act() -> None:
        world, desk = await open_world(tmp_path), Receiver()
        box = await outbox(world, desk, types=("run.escalated",))
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        world.clock.at_us += 90_000_000_000
        await world.deployment.advance(TENANT, run_id)
        await box.deliver()
        assert desk.said() == ["run.escalated"]
        assert "needs a decision" in desk.took[0].subject()

    run(act())


def test_an_outbox_of_a_tenant_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        box = Outbox(world.deployment, "tenant_nobody", "desk", NOTICE_TYPES, LINK, Receiver().send, 0, 1)
        with pytest.raises(NotFound, match="no tenant"):
            await box.register()

    run(act())
