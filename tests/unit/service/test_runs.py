"""`app.runs`: lists, single runs, stories and events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.journal import INDEX, Batch, Draft
from contextos.errors import Integrity, InvalidInput, NotFound
from contextos.service.runs import Runs
from tests.sessions import REFUND, in_world, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld, open_world, request, run


async def three_runs(world: TestWorld) -> list[str]:
    """A run that is decided, one that waits, and one whose approval was denied, in this order."""
    made = [(await world.invoke(request(amount, f"req_{amount}"))).run_id for amount in (900, 4200, 4300)]
    await world.approve(made[2], "denied")
    return made


async def pages(runs: Runs, **asked: Any) -> list[list[str]]:
    found, cursor = [], ""
    while True:
        page = await runs.list(TENANT, cursor=cursor, **asked)
        found.append([one.run_id for one in page.items])
        if page.cursor is None:
            return found
        cursor = page.cursor


def test_a_list_gives_others_a_turn_at_every_run(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await three_runs(world)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        before = turns
        await world.runs().list(TENANT, state="erased")
        task.cancel()
        assert turns - before >= 3

    run(act())


def test_runs_are_listed_newest_first_in_pages_and_by_state(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        decided, waits, denied = await three_runs(world)
        runs = world.runs()
        assert await pages(runs) == [[denied, waits, decided]]
        assert await pages(runs, limit=2) == [[denied, waits], [decided]]
        assert await pages(runs, state="waiting") == [[waits]]
        assert await pages(runs, state="completed") == [[decided]]
        assert await pages(runs, state="rejected") == [[denied]]
        assert await pages(runs, state="resolved") == [[]]
        agent = str((await runs.get(TENANT, waits)).agent_id)
        assert await pages(runs, agent_ids=["agt_other", agent]) == [[denied, waits, decided]]
        assert await pages(runs, agent_ids=["agt_other"]) == [[]]
        assert await pages(runs, agent_ids=[]) == [[]]

    run(act())


def test_a_run_is_found_by_its_id_and_by_its_request(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        decided, waits, _ = await three_runs(world)
        runs = world.runs()
        found = await runs.get(TENANT, "req_900")
        assert found == await runs.get(TENANT, decided)
        assert (found.run_id, found.intent, found.state, found.ended) == (decided, "support.refund", "completed", True)
        assert isinstance(found.record, DecisionRecord)
        assert (found.status, found.record.status, found.fault) == ("DECIDED", "DECIDED", None)
        asked = await runs.get(TENANT, waits)
        assert (asked.waits_for, asked.status, asked.ended) == ("approval", "DEFERRED", False)
        for name in ("run_0000000000000000", "req_nobody_made"):
            with pytest.raises(NotFound, match="there is no run"):
                await runs.get(TENANT, name)

    run(act())


def test_a_timeline_has_the_parts_of_the_story_in_order(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        decided, *_ = await three_runs(world)
        runs = world.runs()
        timeline = await runs.timeline(await runs.get(TENANT, decided))
        titles = [part.title for part in timeline.parts]
        assert titles[:3] == ["What was asked", "What it knew", "What it was allowed"]
        assert timeline.parts[0].moments[0].text == "Refund order ord_881 for INR 900."
        assert timeline.fault is None

    run(act())


def test_events_are_numbered_without_gaps_and_go_on_behind_a_cursor(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        runs = world.runs()
        assert [one async for one in runs.events(TENANT)] == []
        start = await runs.position(TENANT)
        decided, waits, denied = await three_runs(world)
        events = [one async for one in runs.events(TENANT, after=start)]
        assert [one.sequence for one in events] == list(range(1, len(events) + 1))
        assert {one.fault for one in events} == {None}

        def of(run_id: str) -> list[str]:
            return [one.event for one in events if one.run_id == run_id and one.event != "run.dispatched"]

        assert of(decided) == ["run.began", "run.ended"]
        assert of(waits) == ["run.began", "run.waiting"]
        assert of(denied) == ["run.began", "run.waiting", "approval.answered", "run.ended"]
        assert {one.waits_for for one in events if one.event == "run.waiting"} == {"approval"}
        for number, event in enumerate(events):
            assert [one async for one in runs.events(TENANT, after=event.cursor)] == events[number + 1 :]
        assert await runs.position(TENANT) == events[-1].cursor

    run(act())


def test_a_state_that_is_none_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        with pytest.raises(InvalidInput, match="did you mean `completed`"):
            await world.runs().list(TENANT, state="complete")

    run(act())


def test_the_stream_of_a_run_is_resumed_behind_any_event_while_the_run_goes_on(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        runs, run_id = world.runs(), (await world.invoke(request(4200, "req_1"))).run_id
        seen = [one async for one in runs.stream(TENANT, "req_1")]
        assert seen[-1].type != "RUN_FINISHED"
        await world.approve(run_id)
        more = [one async for one in runs.stream(TENANT, run_id, after=seen[-1].id, wait=True)]
        assert more[-1].type == "RUN_FINISHED"
        assert seen + more == [one async for one in runs.stream(TENANT, run_id)]
        for number, one in enumerate(seen + more, 1):
            rest = [another async for another in runs.stream(TENANT, run_id, after=one.id)]
            assert (seen + more)[:number] + rest == seen + more

    run(act())


def test_a_stream_that_waits_gets_what_happens_later_once(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        seen: list[str] = []
        answered: list[Any] = []
        async for one in world.runs().stream(TENANT, run_id, wait=True):
            seen.append(one.id)
            if one.members.get("name") == "contextos.record.revised" and not answered:
                answered.append(await world.approve(run_id))
        assert seen == [one.id async for one in world.runs().stream(TENANT, run_id)]

    run(act())


def test_a_stream_of_another_tenants_run_is_that_of_no_run_and_an_altered_one_is_refused(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        runs, run_id = world.runs(), (await world.invoke(request(900, "req_1"))).run_id
        said = []
        for tenant, name in (("tenant_other", run_id), ("tenant_other", "run_0000000000000000")):
            with pytest.raises(NotFound) as refused:
                _ = [one async for one in runs.stream(tenant, name)]
            said.append(str(refused.value).replace(name, "NAME"))
        assert said[0] == said[1]
        other = [one async for one in runs.stream(TENANT, run_id)][-1].id
        second = (await world.invoke(request(900, "req_2"))).run_id
        with pytest.raises(InvalidInput, match="not an event of this run"):
            _ = [one async for one in runs.stream(TENANT, second, after=other)]
        store = world.stores.tenant(TENANT)
        begun = (await store.read(run_id, limit=1))[0]
        body = canonical({"run": run_id, "entries": begun.seq, "head": begun.hash})
        forged = Draft("run.closed", run_id, begun.at_us, "runtime", body, bytes(16))
        await store.commit(Batch(run=run_id, shared=((INDEX, forged),)))
        with pytest.raises(Integrity, match="contextos verify"):
            _ = [one async for one in runs.stream(TENANT, run_id)]

    run(act())


def test_why_says_who_authorised_and_refuses_a_tool_that_the_run_does_not_know(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        runs, run_id = world.runs(), (await world.invoke(request(4200, "req_1"))).run_id
        await world.approve(run_id)
        asked = await runs.get(TENANT, run_id)
        found = await runs.why(asked, tool="adp_payments.issue_refund")
        assert found.fault is None
        assert "user_finance_lead_77 approved it (proof: jws): test" in [one.text for one in found.reasons]
        with pytest.raises(InvalidInput, match="did you mean"):
            await runs.why(asked, tool="adp_payments.isue_refund")

    run(act())


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_run_whose_question_was_answered_waits_for_no_person(tmp_path: Path, verdict: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        asked = [(await world.invoke(request(4200, f"req_{number}"))).run_id for number in range(2)]
        await world.answer(asked[0], verdict)
        waiting = await world.runs().list(TENANT, waiting=True)
        assert [(one.run_id, one.waits_for) for one in waiting.items] == [(asked[1], "approval")]
        every = await world.runs().list(TENANT)
        assert {one.run_id: one.waits_for for one in every.items} == {asked[0]: "engine", asked[1]: "approval"}

    run(act())


def test_a_session_that_waits_for_its_agent_waits_for_no_person(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        await refund_session(world, "ses_open")
        gate = await refund_session(world, "ses_asks")
        await read_first(gate)
        await gate.call(REFUND, refund_args(), call_id="pay")
        for search in ({}, {"user_id": "usr_771"}):
            waiting = await world.runs().list(TENANT, waiting=True, **search)
            assert [(one.run_id, one.waits_for) for one in waiting.items] == [(gate.run_id, "approval")]

    in_world(tmp_path, play)
