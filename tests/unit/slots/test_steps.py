"""What a run's slot steps ask: a drive that was lost after the record takes what was recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from contextos.contracts.envelopes.slots import PickRefused, Selected, SelectionAct
from contextos.errors import RepeatedAct
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


class Overtaken:
    """A shelf on which another drive takes the slot right after this one has looked whether it is taken."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._first = shelf, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shelf, name)

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        found = await self._shelf.selections(org_id, run_id)
        if self._first:
            self._first = False
            await ArtifactSlots(self._shelf, self._shelf, ManualClock()).take(slot(), actor(), None, origin())
            await complete(self._shelf, "b")
        return found


def test_of_two_drives_that_take_at_once_the_slower_gets_what_the_faster_took(shelf: Shelf) -> None:
    steps(shelf)
    overtaken: Any = Overtaken(shelf)
    made = run(ArtifactSlots(overtaken, shelf, ManualClock()).take(slot(), actor(), None, origin()))
    assert isinstance(made, Selected)
    assert (made.wrote, [ref.artifact_id for ref in made.act.refs]) == (False, ["a"])
    (act,) = run(shelf.selections("acme", "run_1"))
    assert act == made.act


def test_a_key_that_took_something_before_the_project_was_lost_is_a_conflict(shelf: Shelf) -> None:
    taking = steps(shelf)
    run(complete(shelf, "launch", visibility="project:launch"))
    run(taking.take(slot(), actor(), "launch", origin()))
    with pytest.raises(RepeatedAct):
        run(taking.take(slot(), actor(project_ids=()), "launch", origin()))


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
