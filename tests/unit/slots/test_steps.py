"""What a run's slot steps ask: a drive that was lost after the record takes what was recorded."""

from __future__ import annotations

import json

import pytest

from contextos.contracts.slots import PickRefused, Selected, SelectionAct
from contextos.slots.steps import ArtifactSlots
from tests.slots import Shelf, actor, complete, install, origin, revise, run, slot
from tests.world import ManualClock


def steps(shelf: Shelf) -> ArtifactSlots:
    async def fill() -> None:
        await install(shelf)
        await complete(shelf, "a")

    run(fill())
    return ArtifactSlots(shelf, shelf, ManualClock())


def test_what_a_lost_drive_took_stands_whatever_changed_since(shelf: Shelf) -> None:
    taking = steps(shelf)

    async def history() -> tuple[Selected | PickRefused, Selected | PickRefused, int]:
        first = await taking.take(slot(), actor(), None, origin())
        await revise(shelf, "a", "newer")
        await complete(shelf, "b")
        again = await taking.take(slot(), actor(), None, origin())
        return first, again, len(await shelf.selections("acme", "run_1"))

    first, again, acts = run(history())
    assert isinstance(first, Selected)
    assert isinstance(again, Selected)
    assert (first.act == again.act, acts) == (True, 1)


@pytest.mark.parametrize(
    "other", [{"parent_run_id": "run_2"}, {"principal_id": "bob"}, {"act_key": "2"}, {"parent_package_name": "@acme/b"}]
)
def test_an_act_of_another_origin_is_no_answer(shelf: Shelf, other: dict[str, str]) -> None:
    asking, of = steps(shelf), slot(selectionMode="interactive")

    async def history() -> SelectionAct | None:
        offer = await asking.offer(of, actor(), None)
        said = {"slotId": "icp", "resolutionMode": "accumulate", "selectedRefs": [offer.refs[0].to_json()]}
        made = await asking.answer(of, actor(), None, origin(**other), json.dumps(said).encode())
        assert isinstance(made, Selected)
        return await asking.recorded(of, origin())

    assert run(history()) is None
