"""The resolver: who sees what, in which order, and when the store is not asked at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contextos.context.slots.resolve import expand_extensions, resolve_context_slot
from contextos.contracts.envelopes.artifacts import ExtensionManifest
from contextos.contracts.envelopes.slots import Candidate, CandidateQuery, SlotResolution
from contextos.errors import InvalidInput
from tests.slots import B2B, ICP, VOICE, CuratedArtifacts, actor, add, classify, complete, install, revise, run, slot


def resolved(
    repository: CuratedArtifacts, of=None, who=None, project: str | None = None, **options: object
) -> SlotResolution:
    async def ask() -> SlotResolution:
        installed = await repository.extensions()
        return await resolve_context_slot(
            who or actor(), of or slot(), project, installed, artifacts=repository, **options
        )

    return run(ask())


def names(resolution: SlotResolution) -> list[str]:
    return [ref.artifact_id for ref in resolution.refs]


def filled(repository: CuratedArtifacts) -> CuratedArtifacts:
    """One ICP of each scope, and one each of what Ann must not see."""

    async def fill() -> None:
        await install(repository)
        await complete(repository, "of_workspace", owner_level="workspace", visibility="workspace")
        await complete(repository, "of_org")
        await complete(repository, "of_team", visibility="team:sales")
        await complete(repository, "of_ann", owner_level="user", owner_id="ann", visibility="owner")
        await complete(repository, "of_project", visibility="project:launch")
        await complete(repository, "other_team", visibility="team:legal")
        await complete(repository, "other_user", owner_level="user", owner_id="bob", visibility="owner")
        await complete(repository, "other_project", visibility="project:secret")
        await complete(repository, "other_org", org_id="rival", owner_id="rival")
        await complete(repository, "for_admins", visibility="admin")
        await complete(repository, "a_voice", VOICE)

    run(fill())
    return repository


def test_visible_artifacts_come_from_narrow_to_broad_with_their_scope(repository: CuratedArtifacts) -> None:
    found = resolved(filled(repository))
    assert names(found) == ["of_ann", "of_team", "of_org", "of_workspace"]
    assert [line.source_scope for line in found.manifest] == ["user", "team", "organization", "workspace"]
    assert [ref.source_scope for ref in found.refs] == [line.source_scope for line in found.manifest]
    assert found.manifest[0].title == "title of of_ann"


def test_with_a_project_there_are_its_rows_alone_and_without_one_none_of_any(repository: CuratedArtifacts) -> None:
    filled(repository)
    assert names(resolved(repository, project="launch")) == ["of_project"]
    assert "of_project" not in names(resolved(repository))


def test_the_broader_rows_are_layered_under_a_project_where_it_is_asked_for(repository: CuratedArtifacts) -> None:
    found = resolved(filled(repository), project="launch", include_broader=True)
    assert names(found) == ["of_project", "of_ann", "of_team", "of_org", "of_workspace"]
    override = resolved(repository, slot(resolutionMode="override"), project="launch", include_broader=True)
    assert names(override) == ["of_project"]


class Counted:
    """The port, counting what it is asked."""

    def __init__(self, repository: CuratedArtifacts) -> None:
        self.repository, self.queries = repository, 0

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        self.queries += 1
        return await self.repository.candidates(query)


@pytest.mark.requirement("SLOT-GATE")
@pytest.mark.parametrize("project", ["secret", "LAUNCH", "launch.", "-"])
def test_a_project_that_is_not_the_actors_resolves_to_nothing_and_asks_nothing(
    repository: CuratedArtifacts, project: str
) -> None:
    counted = Counted(filled(repository))
    ask = resolve_context_slot(actor(), slot(), project, [], artifacts=counted)  # type: ignore[arg-type]
    assert run(ask).refs == ()
    assert counted.queries == 0
    run(resolve_context_slot(actor(), slot(), "launch", [], artifacts=counted))  # type: ignore[arg-type]
    assert counted.queries == 1


@pytest.mark.parametrize("project", ["", "   ", "launch ", "%", "launch' OR 1=1 --"])
def test_text_that_is_no_project_id_is_refused_before_any_query(repository: CuratedArtifacts, project: str) -> None:
    counted = Counted(filled(repository))
    ask = resolve_context_slot(actor(), slot(), project, [], artifacts=counted)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="project id"):
        run(ask)
    assert counted.queries == 0


def test_an_actor_without_an_organisation_is_refused_before_any_query(repository: CuratedArtifacts) -> None:
    counted = Counted(repository)
    ask = resolve_context_slot(actor(organization_id=None), slot(), None, [], artifacts=counted)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="organisation"):
        run(ask)
    assert counted.queries == 0


def test_an_administrator_sees_artifacts_for_administrators_and_no_private_ones_of_others(
    repository: CuratedArtifacts,
) -> None:
    found = names(resolved(filled(repository), who=actor(platform_admin=True)))
    assert "for_admins" in found
    assert not {"other_user", "other_team", "other_project", "other_org"} & set(found)


def test_a_user_does_not_own_the_artifacts_of_a_team_with_the_same_name(repository: CuratedArtifacts) -> None:
    async def fill() -> None:
        await install(repository)
        await complete(repository, "a", owner_level="team", owner_id="ann", visibility="admin")

    run(fill())
    assert names(resolved(repository)) == []


@pytest.mark.requirement("SLOT-OVERRIDE")
def test_override_keeps_the_narrowest_scope_and_all_of_it(repository: CuratedArtifacts) -> None:
    filled(repository)
    run(complete(repository, "also_ann", owner_level="user", owner_id="ann", visibility="owner"))
    found = resolved(repository, slot(resolutionMode="override", selectionMode="interactive"))
    assert names(found) == ["also_ann", "of_ann"]


@pytest.mark.requirement("SLOT-CAP")
def test_the_cap_cuts_where_nobody_picks_and_a_person_sees_all(repository: CuratedArtifacts) -> None:
    filled(repository)
    assert names(resolved(repository, slot(maxItems=2))) == ["of_ann", "of_team"]
    assert len(names(resolved(repository, slot(maxItems=2, selectionMode="interactive")))) == 4


def test_a_floor_is_the_callers_affair(repository: CuratedArtifacts) -> None:
    assert names(resolved(filled(repository), slot(minItems=9))) == ["of_ann", "of_team", "of_org", "of_workspace"]


@pytest.mark.requirement("SLOT-HOP")
def test_what_satisfies_an_accepted_extension_counts_for_one_hop(repository: CuratedArtifacts) -> None:
    async def fill() -> None:
        await install(repository)
        await repository.register(ExtensionManifest(extension="@acme/narrow", satisfies=(B2B,)))
        await complete(repository, "near", B2B)
        await complete(repository, "far", "@acme/narrow")

    run(fill())
    assert names(resolved(repository)) == ["near"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_ring_of_extensions_ends_after_one_hop_in_any_order(turned: bool) -> None:
    ring = [ExtensionManifest(extension=one, satisfies=(two,)) for one, two in (("b", "a"), ("c", "b"), ("a", "c"))]
    assert expand_extensions(["a"], ring[::-1] if turned else ring) == ("a", "b")
    itself = [ExtensionManifest(extension="a", satisfies=("a",))]
    assert expand_extensions(["a"], itself) == ("a",)


def test_the_latest_revision_is_pinned_and_an_artifact_without_one_is_left_out(repository: CuratedArtifacts) -> None:
    async def fill() -> str:
        await install(repository)
        await complete(repository, "a")
        await add(repository, "b")
        await classify(repository, "b")
        return (await revise(repository, "a", "second")).revision_id

    newest = run(fill())
    assert [(ref.artifact_id, ref.representation_revision_id) for ref in resolved(repository).refs] == [("a", newest)]


def test_two_accepted_assertions_of_an_artifact_are_two_refs(repository: CuratedArtifacts) -> None:
    async def fill() -> None:
        await install(repository)
        await complete(repository, "a")
        await classify(repository, "a", B2B)

    run(fill())
    found = resolved(repository)
    assert names(found) == ["a", "a"]
    assert {ref.extension for ref in found.refs} == {ICP, B2B}


def test_drafts_archived_assertions_and_tombstones_are_not_offered(repository: CuratedArtifacts) -> None:
    async def fill() -> None:
        await install(repository)
        await complete(repository, "stays")
        await complete(repository, "ended")
        await repository.archive("acme", "ended", ICP, 9)
        await complete(repository, "gone")
        await repository.tombstone("acme", "gone", 9)
        await add(repository, "guessed")
        await revise(repository, "guessed")
        await classify(repository, "guessed", by="matcher")

    run(fill())
    assert names(resolved(repository)) == ["stays"]


def test_more_candidates_than_the_bound_are_cut_and_said(
    repository: CuratedArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(repository)
    monkeypatch.setattr("contextos.context.slots.resolve.MAX_CANDIDATES", 3)
    cut = resolved(repository)
    assert (names(cut), cut.more) == (["of_ann", "of_team", "of_org"], True)
    assert not resolved(repository, slot(resolutionMode="override")).more
    monkeypatch.setattr("contextos.context.slots.resolve.MAX_CANDIDATES", 4)
    assert not resolved(repository).more
