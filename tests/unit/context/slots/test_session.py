"""The steps of the selection agent, for one run of one agent. Of a flow only the slot is taken that it asks for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.slots import PickRefused, Selected
from contextos.errors import InvalidInput, RepeatedAct
from contextos_agentspec.session import SelectionSession, SlotCall
from tests.slots import ICP, CuratedArtifacts, actor, complete, install, revise, run

PACKAGE = "@acme/outreach"


class Stopped:
    """A stopped clock."""

    def now_us(self) -> int:
        return 10


def call(**changes: str) -> SlotCall:
    fields = {"parent_run_id": "run_1", "parent_package_name": PACKAGE, "slot_id": "icp", "project_id": ""}
    return SlotCall(**fields | changes)


def session(repository: CuratedArtifacts, *, who: dict[str, Any] | None = None, **slot: Any) -> SelectionSession:
    fields = {
        "slotId": "icp",
        "acceptedArtifactExtensions": [ICP],
        "selectionMode": "interactive",
        "resolutionMode": "accumulate",
    }
    document = {
        "component_type": "Flow",
        "metadata": {"cinatra": {"packageName": PACKAGE, "contextSlots": [fields | slot]}},
    }
    return SelectionSession(document, "run_1", PACKAGE, actor(**who or {}), repository, repository, Stopped())


@pytest.fixture
def two(repository: CuratedArtifacts) -> CuratedArtifacts:
    async def fill() -> None:
        await install(repository)
        await complete(repository, "mine", owner_level="user", owner_id="ann", visibility="owner")
        await complete(repository, "all")

    run(fill())
    return repository


def answer(refs: Any) -> str:
    return json.dumps({"slotId": "icp", "resolutionMode": "accumulate", "selectedRefs": refs})


def test_an_offer_says_all_that_a_renderer_shows(two: CuratedArtifacts) -> None:
    payload = run(session(two, maxItems=1).offer(call())).payload()
    assert payload["slot"]["maxItems"] == 1
    assert payload["slot"]["minItems"] == 0
    assert [(one["artifactId"], one["sourceScope"], one["title"]) for one in payload["candidates"]] == [
        ("mine", "user", "title of mine"),
        ("all", "organization", "title of all"),
    ]
    assert payload["more"] is False


def test_a_hostile_title_in_an_offer_has_nothing_hidden_and_no_markup(two: CuratedArtifacts) -> None:
    run(complete(two, "trap", title="good\u202etxt.exe\u200b<img src=x>\x1b[2J", visibility="team:sales"))
    payload = run(session(two).offer(call())).payload()
    fields = {one["artifactId"]: one["title"] for one in payload["candidates"]}
    assert fields["trap"] == "good\\u202etxt.exe\\u200b\\u003cimg src=x\\u003e\\u001b[2J"
    assert not set("\u202e\u200b\x1b<>") & set(canonical(payload).decode())


def test_each_round_is_an_act_of_its_own_and_each_answer_to_it_counts_once(two: CuratedArtifacts) -> None:
    async def play() -> None:
        at = session(two)
        first = await at.offer(call())
        refs = first.payload()["candidates"]
        one = await at.finalize(call(), first.act_key, answer(refs[:1]))
        again = await at.finalize(call(), first.act_key, answer(refs[:1]))
        assert isinstance(one, Selected)
        assert isinstance(again, Selected)
        assert (one.wrote, again.wrote, one.act) == (True, False, again.act)
        with pytest.raises(RepeatedAct):
            await at.finalize(call(), first.act_key, answer(refs[1:]))
        for picked in (refs[1:], refs[:1]):
            later = await at.finalize(call(), (await at.offer(call())).act_key, answer(picked))
            assert isinstance(later, Selected)
            assert later.wrote
        acts = await two.selections("acme", "run_1")
        assert [[ref.artifact_id for ref in act.refs] for act in acts] == [["mine"], ["all"], ["mine"]]

    run(play())


def test_a_selection_recorded_before_its_answer_was_lost_is_returned_again_whatever_changed(
    two: CuratedArtifacts,
) -> None:
    async def play() -> None:
        at = session(two, selectionMode="autonomous")
        first = await at.take(call(), "act_1")
        await revise(two, "mine", "newer")
        await two.tombstone("acme", "all", 9)
        await complete(two, "later")
        again = await at.take(call(), "act_1")
        assert isinstance(first, Selected)
        assert isinstance(again, Selected)
        assert (again.act, again.manifest, again.wrote) == (first.act, first.manifest, False)
        assert len(await two.selections("acme", "run_1")) == 1

    run(play())


def test_the_same_answer_again_is_the_same_act_although_its_artifacts_changed(two: CuratedArtifacts) -> None:
    async def play() -> None:
        at = session(two)
        refs = (await at.offer(call())).payload()["candidates"]
        first = await at.finalize(call(), "act_1", answer(refs))
        await two.tombstone("acme", "all", 9)
        await revise(two, "mine", "newer")
        again = await at.finalize(call(), "act_1", answer(refs[::-1]))
        assert isinstance(first, Selected)
        assert isinstance(again, Selected)
        assert (again.act, again.manifest, again.wrote) == (first.act, first.manifest, False)

    run(play())


def test_the_same_answer_again_is_the_same_act_also_after_access_was_lost_but_not_to_the_project(
    two: CuratedArtifacts,
) -> None:
    """As `docs/agents.md` says."""

    async def play() -> None:
        await complete(two, "sold", visibility="team:sales")
        offered = (await session(two).offer(call())).payload()["candidates"]
        refs = [one for one in offered if one["artifactId"] == "sold"]
        first = await session(two).finalize(call(), "act_1", answer(refs))
        left = session(two, who={"team_ids": ()})
        assert "sold" not in [one["artifactId"] for one in (await left.offer(call())).payload()["candidates"]]
        again = await left.finalize(call(), "act_1", answer(refs))
        assert isinstance(first, Selected)
        assert isinstance(again, Selected)
        assert (again.act, [line.title for line in again.manifest]) == (first.act, ["title of sold"])
        launch = call(project_id="launch")
        await complete(two, "plan", visibility="project:launch")
        refs = (await session(two).offer(launch)).payload()["candidates"]
        assert isinstance(await session(two).finalize(launch, "act_2", answer(refs)), Selected)
        refused = await session(two, who={"project_ids": ()}).finalize(launch, "act_2", answer(refs))
        assert isinstance(refused, PickRefused)
        assert refused.code == "foreign_ref"

    run(play())


def test_anything_else_under_a_key_that_is_recorded_is_a_conflict_and_leaves_no_trace(two: CuratedArtifacts) -> None:
    async def play() -> None:
        refs = (await session(two).offer(call())).payload()["candidates"]
        await session(two).finalize(call(), "act_1", answer(refs[:1]))
        await two.tombstone("acme", "all", 9)
        bob = {"principal_id": "bob"}
        for asking in (
            session(two).finalize(call(), "act_1", answer(refs[1:])),
            session(two).finalize(call(), "act_1", answer([])),
            session(two).finalize(call(), "act_1", answer(refs[:1] * 2)),
            session(two, who=bob).finalize(call(), "act_1", answer(refs[:1])),
            session(two, selectionMode="autonomous").take(call(), "act_1"),
        ):
            with pytest.raises(RepeatedAct, match="nothing was written"):
                await asking
        (act,) = await two.selections("acme", "run_1")
        assert [ref.artifact_id for ref in act.refs] == ["mine"]

    run(play())


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "a\x00"])
def test_a_malformed_act_key_is_refused_and_leaves_no_trace(two: CuratedArtifacts, key: str) -> None:
    with pytest.raises(InvalidInput, match="act_key"):
        run(session(two).finalize(call(), key, answer([])))
    with pytest.raises(InvalidInput, match="act_key"):
        run(session(two, selectionMode="autonomous").take(call(), key))
    assert not run(two.selections("acme", "run_1"))


def test_a_malformed_answer_is_refused_and_leaves_no_trace(two: CuratedArtifacts) -> None:
    refused = run(session(two).finalize(call(), "act_1", "the first one, please"))
    assert isinstance(refused, PickRefused)
    assert (refused.code, list(run(two.selections("acme", "run_1")))) == ("bad_envelope", [])


def test_a_slot_of_a_project_accepts_artifacts_of_the_project(two: CuratedArtifacts) -> None:
    run(complete(two, "launch", visibility="project:launch"))
    offer = run(session(two).offer(call(project_id="launch")))
    assert [ref.artifact_id for ref in offer.resolution.refs] == ["launch"]


def test_an_autonomous_slot_is_taken_and_too_few_is_a_refusal(two: CuratedArtifacts) -> None:
    taken = run(session(two, selectionMode="autonomous").take(call(), "act_1"))
    assert isinstance(taken, Selected)
    assert [ref.artifact_id for ref in taken.act.refs] == ["mine", "all"]
    refused = run(session(two, selectionMode="autonomous", minItems=3).take(call(), "act_2"))
    assert isinstance(refused, PickRefused)
    assert refused.code == "below_min_items"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"parent_run_id": "run_2"}, "other_origin"),
        ({"parent_package_name": "@acme/other"}, "other_origin"),
        ({"slot_id": "voice"}, "unknown_slot"),
    ],
)
def test_the_run_and_the_package_that_a_flow_states_are_compared(
    two: CuratedArtifacts, changes: dict[str, str], code: str
) -> None:
    at = session(two)
    for ask in (at.offer(call(**changes)), at.finalize(call(**changes), "act_1", answer([]))):
        with pytest.raises(InvalidInput) as refused:
            run(ask)
        assert refused.value.problems[0].code == code
    assert not run(two.selections("acme", "run_1"))


def test_the_package_of_a_session_is_that_of_its_document(two: CuratedArtifacts) -> None:
    other = replace(session(two), package="@acme/other")
    with pytest.raises(InvalidInput) as refused:
        run(other.offer(call(parent_package_name="@acme/other")))
    assert refused.value.problems[0].code == "package_name_differs"


def test_a_flow_that_goes_the_wrong_way_selects_nothing(two: CuratedArtifacts) -> None:
    """A branch that is wired wrong must not turn a person's slot into one that nobody is asked about."""
    for ask in (
        session(two).take(call(), "act_1"),
        session(two, selectionMode="autonomous").finalize(call(), "act_1", ""),
    ):
        with pytest.raises(InvalidInput) as refused:
            run(ask)
        assert refused.value.problems[0].code == "selection_mode_mismatch"
    assert not run(two.selections("acme", "run_1"))


def test_an_actor_without_an_organisation_is_refused(two: CuratedArtifacts) -> None:
    with pytest.raises(InvalidInput):
        run(session(two, who={"organization_id": None}).offer(call()))
    with pytest.raises(InvalidInput):
        run(session(two, who={"organization_id": None}).finalize(call(), "act_1", answer([])))
