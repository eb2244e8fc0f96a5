"""Selection: what counts, what is asked again, what is recorded, and what an old pin still reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.context.slots.resolve import resolve_context_slot
from contextos.context.slots.select import bind_selection, replay_selection, select_autonomously, select_interactively
from contextos.contracts.envelopes.slots import PickRefused, Selected, SelectionAct, SlotResolution
from contextos.errors import NotFound, RepeatedAct
from tests.slots import B2B, ICP, CuratedArtifacts, actor, classify, complete, install, origin, revise, run, slot

ASKED: dict[str, Any] = {"selectionMode": "interactive"}


async def offered(repository: CuratedArtifacts, **changes: Any) -> SlotResolution:
    return await resolve_context_slot(
        actor(), slot(**changes), None, await repository.extensions(), artifacts=repository
    )


def answer(resolution: SlotResolution, *picks: int, **changes: Any) -> dict[str, Any]:
    """The envelope that picks these positions of what was offered."""
    given = {
        "slotId": resolution.slot_id,
        "resolutionMode": resolution.resolution_mode,
        "selectedRefs": [resolution.refs[at].to_json() for at in picks],
    }
    return given | changes


async def picked(repository: CuratedArtifacts, said: Any, key: str = "1", **changes: Any) -> Selected | PickRefused:
    """What becomes of a person's answer, as the slot resolves at that moment."""
    resolution = await offered(repository, **ASKED | changes)
    given = json.dumps(said) if isinstance(said, dict) else said
    return await select_interactively(
        slot(**ASKED | changes), resolution, given, origin(act_key=key), at_us=7, artifacts=repository
    )


async def taken(repository: CuratedArtifacts, key: str = "1", **changes: Any) -> Selected | PickRefused:
    of = slot(**changes)
    return await select_autonomously(
        of, await offered(repository, **changes), origin(act_key=key), at_us=7, artifacts=repository
    )


async def acts(repository: CuratedArtifacts) -> list[SelectionAct]:
    return list(await repository.selections("acme", "run_1"))


@pytest.fixture
def three(repository: CuratedArtifacts) -> CuratedArtifacts:
    """Three candidates: Ann's, her team's, her organisation's."""

    async def fill() -> None:
        await install(repository)
        await complete(repository, "mine", owner_level="user", owner_id="ann", visibility="owner")
        await complete(repository, "team", visibility="team:sales")
        await complete(repository, "all")

    run(fill())
    return repository


def refs(selected: Selected | PickRefused) -> list[str]:
    assert isinstance(selected, Selected), selected
    return [ref.artifact_id for ref in selected.act.refs]


def code(refused: Selected | PickRefused) -> str:
    assert isinstance(refused, PickRefused), refused
    return refused.code


def test_nobody_picks_all_in_accumulate_and_the_narrowest_in_override(three: CuratedArtifacts) -> None:
    assert refs(run(taken(three))) == ["mine", "team", "all"]
    assert refs(run(taken(three, "2", resolutionMode="override"))) == ["mine"]
    assert refs(run(taken(three, "3", maxItems=2))) == ["mine", "team"]


@pytest.mark.requirement("SLOT-FLOOR")
def test_too_few_where_nobody_picks_is_a_refusal_and_nothing_is_recorded(three: CuratedArtifacts) -> None:
    assert code(run(taken(three, minItems=4))) == "below_min_items"
    assert run(acts(three)) == []


def test_a_person_picks_and_gets_the_servers_own_words_about_each_ref(three: CuratedArtifacts) -> None:
    async def history() -> Selected | PickRefused:
        said = answer(await offered(three, **ASKED), 2, 0)
        said["selectedRefs"][0] |= {"sourceScope": "project", "ownerId": "ann", "extension": "@evil/x"}
        return await picked(three, said)

    selected = run(history())
    assert refs(selected) == ["mine", "all"]
    assert isinstance(selected, Selected)
    assert [(ref.source_scope, ref.extension) for ref in selected.act.refs] == [("user", ICP), ("organization", ICP)]
    assert [line.title for line in selected.manifest] == ["title of mine", "title of all"]
    assert (selected.act.selected_by, selected.act.selection_mode, selected.wrote) == ("user", "interactive", True)
    assert bind_selection(selected).to_json()["refs"] == [ref.to_json() for ref in selected.act.refs]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "bad_envelope"),
        ("yes please", "bad_envelope"),
        ("[]", "bad_envelope"),
        ("{}", "bad_envelope"),
        ('{"slotId":"icp","slotId":"icp"}', "bad_envelope"),
        ("[" * 5000, "bad_envelope"),
        ({"selectedRefs": [{"artifactId": "mine"}]}, "bad_envelope"),
        ({"approved": True}, "bad_envelope"),
        ({"slotId": "voice"}, "slot_mismatch"),
        ({"resolutionMode": "override"}, "resolution_mode_mismatch"),
    ],
)
def test_an_answer_of_another_shape_is_refused_with_the_reason(three: CuratedArtifacts, said: Any, why: str) -> None:
    async def history() -> Selected | PickRefused:
        given = answer(await offered(three, **ASKED), 0) | said if isinstance(said, dict) else said
        return await picked(three, given)

    refused = run(history())
    assert code(refused) == why
    assert run(acts(three)) == []


