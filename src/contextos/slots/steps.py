"""`ArtifactSlots`: the seam `SlotSteps` over a tenant's artifacts, and the one way to a selection on every road.

Record, then use: the audit first, then the run. For a project that is not the actor's nothing is read. An act that is
recorded under its key already is the answer, whatever changed since: who lost the answer asks again and gets it.
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
    picks_as,
    read_answer,
    replay_selection,
    select_autonomously,
    select_interactively,
    selection_id,
)


@dataclass(frozen=True, slots=True)
class ArtifactSlots:
    """What is asked of one tenant's slots. `include_broader` layers what is of no project under a project's own."""

    artifacts: Artifacts
    curation: Curation
    clock: Clock
    include_broader: bool = False

    async def offer(self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None) -> SlotResolution:
        """What the slot may take now. Nothing is written.

        Raises:
            InvalidInput: the actor is in no organisation.
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
            InvalidInput: the actor is in no organisation; `RepeatedAct`, the key is another act's.
        """
        assert slot.selection_mode == "autonomous", "a person picks for this slot"
        if (before := await self._before(slot, actor, project_id, origin)) is not None:
            return before
        resolution = await self.offer(slot, actor, project_id)
        try:
            return await select_autonomously(
                slot, resolution, origin, at_us=self.clock.now_us(), artifacts=self.artifacts
            )
        except RepeatedAct:
            # Another drive recorded this act since it was looked for, out of what there was then.
            if (stands := await self._before(slot, actor, project_id, origin)) is None:
                raise
            return stands

    async def answer(
        self,
        slot: AgentContextSlot,
        actor: SlotActor,
        project_id: str | None,
        origin: SelectionOrigin,
        said: bytes | str,
    ) -> Selected | PickRefused:
        """A person's pick, against what the slot may take now.

        Raises:
            InvalidInput: the actor is in no organisation; `RepeatedAct`, the key is another act's, or another pick's.
        """
        told = read_answer(slot, said)
        if isinstance(told, PickRefused):
            return told
        if (before := await self._before(slot, actor, project_id, origin)) is not None:
            if not picks_as(told, before.act):
                raise _repeated(before.act)
            return before
        resolution = await self.offer(slot, actor, project_id)
        return await select_interactively(
            slot, resolution, said, origin, at_us=self.clock.now_us(), artifacts=self.artifacts
        )

    async def contents(self, act: SelectionAct) -> Sequence[PinnedContent]:
        """What an act pinned, as it was then."""
        return await replay_selection(act, artifacts=self.artifacts)

    def rehearsed(self) -> ArtifactSlots:
        """The same steps, of which nothing is recorded."""
        return replace(self, artifacts=_Unrecorded(self.artifacts))

    async def withdrawn(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, act: SelectionAct
    ) -> Sequence[str]:
        """The artifacts of an act that the actor may not take any more. A newer revision withdraws nothing.

        What stands beyond the bound of a resolution counts as withdrawn.
        """
        # All that may be taken, also what a narrower scope would outdo by now.
        every = slot.model_copy(update={"selection_mode": "interactive", "resolution_mode": "accumulate"})
        seen = {ref.artifact_id for ref in (await self.offer(every, actor, project_id)).refs} if act.refs else set()
        return [ref.artifact_id for ref in act.refs if ref.artifact_id not in seen]

    async def recorded(self, slot: AgentContextSlot, origin: SelectionOrigin) -> SelectionAct | None:
        """The act of this origin for this slot, if there is one."""
        found = await self._of_key(slot, origin)
        return found if found is not None and _fits(found, slot, origin) else None

    async def _before(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, origin: SelectionOrigin
    ) -> Selected | None:
        """The act as it is recorded, with its titles, also to who could not take it any more.

        Raises `RepeatedAct` where its key is used for something else.
        """
        found = None if is_foreign(actor, project_id) else await self._of_key(slot, origin)
        if found is None:
            return None
        if not _fits(found, slot, origin):
            raise _repeated(found)
        return Selected(act=found, manifest=manifest_of(await self.contents(found)), wrote=False)

    async def _of_key(self, slot: AgentContextSlot, origin: SelectionOrigin) -> SelectionAct | None:
        acts = await self.artifacts.selections(origin.org_id, origin.parent_run_id)
        return {act.selection_id: act for act in acts}.get(selection_id(slot.slot_id, origin))


@dataclass(frozen=True, slots=True)
class _Unrecorded:
    """Artifacts whose audit takes every act and keeps none."""

    of: Artifacts

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        return await self.of.candidates(query)

    async def insert_selection(self, act: SelectionAct) -> bool:  # noqa: ARG002 - the port's own
        return True

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        return await self.of.selections(org_id, run_id)

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        return await self.of.pinned(org_id, refs)


def _fits(act: SelectionAct, slot: AgentContextSlot, origin: SelectionOrigin) -> bool:
    declared = (slot.selection_mode, slot.resolution_mode)
    return act.origin == origin and (act.selection_mode, act.resolution_mode) == declared


def _repeated(act: SelectionAct) -> RepeatedAct:
    detail = f"`{act.selection_id}` is recorded with another pick; nothing was written"
    return RepeatedAct(Problem("/origin/act_key", "repeated_act", detail, "give every act a key of its own"))
