"""A run with context slots that ends, is reopened, and goes on with what was selected; a forged cancel in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.journal import Batch
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.deployment.acts.ended_runs import reopen_run
from contextos.errors import ChainBroken, InvalidInput
from contextos.trust.journal.chain import append
from tests.e2e.test_slots_in_runs import bodies, declaring, directory, on, opened, pick_of
from tests.sessions import LOOKUP, REFUND, chosen_by_agent, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld, request, run


def short(request_id: str) -> dict[str, Any]:
    """A request of a run that may make two calls, and needs three."""
    body = request(900, request_id)
    body["runtime"] |= {"max_tool_calls": 2}
    return body


async def ended(world: TestWorld, mode: str) -> Any:
    view = await world.invoke(short("req_short"))
    if mode == "interactive":
        await pick_of(world, view.run_id, "of_team")
        view = await on(world, view.run_id)
    assert view.state == "exhausted"
    return view


async def reopened(world: TestWorld, run_id: str) -> Any:
    await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason="it is needed", to=9)
    return await on(world, run_id)


async def is_sound(world: TestWorld, view: Any) -> None:
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]


@pytest.mark.parametrize("mode", ["autonomous", "interactive"])
def test_the_slots_of_a_reopened_run_are_filled_anew_and_a_person_is_asked_again(mode: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await opened(tmp_path, declaring(selectionMode=mode), stores="sqlite")
        first = await ended(world, mode)
        view = await reopened(world, first.run_id)
        if mode == "interactive":
            assert view.waiting["for"] == "slot"
            await pick_of(world, view.run_id, "of_team")
            view = await on(world, view.run_id)
        assert (view.state, len(world.refunds())) == ("completed", 1)
        for kind in ("slot.selected", "slot.pinned"):
            assert len(await bodies(world, view.run_id, kind)) == 2
        assert len(await world.stores.artifacts(TENANT).selections("acme", view.run_id)) == 2
        before, after = await world.contexts(view.run_id)
        assert "Be brief." in str(before)
        assert "Be brief." in str(after)
        await is_sound(world, view)
        world.close()

    run(act())


@pytest.mark.parametrize("mode", ["autonomous", "interactive"])
@pytest.mark.parametrize("lost", ["team", "artifact"])
def test_a_reopened_run_uses_no_content_that_its_user_lost_meanwhile(lost: str, mode: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await opened(tmp_path, declaring(selectionMode=mode), stores="sqlite")
        first = await ended(world, mode)
        if lost == "team":
            directory(world, team_ids=[])
        else:
            await world.stores.artifacts(TENANT).tombstone("acme", "of_team", 9)
        view = await reopened(world, first.run_id)
        if mode == "interactive":
            await pick_of(world, view.run_id, "of_all")
            view = await on(world, view.run_id)
        before, after = await world.contexts(view.run_id)
        assert "Be brief." in str(before)
        assert "Be brief." not in str(after)
        assert (view.state, len(world.refunds())) == ("completed", 1)
        await is_sound(world, view)
        world.close()

    run(act())


def test_a_cancel_that_nobody_signed_fills_no_slot_and_cancels_nothing(tmp_path: Path) -> None:
    async def act() -> None:
        world = await opened(tmp_path, declaring(selectionMode="interactive"), stores="sqlite")
        view = await world.invoke(request(900, "req_1"))
        store = world.stores.tenant(TENANT)
        entries = await store.read(view.run_id)
        asked = [one for one in entries if one.kind == "slot.asked"][-1]
        said = {"by": "usr_771", "reason": "never mind"}
        forged = append(
            entries, "run.cancel_requested", asked.key, by="usr_771", answer=said, at_us=asked.at_us, salt=b"s" * 16
        )
        await store.commit(Batch(run=view.run_id, entries=(forged,), wake_at_us=1))
        view = await on(world, view.run_id)
        assert view.state == "escalated"
        assert "no sealed act" in view.record["rationale"]["failures"][0]["detail"]
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        with pytest.raises(ChainBroken, match=f"entry {forged.seq}: is a cancel request that no sealed act proves"):
            await verify_tenant(store, TENANT, world.keys)
        world.close()

    run(act())


def test_a_session_waits_for_its_slots_and_a_reopened_one_has_them_filled_anew(tmp_path: Path) -> None:
    def of_agent(pack: dict[str, Any]) -> None:
        chosen_by_agent(pack)
        declaring(selectionMode="interactive")(pack)

    async def act() -> None:
        world = await opened(tmp_path, of_agent, stores="sqlite")
        with pytest.raises(InvalidInput, match="has to choose the slot `voice` first") as refused:
            await refund_session(world, "ses_voice")
        (problem,) = refused.value.problems
        run_id = problem.remedy.split("`")[1]
        assert problem.remedy == f"answer it for the run `{run_id}`, then open the session again"
        await pick_of(world, run_id, "of_team")
        gate = await refund_session(world, "ses_voice")
        await read_first(gate)
        assert isinstance(await gate.call(REFUND, refund_args(), call_id="pay"), Waiting)
        world.clock.at_us += 3_601_000_000
        assert isinstance(await gate.call(REFUND, refund_args(), call_id="pay"), Refused)
        directory(world, team_ids=[])
        await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason="they are back")
        waiting = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="again")
        assert isinstance(waiting, Waiting)
        assert waiting.waits_for == "slot"
        await pick_of(world, run_id, "of_all")
        assert isinstance(await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="again"), Done)
        before, after = await world.contexts(run_id)
        assert ("Be brief." in str(before), "Be brief." in str(after)) == (True, False)
        await is_sound(world, await gate.finish("escalated"))
        world.close()

    run(act())