def test_a_stale_pick_is_distinguished_from_a_foreign_one(three: CuratedArtifacts) -> None:
    async def history() -> list[str]:
        await complete(three, "hidden", visibility="team:legal")
        first = await offered(three, **ASKED)
        await revise(three, "mine", "newer")
        stale = code(await picked(three, answer(first, 0)))
        await three.tombstone("acme", "team", 9)
        gone = code(await picked(three, answer(first, 1)))
        spied = answer(first, 2)
        spied["selectedRefs"][0]["artifactId"] = "hidden"
        return [stale, gone, code(await picked(three, spied))]

    assert run(history()) == ["stale_ref", "foreign_ref", "foreign_ref"]


def test_a_refusal_names_every_artifact_that_does_not_count_and_repeats_no_text_of_the_answer(
    three: CuratedArtifacts,
) -> None:
    async def history() -> list[str]:
        first = await offered(three, **ASKED)
        await three.tombstone("acme", "team", 9)
        await three.archive("acme", "all", ICP, 9)
        gone = await picked(three, answer(first, 0, 1, 2))
        await revise(three, "mine", "newer")
        stale = await picked(three, answer(first, 0))
        hostile = answer(first, 0)
        hostile["selectedRefs"][0]["artifactId"] = "\u202e<b>\x1b[2J"
        unnamed = await picked(three, hostile)
        assert not isinstance(gone, Selected)
        assert not isinstance(stale, Selected)
        assert not isinstance(unnamed, Selected)
        return [gone.detail, stale.detail, unnamed.detail]

    gone, stale, unnamed = run(history())
    assert gone.startswith("`team`, `all`: ")
    assert stale.startswith("`mine`: ")
    assert unnamed.startswith("an invalid artifact id: ")


def test_a_triple_mixed_of_two_good_ones_is_refused(three: CuratedArtifacts) -> None:
    async def history() -> str:
        said = answer(await offered(three, **ASKED), 0, 1)
        one, two = said["selectedRefs"]
        one["semanticAssertionId"] = two["semanticAssertionId"]
        return code(await picked(three, said))

    assert run(history()) == "stale_ref"


@pytest.mark.parametrize(
    ("picks", "changes", "why"),
    [
        ((0, 0), {}, "duplicate_ref"),
        ((0, 1, 2), {"maxItems": 2}, "above_max_items"),
        ((), {"minItems": 1}, "below_min_items"),
        ((0,), {"minItems": 2}, "below_min_items"),
    ],
)
def test_a_pick_of_the_wrong_number_is_refused_and_a_better_one_then_counts(
    three: CuratedArtifacts, picks: tuple[int, ...], changes: dict[str, Any], why: str
) -> None:
    async def history() -> tuple[str, list[str]]:
        first = await offered(three, **ASKED)
        refused = code(await picked(three, answer(first, *picks), **changes))
        return refused, refs(await picked(three, answer(first, 0, 1), **changes))

    assert run(history()) == (why, ["mine", "team"])


def test_override_takes_one_of_the_narrowest_scope(three: CuratedArtifacts) -> None:
    async def history() -> tuple[str, list[str]]:
        await complete(three, "mine_too", owner_level="user", owner_id="ann", visibility="owner")
        first = await offered(three, **ASKED, resolutionMode="override")
        several = code(await picked(three, answer(first, 0, 1), resolutionMode="override"))
        return several, refs(await picked(three, answer(first, 1), resolutionMode="override"))

    assert run(history()) == ("override_multi_select", ["mine_too"])


def test_an_answer_of_nothing_is_recorded_as_an_answer(three: CuratedArtifacts) -> None:
    async def history() -> list[SelectionAct]:
        assert refs(await picked(three, answer(await offered(three, **ASKED)))) == []
        return await acts(three)

    (act,) = run(history())
    assert (act.refs, act.selected_by) == ((), "user")


def test_the_same_pick_again_is_an_act_of_its_own_and_a_repeated_call_is_not(three: CuratedArtifacts) -> None:
    async def history() -> list[list[str]]:
        first = await offered(three, **ASKED)
        for key, pick in (("1", 0), ("2", 1), ("3", 0)):
            done = await picked(three, answer(first, pick), key)
            again = await picked(three, answer(first, pick), key)
            assert isinstance(done, Selected)
            assert isinstance(again, Selected)
            assert (done.wrote, again.wrote, done.act == again.act) == (True, False, True)
        return [[ref.artifact_id for ref in act.refs] for act in await acts(three)]

    assert run(history()) == [["mine"], ["team"], ["mine"]]


