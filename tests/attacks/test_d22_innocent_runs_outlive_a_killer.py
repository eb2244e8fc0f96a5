"""D22: a run that kills its workers is found out, and the runs that were driven beside it are not taken for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contextos.deployment.dead_letters import list_dead_letters
from contextos.deployment.deployment import Deployment, due_runs
from contextos.trust.journal.ledger import RunJournal
from contextos.workspace.engine.local import EngineLimits, LocalEngine
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run


class Killing:
    """Orders whose read ends the process of the run `killer`; others take a moment."""

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.killer, self.struck = adapter, "", asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        if context.run_id == self.killer:
            self.struck.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0.05)
        return await self.adapter.call(capability, args, context)


async def one_life(world: TestWorld, killing: Killing, life: int) -> None:
    """A worker of its own, until the killer ends it or nothing is due."""
    me = f"{life:016x}"
    ports = replace(world.deployment.ports, owner=me, alive=lambda owner: owner == me)
    deployment = Deployment(ports, world.deployment.config)
    engine = LocalEngine(
        deployment.advance,
        world.stores,
        world.clock,
        orphans=partial(due_runs, deployment),
        limits=EngineLimits(stop_grace_ms=1),
    )
    killing.struck.clear()
    await engine.start()
    ends = [asyncio.ensure_future(one) for one in (killing.struck.wait(), engine.idle())]
    await asyncio.wait(ends, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    # As the kernel ends a process: the drives stop where they are.
    await engine.stop()
    for one in ends:
        one.cancel()
    await asyncio.gather(*ends, return_exceptions=True)


async def nothing(*_: Any) -> None:
    """What a process that is killed lets go of."""


def test_the_runs_beside_a_killer_are_driven_to_their_end(
    stores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunJournal, "let_go", nothing)

    async def act() -> None:
        world = await open_world(tmp_path, stores=stores, clock=ManualClock())
        killing = Killing(world.adapters["adp_orders"])
        world.adapters["adp_orders"] = killing  # type: ignore[assignment]
        runs = [
            (await world.invoke({**request(900 + number, f"req_{number}"), "mode": "long_running"})).run_id
            for number in range(4)
        ]
        killing.killer, *innocent = runs
        for life in range(9):
            world.clock.at_us += 200_000_000
            await one_life(world, killing, life)
        letters = await list_dead_letters(world.stores.tenant(TENANT))
        assert [(letter.run_id, letter.code) for letter in letters] == [(killing.killer, "worker_lost")]
        assert [(await world.deployment.view(TENANT, run_id)).state for run_id in innocent] == ["completed"] * 3
        await world.aclose()

    run(act())


class Hanging(Killing):
    """Orders that never answer; `asking` counts the calls that wait at once."""

    asking = 0

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        self.asking += 1
        try:
            if self.asking == 4:
                self.struck.set()
            await asyncio.Event().wait()
        finally:
            self.asking -= 1


def test_the_runs_of_one_dead_worker_do_not_wait_for_each_other(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores, clock=ManualClock())
        hanging = Hanging(world.adapters["adp_orders"])
        world.adapters["adp_orders"] = hanging  # type: ignore[assignment]
        for number in range(4):
            await world.invoke({**request(900 + number, f"req_{number}"), "mode": "long_running"})
        for life in range(2):
            world.clock.at_us += 200_000_000
            await one_life(world, hanging, life)
            assert hanging.struck.is_set(), "all four are driven at once"
        await world.aclose()

    run(act())
