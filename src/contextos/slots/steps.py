"""`ArtifactSlots` implements the port `SlotSteps` over a tenant's artifacts. Every selection is made here.

A selection is recorded before it is used. For a project that is not the actor's, nothing is read. If a selection is
already recorded under its act key, it is returned, whatever has changed since: a caller that lost the reply can ask
again and gets the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from contextos.contracts.envelopes.artifacts import ArtifactRef, PinnedContent
from contextos.contracts.envelopes.slots import (
    AgentContextSlot,
    Candidate,
    CandidateQuery,
    PickRefused,
    Selected,
    SelectionAct,
    SelectionOrigin,
    SlotActor,
    SlotResolution,
)
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.storage import Artifacts, Curation
from contextos.errors import Problem, RepeatedAct
from contextos.slots.resolve import is_foreign, manifest_of, resolve_installed
from contextos.slots.select import (
    picks_same,
    read_answer,
    replay_selection,
    select_autonomously,
    select_interactively,
    selection_id,
)


@dataclass(frozen=True, slots=True)
class ArtifactSlots:
    """Slot steps of one tenant. `include_broader` adds artifacts without a project after the project's own."""

    artifacts: Artifacts
    curation: Curation
    clock: Clock
    include_broader: bool = False

    async def offer(self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None) -> SlotResolution:
        """Return what the slot can take now. Nothing is written.

        Raises:
            InvalidInput: the actor belongs to no organisation.
        """
        return await resolve_installed(
            actor,
            slot,
            project_id,
            artifacts=self.artifacts,
            curation=self.curation,
            include_broader=self.include_broader,
        )

    async def take(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, origin: SelectionOrigin
    ) -> Selected | PickRefused:
        """Pin what an autonomous slot takes.

        Raises:
            InvalidInput: the actor belongs to no organisation.
            RepeatedAct: the act key belongs to a different selection.
        """
        assert slot.selection_mode == "autonomous", "a person selects for an interactive slot"
        if (before := await self._recorded_before(slot, actor, project_id, origin)) is not None:
            return before
        resolution = await self.offer(slot, actor, project_id)
        try:
            return await select_autonomously(
                slot, resolution, origin, at_us=self.clock.now_us(), artifacts=self.artifacts
            )
        except RepeatedAct:
            # Another process recorded this selection after it was looked up.
            if (winner := await self._recorded_before(slot, actor, project_id, origin)) is None:
                raise
            return winner

    async def answer(
        self,
        slot: AgentContextSlot,
        actor: SlotActor,
        project_id: str | None,
        origin: SelectionOrigin,
        response: bytes | str,
    ) -> Selected | PickRefused:
        """Pin a person's pick, checked against what the slot can take now.

        Raises:
            InvalidInput: the actor belongs to no organisation.
            RepeatedAct: the act key belongs to a different selection, or to a different pick.
        """
        parsed = read_answer(slot, response)
        if isinstance(parsed, PickRefused):
            return parsed
        if (before := await self._recorded_before(slot, actor, project_id, origin)) is not None:
            if not picks_same(parsed, before.act):
                raise _repeated(before.act)
            return before
        resolution = await self.offer(slot, actor, project_id)
        return await select_interactively(
            slot, resolution, response, origin, at_us=self.clock.now_us(), artifacts=self.artifacts
        )

    async def contents(self, selection: SelectionAct) -> Sequence[PinnedContent]:
        """Return what a selection pinned, with the bytes of that time."""
        return await replay_selection(selection, artifacts=self.artifacts)

    def rehearsed(self) -> ArtifactSlots:
        """Return the same steps, but nothing is recorded."""
        return replace(self, artifacts=_UnrecordedArtifacts(self.artifacts))

    async def withdrawn(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, selection: SelectionAct
    ) -> Sequence[str]:
        """Return the ids of the selected artifacts that the actor can no longer take.

        A newer revision withdraws nothing. An artifact beyond the size limit of a resolution counts as withdrawn.
        """
        # Resolve without `override`, so that a narrower scope that appeared since hides nothing.
        every = slot.model_copy(update={"selection_mode": "interactive", "resolution_mode": "accumulate"})
        available: set[str] = set()
        if selection.refs:
            available = {ref.artifact_id for ref in (await self.offer(every, actor, project_id)).refs}
        return [ref.artifact_id for ref in selection.refs if ref.artifact_id not in available]

    async def recorded(self, slot: AgentContextSlot, origin: SelectionOrigin) -> SelectionAct | None:
        """Return the recorded selection of this origin for this slot, or None."""
        found = await self._by_act_key(slot, origin)
        return found if found is not None and _fits(found, slot, origin) else None

    async def _recorded_before(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, origin: SelectionOrigin
    ) -> Selected | None:
        """Return the selection recorded under the act key, or None. What the actor can select now does not matter.

        Raises `RepeatedAct` if the act key belongs to a different selection.
        """
        found = None if is_foreign(actor, project_id) else await self._by_act_key(slot, origin)
        if found is None:
            return None
        if not _fits(found, slot, origin):
            raise _repeated(found)
        return Selected(act=found, manifest=manifest_of(await self.contents(found)), wrote=False)

    async def _by_act_key(self, slot: AgentContextSlot, origin: SelectionOrigin) -> SelectionAct | None:
        selections = await self.artifacts.selections(origin.org_id, origin.parent_run_id)
        return {selection.selection_id: selection for selection in selections}.get(selection_id(slot.slot_id, origin))


@dataclass(frozen=True, slots=True)
class _UnrecordedArtifacts:
    """Artifacts that accept every selection and store none."""

    stored: Artifacts

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        return await self.stored.candidates(query)

    async def insert_selection(self, act: SelectionAct) -> bool:  # noqa: ARG002 - named by the port
        return True

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        return await self.stored.selections(org_id, run_id)

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        return await self.stored.pinned(org_id, refs)


def _fits(selection: SelectionAct, slot: AgentContextSlot, origin: SelectionOrigin) -> bool:
    declared = (slot.selection_mode, slot.resolution_mode)
    return selection.origin == origin and (selection.selection_mode, selection.resolution_mode) == declared


def _repeated(selection: SelectionAct) -> RepeatedAct:
    detail = f"`{selection.selection_id}` is already recorded with a different pick; nothing was written"
    return RepeatedAct(Problem("/origin/act_key", "repeated_act", detail, "use a new act key for every selection"))
