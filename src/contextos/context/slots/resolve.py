"""Find the artifacts that a context slot can take, from the narrowest scope (the user's own) to the broadest.

Nothing is written.
Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from contextos.contracts.envelopes.artifacts import PARTY, ExtensionManifest, PinnedContent
from contextos.contracts.envelopes.slots import (
    MAX_CANDIDATES,
    AgentContextSlot,
    Candidate,
    CandidateQuery,
    ManifestLine,
    SlotActor,
    SlotResolution,
)
from contextos.contracts.ports.storage import Artifacts, Curation
from contextos.contracts.refs import artifact_ref
from contextos.errors import InvalidInput, Problem


async def resolve_context_slot(
    actor: SlotActor,
    slot: AgentContextSlot,
    project_id: str | None,
    installed_extensions: Sequence[ExtensionManifest],
    *,
    artifacts: Artifacts,
    include_broader: bool = False,
) -> SlotResolution:
    """Return the artifacts that the slot can take, as the actor sees them now. Nothing is written.

    A project that is not the actor's gives an empty result, without a query. `override` keeps only the narrowest scope
    that matched. `maxItems` truncates an autonomous slot; an interactive slot shows all candidates. `include_broader`
    adds artifacts without a project after the project's own. `installed_extensions` must come from the server.

    Raises:
        InvalidInput: the actor belongs to no organisation, or `project_id` is not an id.
    """
    require_organisation(actor)
    require_project_id(project_id)
    if is_foreign(actor, project_id):
        return _resolution(slot, [], has_more=False)
    query = CandidateQuery(
        actor=actor,
        extensions=expand_extensions(slot.accepted_artifact_extensions, installed_extensions),
        project_id=project_id,
        include_broader=include_broader,
        limit=MAX_CANDIDATES + 1,
    )
    matches = await artifacts.candidates(query)
    has_more, matches = len(matches) > MAX_CANDIDATES, matches[:MAX_CANDIDATES]
    if slot.resolution_mode == "override":
        narrowest = [candidate for candidate in matches if candidate.ref.source_scope == matches[0].ref.source_scope]
        has_more, matches = has_more and len(narrowest) == len(matches), narrowest
    if slot.selection_mode == "autonomous":
        matches = matches[: slot.max_items]
    return _resolution(slot, matches, has_more=has_more)


async def resolve_installed(
    actor: SlotActor,
    slot: AgentContextSlot,
    project_id: str | None,
    *,
    artifacts: Artifacts,
    curation: Curation,
    include_broader: bool = False,
) -> SlotResolution:
    """Return the artifacts that the slot can take, with the artifact types (extensions) that are installed now.

    For a project that is not the actor's, nothing is read.

    Raises:
        InvalidInput: the actor belongs to no organisation, or `project_id` is not an id.
    """
    require_organisation(actor)
    require_project_id(project_id)
    installed = () if is_foreign(actor, project_id) else await curation.extensions()
    return await resolve_context_slot(
        actor, slot, project_id, installed, artifacts=artifacts, include_broader=include_broader
    )


def is_foreign(actor: SlotActor, project_id: str | None) -> bool:
    """Return whether `project_id` is set and is not one of the actor's projects."""
    return project_id is not None and project_id not in actor.project_ids


def require_organisation(actor: SlotActor) -> str:
    """Return the actor's organisation. Raises `InvalidInput` if the actor belongs to none."""
    if actor.organization_id is None:
        detail = "the actor belongs to no organisation"
        raise InvalidInput(Problem("/actor/organization_id", "missing", detail, "set the actor's organisation"))
    return actor.organization_id


def require_project_id(project_id: str | None) -> None:
    """Refuse text that is not the id of a project, such as blanks. Raises `InvalidInput`."""
    if project_id is not None and not PARTY.fits(project_id):
        detail = "the project id has characters that no id has, or too many"
        raise InvalidInput(Problem("/projectId", "not_a_project", detail, "send the id of a project, or an empty text"))


def expand_extensions(accepted: Collection[str], installed: Sequence[ExtensionManifest]) -> tuple[str, ...]:
    """Return the accepted artifact types and each installed type that counts as one of them, sorted.

    The relation is not transitive:

    >>> chain = [ExtensionManifest(extension="b", satisfies=("a",)), ExtensionManifest(extension="c", satisfies=("b",))]
    >>> expand_extensions(["a"], chain)
    ('a', 'b')
    """
    direct = frozenset(accepted)
    return tuple(sorted(direct | {item.extension for item in installed if not direct.isdisjoint(item.satisfies)}))


def _resolution(slot: AgentContextSlot, candidates: Sequence[Candidate], *, has_more: bool) -> SlotResolution:
    return SlotResolution(
        slotId=slot.slot_id,
        resolutionMode=slot.resolution_mode,
        refs=tuple(candidate.ref for candidate in candidates),
        manifest=tuple(manifest_line(candidate) for candidate in candidates),
        more=has_more,
    )


def manifest_of(pinned: Sequence[PinnedContent]) -> tuple[ManifestLine, ...]:
    """Return one line for each pinned artifact: its reference, type, scope and title."""
    return tuple(manifest_line(Candidate(ref=content.ref, title=content.title)) for content in pinned)


def manifest_line(candidate: Candidate) -> ManifestLine:
    """Return the line of a candidate: its reference, type, scope and title."""
    ref = candidate.ref
    return ManifestLine(
        ref=artifact_ref(ref.artifact_id, ref.representation_revision_id),
        extension=ref.extension,
        sourceScope=ref.source_scope,
        title=candidate.title,
    )
