"""The resolver: who sees what, in which order, and when the store is not asked at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contextos.contracts.envelopes.artifacts import ExtensionManifest
from contextos.contracts.envelopes.slots import Candidate, CandidateQuery, SlotResolution
from contextos.errors import InvalidInput
from contextos.slots.resolve import expand_extensions, resolve_context_slot
from tests.slots import B2B, ICP, VOICE, Shelf, actor, add, classify, complete, install, revise, run, slot


def resolved(shelf: Shelf, of=None, who=None, project: str | None = None, **options: object) -> SlotResolution:
    async def ask() -> SlotResolution:
        installed = await shelf.extensions()
        return await resolve_context_slot(who or actor(), of or slot(), project, installed, artifacts=shelf, **options)

    return run(ask())


def names(resolution: SlotResolution) -> list[str]:
    return [ref.artifact_id for ref in resolution.refs]


def filled(shelf: Shelf) -> Shelf:
    """One ICP of each scope, and one each of what Ann must not see."""

    async def fill() -> None:
        await install(shelf)
        await complete(shelf, "of_workspace", owner_level="workspace", visibility="workspace")
        await complete(shelf, "of_org")
        await complete(shelf, "of_team", visibility="team:sales")
        await complete(shelf, "of_ann", owner_level="user", owner_id="ann", visibility="owner")
        await complete(shelf, "of_project", visibility="project:launch")
        await complete(shelf, "other_team", visibility="team:legal")
        await complete(shelf, "other_user", owner_level="user", owner_id="bob", visibility="owner")
        await complete(shelf, "other_project", visibility="project:secret")
        await complete(shelf, "other_org", org_id="rival", owner_id="rival")
        await complete(shelf, "for_admins", visibility="admin")
        await complete(shelf, "a_voice", VOICE)

    run(fill())
    return shelf


def test_what_is_visible_comes_from_narrow_to_broad_and_says_from_where(shelf: Shelf) -> None:
    found = resolved(filled(shelf))
    assert names(found) == ["of_ann", "of_team", "of_org", "of_workspace"]
    assert [line.source_scope for line in found.manifest] == ["user", "team", "organization", "workspace"]
    assert [ref.source_scope for ref in found.refs] == [line.source_scope for line in found.manifest]
    assert found.manifest[0].title == "title of of_ann"


def test_with_a_project_there_are_its_rows_alone_and_without_one_none_of_any(shelf: Shelf) -> None:
    filled(shelf)
    assert names(resolved(shelf, project="launch")) == ["of_project"]
    assert "of_project" not in names(resolved(shelf))


def test_the_broader_rows_are_layered_under_a_project_where_it_is_asked_for(shelf: Shelf) -> None:
    found = resolved(filled(shelf), project="launch", include_broader=True)
    assert names(found) == ["of_project", "of_ann", "of_team", "of_org", "of_workspace"]
    override = resolved(shelf, slot(resolutionMode="override"), project="launch", include_broader=True)
    assert names(override) == ["of_project"]


class Counted:
    """The port, counting what it is asked."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf, self.queries = shelf, 0

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        self.queries += 1
        return await self.shelf.candidates(query)


@pytest.mark.requirement("SLOT-GATE")
@pytest.mark.parametrize("project", ["secret", "", "launch ", "LAUNCH", "%", "launch' OR 1=1 --"])
def test_a_project_that_is_not_the_actors_resolves_to_nothing_and_asks_nothing(shelf: Shelf, project: str) -> None:
    counted = Counted(filled(shelf))
    ask = resolve_context_slot(actor(), slot(), project, [], artifacts=counted)  # type: ignore[arg-type]
    assert run(ask).refs == ()
    assert counted.queries == 0
    run(resolve_context_slot(actor(), slot(), "launch", [], artifacts=counted))  # type: ignore[arg-type]
    assert counted.queries == 1


def test_an_actor_without_an_organisation_is_refused_before_any_query(shelf: Shelf) -> None:
    counted = Counted(shelf)
    ask = resolve_context_slot(actor(organization_id=None), slot(), None, [], artifacts=counted)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="organisation"):
        run(ask)
    assert counted.queries == 0


def test_an_administrator_sees_what_is_for_administrators_and_nobody_elses_own(shelf: Shelf) -> None:
    found = names(resolved(filled(shelf), who=actor(platform_admin=True)))
    assert "for_admins" in found
    assert not {"other_user", "other_team", "other_project", "other_org"} & set(found)


