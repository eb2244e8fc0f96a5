"""Which place a question or a session takes, and when a place is free again."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.journal import Batch
from contextos.errors import Conflict, Overloaded
from contextos.trust.rows.open_places import OpenPlacesOf
from tests.world import TENANT, TestWorld, open_world, request, run


async def taken(world: TestWorld, places: OpenPlacesOf, run_id: str) -> str:
    """Take a place for a session that is this run, and return its key."""
    write = await places.session("agt", run_id)
    await world.stores.tenant(TENANT).commit(Batch(run=run_id, writes=(write,)))
    return write.key


@pytest.mark.parametrize("most", [2, 20])
def test_there_are_as_many_places_as_the_cap_and_what_ended_leaves_its_own(most: int, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        places = OpenPlacesOf(world.stores.tenant(TENANT), most, most)
        runs = [(await world.invoke(request(4_200 + number, f"req_{number}"))).run_id for number in range(most + 1)]
        assert {await taken(world, places, one) for one in runs[:most]} == {f"agt/{number}" for number in range(most)}
        with pytest.raises(Overloaded, match=f"`max_open_sessions_per_agent` allows \\({most}\\)"):
            await places.session("agt", runs[most])
        assert (await places.session("agt_other", runs[most])).expect == 0, "another agent has its own"
        await world.approve(runs[0], "denied")
        assert (await taken(world, places, runs[most])).startswith("agt/")
        with pytest.raises(Overloaded):
            await places.session("agt", "run_0000000000000000")
        await world.aclose()

    run(act())


def test_two_that_choose_the_same_place_do_not_both_get_it(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        places = OpenPlacesOf(world.stores.tenant(TENANT), 1, 1)
        runs = [(await world.invoke(request(4_200 + number, f"req_{number}"))).run_id for number in range(2)]
        first, second = [await places.session("agt", one) for one in runs]
        store = world.stores.tenant(TENANT)
        await store.commit(Batch(run=runs[0], writes=(first,)))
        with pytest.raises(Conflict):
            await store.commit(Batch(run=runs[1], writes=(second,)))
        again = await places.session("agt", runs[0])
        assert (again.key, again.expect) == (first.key, 1), "a run that is driven again keeps its place"
        await world.aclose()

    run(act())
