"""`resolve_context_slot`: a slot to the pinned refs that it may take, from narrow to broad. Nothing is written.

Source: shared/spec/seeds/003, "Resolver semantics"; shared/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from contextos.contracts.envelopes.artifacts import ExtensionManifest, PinnedContent
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
    """What the slot may take, as the actor sees it now. `installed_extensions` come from the server, never a caller.

    A project that is not the actor's resolves to nothing, without a query. `override` keeps the narrowest scope that
    matched; `maxItems` truncates where nobody picks, and an interactive slot shows all. `include_broader` layers what
    is of no project under a project's own.

    Raises:
        InvalidInput: the actor is in no organisation.
    """
    require_organisation(actor)
    if is_foreign(actor, project_id):
        return _resolution(slot, [], more=False)
    query = CandidateQuery(
        actor=actor,
        extensions=expanded(slot.accepted_artifact_extensions, installed_extensions),
        project_id=project_id,
        include_broader=include_broader,
        limit=MAX_CANDIDATES + 1,
    )
    found = await artifacts.candidates(query)
    more, found = len(found) > MAX_CANDIDATES, found[:MAX_CANDIDATES]
    if slot.resolution_mode == "override":
        narrowest = [one for one in found if one.ref.source_scope == found[0].ref.source_scope]
        more, found = more and len(narrowest) == len(found), narrowest
    if slot.selection_mode == "autonomous":
        found = found[: slot.max_items]
    return _resolution(slot, found, more=more)


async def resolve_installed(
    actor: SlotActor,
    slot: AgentContextSlot,
    project_id: str | None,
    *,
    artifacts: Artifacts,
    curation: Curation,
    include_broader: bool = False,
) -> SlotResolution:
    """The same with the extensions that are installed now; they are not asked for where the project gate is shut.

    Raises:
        InvalidInput: the actor is in no organisation.
    """
    require_organisation(actor)
    installed = () if is_foreign(actor, project_id) else await curation.extensions()
    return await resolve_context_slot(
        actor, slot, project_id, installed, artifacts=artifacts, include_broader=include_broader
    )


def is_foreign(actor: SlotActor, project_id: str | None) -> bool:
    """The project gate: whether a project is named that is not one of the actor's."""
    return project_id is not None and project_id not in actor.project_ids


def require_organisation(actor: SlotActor) -> str:
    """The organisation that everything of a slot stands in. Raises `InvalidInput` for an actor of none."""
    if actor.organization_id is None:
        detail = "a slot is resolved within an organisation"
        raise InvalidInput(Problem("/actor/organization_id", "missing", detail, "name the actor's organisation"))
    return actor.organization_id


def expanded(accepted: Collection[str], installed: Sequence[ExtensionManifest]) -> tuple[str, ...]:
    """The accepted extensions, and each installed one that satisfies one of them: a single hop, whatever the order.

    >>> chain = [ExtensionManifest(extension="b", satisfies=("a",)), ExtensionManifest(extension="c", satisfies=("b",))]
    >>> expanded(["a"], chain)
    ('a', 'b')
    """
    direct = frozenset(accepted)
    return tuple(sorted(direct | {one.extension for one in installed if not direct.isdisjoint(one.satisfies)}))


def _resolution(slot: AgentContextSlot, found: Sequence[Candidate], *, more: bool) -> SlotResolution:
    return SlotResolution(
        slotId=slot.slot_id,
        resolutionMode=slot.resolution_mode,
        refs=tuple(one.ref for one in found),
        manifest=tuple(manifest_line(one) for one in found),
        more=more,
    )


def manifest_of(pinned: Sequence[PinnedContent]) -> tuple[ManifestLine, ...]:
    """What a consumer is told of refs that were pinned before."""
    return tuple(manifest_line(Candidate(ref=one.ref, title=one.title)) for one in pinned)


def manifest_line(one: Candidate) -> ManifestLine:
    """What a consumer is told of a ref beside the ref itself."""
    ref = one.ref
    return ManifestLine(
        ref=artifact_ref(ref.artifact_id, ref.representation_revision_id),
        extension=ref.extension,
        sourceScope=ref.source_scope,
        title=one.title,
    )
