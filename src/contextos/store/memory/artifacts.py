"""`MemoryArtifacts`: the reference model of the ports `Artifacts` and `Curation`. Its coroutines never suspend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contextos.contracts.envelopes.artifacts import (
    Artifact,
    ArtifactRef,
    Assertion,
    ExtensionManifest,
    NewAssertion,
    NewRevision,
    Outranked,
    PinnedContent,
    Revision,
    SourceScope,
)
from contextos.contracts.envelopes.slots import SCOPES, Candidate, CandidateQuery, SelectionAct
from contextos.store.shared.artifact_rules import (
    assertion_of,
    audience,
    gives_way,
    id_taken,
    incoherent_selection,
    no_artifact,
    no_assertion,
    no_pin,
    not_installed,
    queried_organisation,
    refuse_repeated,
    refuse_unseen,
    revision_of,
    selection_fingerprint,
)

_Place = tuple[str, str]


class MemoryArtifacts:
    """One tenant's artifacts and selections in memory."""

    def __init__(self, tenant_id: str) -> None:
        self._tenant = tenant_id
        self._manifests: dict[str, ExtensionManifest] = {}
        self._artifacts: dict[_Place, Artifact] = {}
        self._dead: dict[_Place, int] = {}
        self._revisions: dict[_Place, list[Revision]] = {}
        self._assertions: dict[_Place, list[Assertion]] = {}
        self._acts: dict[_Place, SelectionAct] = {}

    async def register(self, manifest: ExtensionManifest) -> None:
        self._manifests[manifest.extension] = manifest

    async def extensions(self) -> Sequence[ExtensionManifest]:
        return [self._manifests[name] for name in sorted(self._manifests)]

    async def add(self, artifact: Artifact) -> None:
        refuse_unseen(artifact)
        place = (artifact.org_id, artifact.artifact_id)
        if place in self._artifacts:
            raise id_taken(artifact)
        self._artifacts[place] = artifact

    async def revise(self, new: NewRevision) -> Revision:
        place = self._live(new.org_id, new.artifact_id)
        there = self._revisions.setdefault(place, [])
        there.append(revision_of(self._tenant, new, len(there) + 1))
        return there[-1]

    async def classify(self, new: NewAssertion) -> Assertion | Outranked:
        place = self._live(new.org_id, new.artifact_id)
        if new.extension not in self._manifests:
            raise not_installed(new.extension)
        there = self._assertions.setdefault(place, [])
        for active in [one for one in there if one.extension == new.extension and one.eligibility != "archived"]:
            if not gives_way(active, new):
                return Outranked(by=active)
            self._end(there, active, new.asserted_at_us)
        there.append(assertion_of(self._tenant, new, 1 + sum(one.extension == new.extension for one in there)))
        return there[-1]

    async def archive(self, org_id: str, artifact_id: str, extension: str, at_us: int) -> None:
        there = self._assertions.get(self._live(org_id, artifact_id), [])
        for one in there:
            if one.extension == extension and one.eligibility != "archived":
                return self._end(there, one, at_us)
        raise no_assertion(extension)

    async def tombstone(self, org_id: str, artifact_id: str, at_us: int) -> None:
        place = self._live(org_id, artifact_id)
        self._dead[place] = at_us
        there = self._assertions.get(place, [])
        for active in [one for one in there if one.eligibility != "archived"]:
            self._end(there, active, at_us)

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        found = [
            Candidate(ref=self._ref(place, assertion), title=self._artifacts[place].title)
            for place in self._visible(query)
            for assertion in self._assertions.get(place, [])
            if assertion.eligibility == "eligible"
            and assertion.extension in query.extensions
            and self._revisions.get(place)
        ]
        return sorted(found, key=lambda one: _order(one.ref))[: query.limit]

    async def insert_selection(self, act: SelectionAct) -> bool:
        place = (act.origin.org_id, act.selection_id)
        if place in self._acts:
            refuse_repeated(act, selection_fingerprint(self._acts[place]))
            return False
        faults = [(at, self._fault(act.origin.org_id, ref)) for at, ref in enumerate(act.refs)]
        if wrong := [(at, fault) for at, fault in faults if fault is not None]:
            raise incoherent_selection(wrong)
        self._acts[place] = act
        return True

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        return [act for act in self._acts.values() if (act.origin.org_id, act.origin.parent_run_id) == (org_id, run_id)]

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        found = []
        for ref in refs:
            place = (org_id, ref.artifact_id)
            revision, assertion = self._parts(place, ref)
            if revision is None or assertion is None or assertion.extension != ref.extension:
                raise no_pin(ref)
            found.append(PinnedContent(ref=ref, revision=revision, title=self._artifacts[place].title))
        return found

    def _live(self, org_id: str, artifact_id: str) -> _Place:
        place = (org_id, artifact_id)
        if place not in self._artifacts or place in self._dead:
            raise no_artifact(org_id, artifact_id)
        return place

    def _end(self, there: list[Assertion], one: Assertion, at_us: int) -> None:
        ended = {"eligibility": "archived", "archived_at_us": at_us}
        there[there.index(one)] = one.model_copy(update=ended)

    def _visible(self, query: CandidateQuery) -> Iterator[_Place]:
        org_id, seen = queried_organisation(query), {visibility for visibility, _ in audience(query)}
        project = f"project:{query.project_id}"
        for place, artifact in self._artifacts.items():
            own = (artifact.owner_level, artifact.owner_id) == ("user", query.actor.principal_id)
            of_project = artifact.visibility.startswith("project:")
            asked = not of_project if query.project_id is None else artifact.visibility == project
            broader = query.project_id is not None and query.include_broader and not of_project
            live = place[0] == org_id and place not in self._dead
            if live and (own or artifact.visibility in seen) and (asked or broader):
                yield place

    def _ref(self, place: _Place, assertion: Assertion) -> ArtifactRef:
        artifact = self._artifacts[place]
        return ArtifactRef(
            artifactId=artifact.artifact_id,
            representationRevisionId=self._revisions[place][-1].revision_id,
            semanticAssertionId=assertion.assertion_id,
            extension=assertion.extension,
            sourceScope=source_scope(artifact),
            ownerId=artifact.owner_id,
        )

    def _parts(self, place: _Place, ref: ArtifactRef) -> tuple[Revision | None, Assertion | None]:
        revisions = {one.revision_id: one for one in self._revisions.get(place, [])}
        assertions = {one.assertion_id: one for one in self._assertions.get(place, [])}
        return revisions.get(ref.representation_revision_id), assertions.get(ref.semantic_assertion_id)

    def _fault(self, org_id: str, ref: ArtifactRef) -> str | None:
        place = (org_id, ref.artifact_id)
        revision, assertion = self._parts(place, ref)
        if place not in self._artifacts or place in self._dead:
            return "not_live"
        if revision is None:
            return "no_such_revision"
        if assertion is None or assertion.extension != ref.extension:
            return "no_such_assertion"
        if assertion.eligibility != "eligible":
            return "not_eligible"
        artifact = self._artifacts[place]
        return (
            None if (ref.source_scope, ref.owner_id) == (source_scope(artifact), artifact.owner_id) else "other_scope"
        )


def source_scope(artifact: Artifact) -> SourceScope:
    """Where an artifact comes from: its visibility says so, and where that does not, its owner does."""
    kind = artifact.visibility.partition(":")[0]
    by_visibility: dict[str, SourceScope] = {
        "project": "project",
        "team": "team",
        "org": "organization",
        "workspace": "workspace",
    }
    return by_visibility.get(kind, artifact.owner_level)


def _order(ref: ArtifactRef) -> tuple[int, str, str, str]:
    return (SCOPES.index(ref.source_scope), ref.artifact_id, ref.semantic_assertion_id, ref.representation_revision_id)
