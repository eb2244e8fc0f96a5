"""The list of runs that wait for a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.deployment.queries.run_list import list_runs, list_waiting_runs
from tests.world import TENANT, open_world, request, run


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_run_whose_question_was_answered_waits_for_no_person(tmp_path: Path, verdict: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        asked = [(await world.invoke(request(4200, f"req_{number}"))).run_id for number in range(2)]
        store = world.stores.tenant(TENANT)
        await world.answer(asked[0], verdict)
        waiting = await list_waiting_runs(store, TENANT, world.keys, limit=10)
        assert [(one.run_id, one.waits_for) for one in waiting.runs] == [(asked[1], "approval")]
        every = await list_runs(store, TENANT, world.keys, limit=10)
        assert {one.run_id: one.waits_for for one in every.runs} == {asked[0]: "engine", asked[1]: "approval"}

    run(act())
