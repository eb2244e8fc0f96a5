"""`MemoryArtifacts`: the reference model of the ports `Artifacts` and `Curation`. Its coroutines never suspend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

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
    StoredLibrary,
)
from contextos.contracts.envelopes.slots import SCOPES, Candidate, CandidateQuery, SelectionAct
from contextos.contracts.journal import CONTROL, Draft, Entry, genesis, link
from contextos.store.shared.artifact_rules import (
    assertion_of,
    audience,
    gives_way,
    id_taken,
    incoherent_selection,
    is_governed,
    no_artifact,
    no_assertion,
    no_pin,
    not_installed,
    queried_organisation,
    refuse_repeated,
    refuse_unmade,
    refuse_unseen,
    revision_of,
    selection_fingerprint,
)

_Key = tuple[str, str]
"""(organisation id, artifact id or selection id)."""


class MemoryArtifacts:
    """One tenant's artifacts (texts that context slots select) and the recorded selections, in memory."""

    def __init__(self, tenant_id: str, streams: dict[str, list[Entry]]) -> None:
        self._tenant, self._streams = tenant_id, streams
        self._record: Draft | None = None
        self._manifests: dict[str, ExtensionManifest] = {}
        self._artifacts: dict[_Key, Artifact] = {}
        self._deleted: dict[_Key, int] = {}
        self._revisions: dict[_Key, list[Revision]] = {}
        self._assertions: dict[_Key, list[Assertion]] = {}
        self._acts: dict[_Key, SelectionAct] = {}

    def under(self, record: Draft) -> MemoryArtifacts:
        recorded = copy(self)
        recorded._record = record
        return recorded

    def _note(self) -> None:
        if self._record is not None:
            control = self._streams.setdefault(CONTROL, [])
            head = control[-1].hash if control else genesis(self._tenant, CONTROL)
            control.append(link(self._tenant, CONTROL, len(control) + 1, head, self._record))

    async def register(self, manifest: ExtensionManifest) -> None:
        self._manifests[manifest.extension] = manifest
        self._note()

    async def extensions(self) -> Sequence[ExtensionManifest]:
        return [self._manifests[name] for name in sorted(self._manifests)]

    async def add(self, artifact: Artifact) -> None:
        refuse_unseen(artifact)
        key = (artifact.org_id, artifact.artifact_id)
        if key in self._artifacts:
            raise id_taken(artifact)
        self._artifacts[key] = artifact
        self._note()

    async def revise(self, new: NewRevision) -> Revision:
        key = self._live(new.org_id, new.artifact_id)
        revisions = self._revisions.setdefault(key, [])
        revisions.append(revision_of(self._tenant, new, len(revisions) + 1))
        self._note()
        return revisions[-1]

    async def classify(self, new: NewAssertion) -> Assertion | Outranked:
        key = self._live(new.org_id, new.artifact_id)
        if new.extension not in self._manifests:
            raise not_installed(new.extension)
        assertions = self._assertions.setdefault(key, [])
        for active in [one for one in assertions if one.extension == new.extension and one.eligibility != "archived"]:
            if not gives_way(active, new):
                return Outranked(by=active)
            self._archive(assertions, active, new.asserted_at_us)
        assertions.append(
            assertion_of(self._tenant, new, 1 + sum(one.extension == new.extension for one in assertions))
        )
        self._note()
        return assertions[-1]

    async def archive(self, org_id: str, artifact_id: str, extension: str, at_us: int) -> None:
        assertions = self._assertions.get(self._live(org_id, artifact_id), [])
        for one in assertions:
            if one.extension == extension and one.eligibility != "archived":
                self._archive(assertions, one, at_us)
                return self._note()
        raise no_assertion(extension)

    async def tombstone(self, org_id: str, artifact_id: str, at_us: int) -> None:
        key = self._live(org_id, artifact_id)
        self._deleted[key] = at_us
        assertions = self._assertions.get(key, [])
        for active in [one for one in assertions if one.eligibility != "archived"]:
            self._archive(assertions, active, at_us)
        self._note()

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        found = [
            Candidate(ref=self._ref(key, assertion), title=self._artifacts[key].title)
            for key in self._visible(query)
            for assertion in self._assertions.get(key, [])
            if assertion.eligibility == "eligible"
            and assertion.extension in query.extensions
            and self._revisions.get(key)
        ]
        return sorted(found, key=lambda one: _order(one.ref))[: query.limit]

    async def insert_selection(self, act: SelectionAct) -> bool:
        key = (act.origin.org_id, act.selection_id)
        if key in self._acts:
            refuse_repeated(act, selection_fingerprint(self._acts[key]))
            return False
        if is_governed(act.origin.parent_run_id):
            made = ("slot.selected", act.origin.act_key)
            entries = self._streams.get(act.origin.parent_run_id, ())
            refuse_unmade(act, [one.body for one in entries if (one.kind, one.key) == made])
        faults = [(at, self._fault(act.origin.org_id, ref)) for at, ref in enumerate(act.refs)]
        if wrong := [(at, fault) for at, fault in faults if fault is not None]:
            raise incoherent_selection(wrong)
        self._acts[key] = act
        return True

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        return [act for act in self._acts.values() if (act.origin.org_id, act.origin.parent_run_id) == (org_id, run_id)]

    def selected_runs(self) -> list[str]:
        """Return the runs and standalone flows that have a selection, in order and each once."""
        return sorted({act.origin.parent_run_id for act in self._acts.values()})

    def selections_of(self, run_id: str) -> list[SelectionAct]:
        """Return the selections of a run, of every organisation."""
        return [act for act in self._acts.values() if act.origin.parent_run_id == run_id]

    async def stored(self) -> StoredLibrary:
        revisions = [
            (*place, one.revision, one.digest, one.created_by, one.created_at_us)
            for place, found in sorted(self._revisions.items())
            for one in found
        ]
        return StoredLibrary(
            await self.extensions(),
            [(one, place in self._deleted) for place, one in sorted(self._artifacts.items())],
            revisions,
            [one for _, found in sorted(self._assertions.items()) for one in found],
        )

    async def pinned_sizes(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[int]:
        return [pinned.size_bytes for pinned in await self.pinned(org_id, refs)]

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        found = []
        for ref in refs:
            key = (org_id, ref.artifact_id)
            revision, assertion = self._parts(key, ref)
            if revision is None or assertion is None or assertion.extension != ref.extension:
                raise no_pin(ref)
            found.append(PinnedContent(ref=ref, revision=revision, title=self._artifacts[key].title))
        return found

    def _live(self, org_id: str, artifact_id: str) -> _Key:
        key = (org_id, artifact_id)
        if key not in self._artifacts or key in self._deleted:
            raise no_artifact(org_id, artifact_id)
        return key

    def _archive(self, assertions: list[Assertion], active: Assertion, at_us: int) -> None:
        archived = {"eligibility": "archived", "archived_at_us": at_us}
        assertions[assertions.index(active)] = active.model_copy(update=archived)

    def _visible(self, query: CandidateQuery) -> Iterator[_Key]:
        org_id, seen = queried_organisation(query), {visibility for visibility, _ in audience(query)}
        project = f"project:{query.project_id}"
        for key, artifact in self._artifacts.items():
            own = (artifact.owner_level, artifact.owner_id) == ("user", query.actor.principal_id)
            of_project = artifact.visibility.startswith("project:")
            in_project = not of_project if query.project_id is None else artifact.visibility == project
            broader = query.project_id is not None and query.include_broader and not of_project
            live = key[0] == org_id and key not in self._deleted
            if live and (own or artifact.visibility in seen) and (in_project or broader):
                yield key

    def _ref(self, key: _Key, assertion: Assertion) -> ArtifactRef:
        artifact = self._artifacts[key]
        return ArtifactRef(
            artifactId=artifact.artifact_id,
            representationRevisionId=self._revisions[key][-1].revision_id,
            semanticAssertionId=assertion.assertion_id,
            extension=assertion.extension,
            sourceScope=source_scope(artifact),
            ownerId=artifact.owner_id,
        )

    def _parts(self, key: _Key, ref: ArtifactRef) -> tuple[Revision | None, Assertion | None]:
        revisions = {one.revision_id: one for one in self._revisions.get(key, [])}
        assertions = {one.assertion_id: one for one in self._assertions.get(key, [])}
        return revisions.get(ref.representation_revision_id), assertions.get(ref.semantic_assertion_id)

    def _fault(self, org_id: str, ref: ArtifactRef) -> str | None:
        key = (org_id, ref.artifact_id)
        revision, assertion = self._parts(key, ref)
        if key not in self._artifacts or key in self._deleted:
            return "not_live"
        if revision is None:
            return "no_such_revision"
        if assertion is None or assertion.extension != ref.extension:
            return "no_such_assertion"
        if assertion.eligibility != "eligible":
            return "not_eligible"
        artifact = self._artifacts[key]
        return (
            None if (ref.source_scope, ref.owner_id) == (source_scope(artifact), artifact.owner_id) else "other_scope"
        )


def source_scope(artifact: Artifact) -> SourceScope:
    """Return the scope of an artifact: that of its visibility or, where this has none, that of its owner."""
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