def test_a_user_does_not_own_what_a_team_of_the_same_name_owns(shelf: Shelf) -> None:
    async def fill() -> None:
        await install(shelf)
        await complete(shelf, "a", owner_level="team", owner_id="ann", visibility="admin")

    run(fill())
    assert names(resolved(shelf)) == []


@pytest.mark.requirement("SLOT-OVERRIDE")
def test_override_keeps_the_narrowest_scope_and_all_of_it(shelf: Shelf) -> None:
    filled(shelf)
    run(complete(shelf, "also_ann", owner_level="user", owner_id="ann", visibility="owner"))
    found = resolved(shelf, slot(resolutionMode="override", selectionMode="interactive"))
    assert names(found) == ["also_ann", "of_ann"]


@pytest.mark.requirement("SLOT-CAP")
def test_the_cap_cuts_where_nobody_picks_and_a_person_sees_all(shelf: Shelf) -> None:
    filled(shelf)
    assert names(resolved(shelf, slot(maxItems=2))) == ["of_ann", "of_team"]
    assert len(names(resolved(shelf, slot(maxItems=2, selectionMode="interactive")))) == 4


def test_a_floor_is_the_callers_affair(shelf: Shelf) -> None:
    assert names(resolved(filled(shelf), slot(minItems=9))) == ["of_ann", "of_team", "of_org", "of_workspace"]


@pytest.mark.requirement("SLOT-HOP")
def test_what_satisfies_an_accepted_extension_counts_for_one_hop(shelf: Shelf) -> None:
    async def fill() -> None:
        await install(shelf)
        await shelf.register(ExtensionManifest(extension="@acme/narrow", satisfies=(B2B,)))
        await complete(shelf, "near", B2B)
        await complete(shelf, "far", "@acme/narrow")

    run(fill())
    assert names(resolved(shelf)) == ["near"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_ring_of_extensions_ends_after_one_hop_in_any_order(turned: bool) -> None:
    ring = [ExtensionManifest(extension=one, satisfies=(two,)) for one, two in (("b", "a"), ("c", "b"), ("a", "c"))]
    assert expand_extensions(["a"], ring[::-1] if turned else ring) == ("a", "b")
    itself = [ExtensionManifest(extension="a", satisfies=("a",))]
    assert expand_extensions(["a"], itself) == ("a",)


def test_the_latest_revision_is_pinned_and_an_artifact_without_one_is_left_out(shelf: Shelf) -> None:
    async def fill() -> str:
        await install(shelf)
        await complete(shelf, "a")
        await add(shelf, "b")
        await classify(shelf, "b")
        return (await revise(shelf, "a", "second")).revision_id

    newest = run(fill())
    assert [(ref.artifact_id, ref.representation_revision_id) for ref in resolved(shelf).refs] == [("a", newest)]


def test_two_accepted_assertions_of_an_artifact_are_two_refs(shelf: Shelf) -> None:
    async def fill() -> None:
        await install(shelf)
        await complete(shelf, "a")
        await classify(shelf, "a", B2B)

    run(fill())
    found = resolved(shelf)
    assert names(found) == ["a", "a"]
    assert {ref.extension for ref in found.refs} == {ICP, B2B}


def test_drafts_archived_assertions_and_tombstones_are_not_offered(shelf: Shelf) -> None:
    async def fill() -> None:
        await install(shelf)
        await complete(shelf, "stays")
        await complete(shelf, "ended")
        await shelf.archive("acme", "ended", ICP, 9)
        await complete(shelf, "gone")
        await shelf.tombstone("acme", "gone", 9)
        await add(shelf, "guessed")
        await revise(shelf, "guessed")
        await classify(shelf, "guessed", by="matcher")

    run(fill())
    assert names(resolved(shelf)) == ["stays"]


def test_more_candidates_than_the_bound_are_cut_and_said(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(shelf)
    monkeypatch.setattr("contextos.slots.resolve.MAX_CANDIDATES", 3)
    cut = resolved(shelf)
    assert (names(cut), cut.more) == (["of_ann", "of_team", "of_org"], True)
    assert not resolved(shelf, slot(resolutionMode="override")).more
    monkeypatch.setattr("contextos.slots.resolve.MAX_CANDIDATES", 4)
    assert not resolved(shelf).more