def test_one_act_key_for_two_picks_is_refused_and_the_first_is_kept(three: CuratedArtifacts) -> None:
    async def history() -> list[list[str]]:
        first = await offered(three, **ASKED)
        await picked(three, answer(first, 0))
        with pytest.raises(RepeatedAct, match="recorded with a"):
            await picked(three, answer(first, 1))
        return [[ref.artifact_id for ref in act.refs] for act in await acts(three)]

    assert run(history()) == [["mine"]]


async def three_that_hold(repository: CuratedArtifacts, content: str) -> None:
    for name in ("mine", "team", "all"):
        await revise(repository, name, content)


@pytest.mark.requirement("SLOT-SIZE")
@pytest.mark.parametrize("mode", ["autonomous", "interactive"])
@pytest.mark.parametrize(
    ("bound", "most", "said"),
    [
        ("MAX_SLOT_REFS", 2, "and 3 are selected"),
        # Ten bytes each, in five characters: what is counted is bytes.
        ("MAX_SLOT_BYTES", 19, "and the first 2 of 3 have 20 bytes"),
    ],
)
def test_more_than_a_selection_may_pin_is_refused_before_it_is_recorded(
    three: CuratedArtifacts, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, said: str, mode: str
) -> None:
    monkeypatch.setattr(f"contextos.context.slots.select.{bound}", most)

    async def history() -> tuple[Selected | PickRefused, int]:
        await three_that_hold(three, "é" * 5)
        if mode == "autonomous":
            return await taken(three), len(await acts(three))
        return await picked(three, answer(await offered(three, **ASKED), 0, 1, 2)), len(await acts(three))

    refused, recorded = run(history())
    assert isinstance(refused, PickRefused)
    assert (refused.code, recorded) == ("too_large", 0)
    assert refused.detail.startswith("slot `icp` takes at most ")
    assert said in refused.detail
    assert refused.detail.endswith("pick fewer" if mode == "interactive" else "or accept fewer extensions")


@pytest.mark.requirement("SLOT-SIZE")
def test_as_much_as_a_selection_may_pin_is_pinned(three: CuratedArtifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextos.context.slots.select.MAX_SLOT_REFS", 3)
    monkeypatch.setattr("contextos.context.slots.select.MAX_SLOT_BYTES", 30)

    async def history() -> Selected | PickRefused:
        await three_that_hold(three, "é" * 5)
        return await taken(three)

    assert isinstance(run(history()), Selected)


def test_what_changes_between_resolution_and_record_is_asked_again(three: CuratedArtifacts) -> None:
    async def history() -> tuple[str, int]:
        resolution = await offered(three, **ASKED)
        await classify(three, "mine", ICP)
        await three.tombstone("acme", "all", 9)
        of, said = slot(**ASKED), answer(resolution, 0, 1, 2)
        refused = await select_interactively(of, resolution, said, origin(), at_us=7, artifacts=three)
        assert isinstance(refused, PickRefused)
        assert refused.detail.startswith("`mine`, `all`: "), "what is dropped is named"
        return code(refused), len(await acts(three))

    assert run(history()) == ("selection_incoherent", 0)


@pytest.mark.requirement("SLOT-REPLAY")
def test_an_old_pin_reads_the_same_bytes_whatever_became_of_it(three: CuratedArtifacts) -> None:
    async def history() -> tuple[list[Any], list[Any]]:
        selected = await taken(three)
        assert isinstance(selected, Selected)
        before = [one.to_json() for one in await replay_selection(selected.act, artifacts=three)]
        await revise(three, "mine", "rewritten")
        await classify(three, "team", ICP)
        await classify(three, "team", B2B)
        for name in ("mine", "all"):
            await three.tombstone("acme", name, 9)
        (act,) = await acts(three)
        return before, [one.to_json() for one in await replay_selection(act, artifacts=three)]

    before, after = run(history())
    assert before == after
    assert [one["revision"]["content"] for one in before] == ["content of mine", "content of team", "content of all"]


def test_a_pin_that_never_was_is_not_found(three: CuratedArtifacts) -> None:
    async def history() -> None:
        selected = await taken(three)
        assert isinstance(selected, Selected)
        one, two, _ = selected.act.refs
        mixed = one.model_copy(update={"representation_revision_id": two.representation_revision_id})
        with pytest.raises(NotFound, match="is not known"):
            await three.pinned("acme", [mixed])
        with pytest.raises(NotFound):
            await three.pinned("rival", [one])

    run(history())


def test_an_answer_without_a_resolution_mode_is_one_for_accumulate(three: CuratedArtifacts) -> None:
    async def history() -> list[Selected | PickRefused]:
        said = answer(await offered(three, **ASKED), 0)
        del said["resolutionMode"]
        null = said | {"resolutionMode": None}
        override = {"resolutionMode": "override"}
        return [await picked(three, said), await picked(three, null), await picked(three, said, "2", **override)]

    taken_so, null, override = run(history())
    assert refs(taken_so) == ["mine"]
    assert code(null) == "bad_envelope"
    assert code(override) == "resolution_mode_mismatch"
    assert isinstance(override, PickRefused)
    assert override.detail == "the slot's resolution mode is `override`, and an answer without one is `accumulate`"
