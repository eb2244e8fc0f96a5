"""A stream that is cut anywhere and resumed has no gap and no duplicate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Draft, Entry, link
from contextos.deployment.operator import erase_entry
from contextos.deployment.stream.folding import BEFORE_ALL, StreamEvent, position_of, stream_events
from contextos.errors import InvalidInput
from tests.world import TENANT, TestWorld, open_world, request, run

AG_UI: TypeAdapter[Event] = TypeAdapter(Event)


def behind(entries: Sequence[Entry], after: str) -> list[StreamEvent]:
    last = position_of(entries[0].run, entries, after)
    return [one for one in stream_events(entries) if one.position > last]


async def approved(world: TestWorld) -> tuple[str, Sequence[Entry]]:
    run_id = (await world.invoke(request(4200, "req_1"))).run_id
    await world.approve(run_id)
    return run_id, await world.stores.tenant(TENANT).read(run_id)


def test_cut_behind_every_event_and_resumed_the_union_is_the_stream(tmp_path: Path) -> None:
    async def act() -> None:
        _, entries = await approved(await open_world(tmp_path))
        every = list(stream_events(entries))
        assert len({one.id for one in every}) == len(every) > 40
        assert [one.position for one in every] == sorted(one.position for one in every)
        for number, cut in enumerate(every, 1):
            assert every[:number] + behind(entries, cut.id) == every
        assert behind(entries, "") == every

    run(act())


def test_the_events_of_a_run_that_goes_on_are_those_it_had_and_more(tmp_path: Path) -> None:
    async def act() -> None:
        _, entries = await approved(await open_world(tmp_path))
        every = list(stream_events(entries))
        for length in range(len(entries) + 1):
            part = list(stream_events(entries[:length]))
            assert part == every[: len(part)]

    run(act())


def test_no_event_that_was_not_erased_moves_when_another_is(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id, entries = await approved(world)
        before = {one.id for one in stream_events(entries)}
        for one in entries:
            if one.kind in ("plan.verified", "tool.dispatching", "record.revised"):
                await erase_entry(world.deployment, TENANT, run_id, one.seq, by=world.actor(), reason="law")
        left = list(stream_events(await world.stores.tenant(TENANT).read(run_id)))
        kept = [one for one in left if one.members.get("name") != "contextos.erased"]
        moved = {one.id for one in kept if one.type not in ("STEP_STARTED", "STEP_FINISHED")} - before
        assert moved == set()
        assert left[-1].type == "RUN_FINISHED"

    run(act())


@pytest.mark.parametrize("amount", [900, 4200, 4300])
def test_events_have_the_shapes_and_the_order_of_ag_ui(tmp_path: Path, amount: int) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(amount, "req_1"))).run_id
        if amount > 4000:
            await world.approve(run_id, "approved" if amount == 4200 else "denied")
        every = list(stream_events(await world.stores.tenant(TENANT).read(run_id)))
        steps, calls = [], []
        for one in every:
            parsed = AG_UI.validate_python(one.document())
            assert not parsed.model_extra, "no member that AG-UI does not know"
            if one.type == "STEP_STARTED":
                steps.append(one.members["stepName"])
            elif one.type == "STEP_FINISHED":
                assert steps.pop() == one.members["stepName"]
            elif one.type == "TOOL_CALL_START":
                calls.append(one.members["toolCallId"])
            elif one.type == "TOOL_CALL_END":
                assert calls[-1] == one.members["toolCallId"]
        assert every[0].type == "RUN_STARTED"
        assert every[-1].type == ("RUN_ERROR" if amount == 4300 else "RUN_FINISHED")
        assert steps == []
        assert [one.members["toolCallId"] for one in every if one.type == "TOOL_CALL_RESULT"] == calls
        asked = [one for one in every if one.members.get("name") == "contextos.approval.asked"]
        assert len(asked) == (amount > 4000)

    run(act())


def test_an_id_of_another_run_of_a_lost_entry_or_of_nobody_is_refused(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id, entries = await approved(world)
        last = list(stream_events(entries))[-1].id
        other = (await world.invoke(request(900, "req_2"))).run_id
        changed = last[:-1] + ("0" if last[-1] != "0" else "1")
        beyond = last.replace(f".{len(entries)}.", ".9999.")
        for name in (last.replace(run_id, other), changed, beyond, "x", f"{last}\n", "1.0" * 9999):
            with pytest.raises(InvalidInput, match="not an event of this run"):
                position_of(run_id, entries, name)
        with pytest.raises(InvalidInput):
            position_of(run_id, entries[:-1], last)
        assert position_of(run_id, entries, "") == BEFORE_ALL

    run(act())


def test_a_run_that_an_operator_reopened_starts_again_behind_its_error(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(150_000, "req_1"))).run_id
        entries = list(await world.stores.tenant(TENANT).read(run_id))
        body = canonical({"request_digest": "", "answer": {"by": "otto", "reason": "look again"}})
        draft = Draft("run.reopened", "", entries[-1].at_us, "otto", body, bytes(16))
        entries.append(link(TENANT, run_id, len(entries) + 1, entries[-1].hash, draft))
        every = list(stream_events(entries))
        assert [one.type for one in every[-5:]] == [
            "STEP_FINISHED",
            "RUN_ERROR",
            "RUN_STARTED",
            "STEP_STARTED",
            "CUSTOM",
        ]
        assert every[-3].members == {"threadId": every[0].members["threadId"], "runId": run_id}
        assert every[-2].members["stepName"] == "resolved"
        assert behind(entries, every[-4].id) == every[-3:]

    run(act())
