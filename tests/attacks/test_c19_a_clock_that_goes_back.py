"""Attack: somebody puts the clock of the machine back, so that a question that was over can be answered again.

The store's clock goes back too, as it does where both are one machine. What the store has on record does not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.errors import ApprovalRefused, ChainBroken
from tests.world import TENANT, ManualClock, TestWorld, open_world, request

HOUR_US = 3_600_000_000


def on_world(path: Path, stores: str, act: Callable[[TestWorld, ManualClock], Awaitable[None]]) -> None:
    async def go() -> None:
        clock = ManualClock()
        world = await open_world(path, stores=stores, clock=clock)
        try:
            await act(world, clock)
        finally:
            await world.aclose()

    asyncio.run(go())


async def deadline_of(world: TestWorld, run_id: str) -> int:
    entries = await world.stores.tenant(TENANT).read(run_id)
    asked = next(one for one in entries if one.kind == "approval.asked")
    return int(json.loads(asked.body or b"")["deadline_us"])


async def over(world: TestWorld, clock: ManualClock) -> tuple[str, int]:
    """A run whose question is over by what is on record, and the time before that; nothing has noticed it yet."""
    waiting = await world.invoke(request(4200, "req_large"))
    before = clock.at_us
    clock.at_us = await deadline_of(world, waiting.run_id) + HOUR_US
    await world.invoke(request(4300, "req_other"))
    clock.at_us = before
    return waiting.run_id, before


def test_a_question_that_was_over_is_not_answered_after_the_clock_went_back(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        run_id, _ = await over(world, clock)
        with pytest.raises(ApprovalRefused) as refused:
            await world.approve(run_id)
        assert refused.value.reason == "expired"
        assert world.refunds() == []

    on_world(tmp_path, stores, act)


def test_an_answer_in_time_is_not_used_after_its_time_because_the_clock_went_back(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        waiting = await world.invoke(request(4200, "req_large"))
        await world.answer(waiting.run_id)
        before = clock.at_us
        clock.at_us = await deadline_of(world, waiting.run_id) + HOUR_US
        await world.invoke(request(4300, "req_other"))
        clock.at_us = before
        await world.deployment.advance(TENANT, waiting.run_id)
        assert (await world.deployment.view(TENANT, waiting.run_id)).state != "completed"
        await replay(world.deployment, TENANT, waiting.run_id)
        assert world.refunds() == []

    on_world(tmp_path, stores, act)


def test_the_step_back_is_on_record_once_and_verifies(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        run_id, before = await over(world, clock)
        for _ in range(2):
            with pytest.raises(ApprovalRefused):
                await world.answer(run_id)
        store = world.stores.tenant(TENANT)
        [stepped] = [one for one in await store.read(CONTROL) if one.kind == "clock.went_back"]
        said = json.loads(stepped.body or b"")
        assert before <= said["clock_us"] < await deadline_of(world, run_id) < said["latest_us"] <= stepped.at_us
        await verify_tenant(store, TENANT, world.keys)

    on_world(tmp_path, stores, act)


def test_new_runs_after_the_step_open_nothing_again(tmp_path: Path, stores: str) -> None:
    """What is recorded under the wrong time must not hide what was recorded before it."""

    async def act(world: TestWorld, clock: ManualClock) -> None:
        run_id, _ = await over(world, clock)
        for number in range(3):
            await world.invoke(request(4400 + number, f"req_after_{number}"))
        with pytest.raises(ApprovalRefused) as refused:
            await world.answer(run_id)
        assert refused.value.reason == "expired"

    on_world(tmp_path, stores, act)


def test_a_clock_that_is_right_records_nothing_of_the_kind(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, _clock: ManualClock) -> None:
        waiting = await world.invoke(request(4200, "req_large"))
        assert (await world.approve(waiting.run_id)).state == "completed"
        control = await world.stores.tenant(TENANT).read(CONTROL)
        assert not [one for one in control if one.kind == "clock.went_back"]

    on_world(tmp_path, stores, act)


async def write_line(world: TestWorld, at_us: int, kind: str, body: bytes) -> None:
    """What the application's role of the database can append to `control` without a key of the runtime."""
    line = Draft(kind, "clock.went_back", at_us, "runtime", body, b"s" * 16)
    await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, shared=((CONTROL, line),)))


UNREADABLE = [
    ("clock.went_back", b"{}"),
    ("clock.went_back", b"no JSON at all"),
    ("clock.went_back", b'{"clock_us":1,"latest_us":"x"}'),
    ("note", b"{}"),
]


@pytest.mark.parametrize(("kind", "body"), UNREADABLE)
def test_a_line_that_states_no_step_stops_nothing_and_verify_names_it(
    kind: str, body: bytes, tmp_path: Path, stores: str
) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        waiting = await world.invoke(request(4200, "req_large"))
        store = world.stores.tenant(TENANT)
        await verify_tenant(store, TENANT, world.keys)
        await write_line(world, clock.at_us + 10_000_000, kind, body)
        forged = len(await store.read(CONTROL))
        assert (await world.approve(waiting.run_id)).state == "completed"
        assert (await world.invoke(request(900, "req_1"))).state == "completed"
        stepped = (await store.read(CONTROL))[forged]
        assert (stepped.kind, json.loads(stepped.body or b"")["latest_us"]) == ("clock.went_back", stepped.at_us)
        found = (
            "has a body that is not canonical JSON" if body[:1] != b"{" else "is nothing that the runtime writes there"
        )
        with pytest.raises(ChainBroken, match=f"entry {forged}: {found}"):
            await verify_tenant(store, TENANT, world.keys)

    on_world(tmp_path, stores, act)
