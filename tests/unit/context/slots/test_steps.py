"""What a run's slot steps ask: a drive that was lost after the record takes what was recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.envelopes.slots import PickRefused, Selected, SelectionAct
from contextos.errors import InvalidInput, RepeatedAct
from tests.slots import ICP, CuratedArtifacts, actor, complete, install, origin, revise, run, slot
from tests.world import ManualClock


def steps(repository: CuratedArtifacts) -> ArtifactSlots:
    async def fill() -> None:
        await install(repository)
        await complete(repository, "a")

    run(fill())
    return ArtifactSlots(repository, repository, ManualClock())


def test_the_selection_of_a_lost_drive_is_kept_whatever_changed_since(repository: CuratedArtifacts) -> None:
    taking = steps(repository)

    async def history() -> tuple[Selected | PickRefused, Selected | PickRefused, int]:
        first = await taking.take(slot(), actor(), None, origin())
        await revise(repository, "a", "newer")
        await complete(repository, "b")
        again = await taking.take(slot(), actor(), None, origin())
        return first, again, len(await repository.selections("acme", "run_1"))

    first, again, acts = run(history())
    assert isinstance(first, Selected)
    assert isinstance(again, Selected)
    assert (first.act == again.act, acts) == (True, 1)


class Overtaken:
    """A repository on which another drive takes the slot right after this one has looked whether it is taken."""

    def __init__(self, repository: CuratedArtifacts) -> None:
        self._shelf, self._first = repository, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shelf, name)

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        found = await self._shelf.selections(org_id, run_id)
        if self._first:
            self._first = False
            await ArtifactSlots(self._shelf, self._shelf, ManualClock()).take(slot(), actor(), None, origin())
            await complete(self._shelf, "b")
        return found


def test_of_two_concurrent_drives_the_slower_gets_the_selection_of_the_faster(repository: CuratedArtifacts) -> None:
    steps(repository)
    overtaken: Any = Overtaken(repository)
    made = run(ArtifactSlots(overtaken, repository, ManualClock()).take(slot(), actor(), None, origin()))
    assert isinstance(made, Selected)
    assert (made.wrote, [ref.artifact_id for ref in made.act.refs]) == (False, ["a"])
    (act,) = run(repository.selections("acme", "run_1"))
    assert act == made.act


def test_a_key_that_took_something_before_the_project_was_lost_is_a_conflict(repository: CuratedArtifacts) -> None:
    taking = steps(repository)
    run(complete(repository, "launch", visibility="project:launch"))
    run(taking.take(slot(), actor(), "launch", origin()))
    with pytest.raises(RepeatedAct):
        run(taking.take(slot(), actor(project_ids=()), "launch", origin()))


def test_a_governed_run_records_only_what_its_journal_holds(repository: CuratedArtifacts) -> None:
    choosing = steps(repository)

    async def history() -> int:
        of_run = origin(parent_run_id="run_00000000000000aa")
        act = await choosing.choose(slot(), actor(), None, of_run, None)
        assert isinstance(act, SelectionAct)
        with pytest.raises(InvalidInput, match="governed run"):
            await choosing.record(act)
        standalone = await choosing.choose(slot(), actor(), None, origin(), None)
        assert isinstance(standalone, SelectionAct)
        assert await choosing.record(standalone) is None
        await repository.archive("acme", "a", ICP, 9)
        late = await choosing.record(standalone.model_copy(update={"selection_id": "sel_00000000000000ff"}))
        assert isinstance(late, PickRefused)
        return len(await repository.selections("acme", of_run.parent_run_id))

    assert run(history()) == 0


def test_an_answer_chooses_and_writes_nothing(repository: CuratedArtifacts) -> None:
    asking, of = steps(repository), slot(selectionMode="interactive")

    async def history() -> list[SelectionAct]:
        offer = await asking.offer(of, actor(), None)
        said = {"slotId": "icp", "resolutionMode": "accumulate", "selectedRefs": [offer.refs[0].to_json()]}
        act = await asking.choose(of, actor(), None, origin(), json.dumps(said).encode())
        assert isinstance(act, SelectionAct)
        assert (act.selected_by, act.refs) == ("user", offer.refs)
        refused = await asking.choose(of, actor(), None, origin(), b"the first one")
        assert isinstance(refused, PickRefused)
        return list(await repository.selections("acme", "run_1"))

    assert run(history()) == []
