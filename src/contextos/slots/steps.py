"""`ArtifactSlots`: the seam `SlotSteps` over a tenant's artifacts. Record, then use: the audit first, then the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contextos.contracts.ports import Clock
from contextos.contracts.slots import (
    Actor,
    AgentContextSlot,
    PickRefused,
    Pinned,
    Selected,
    SelectionAct,
    SelectionOrigin,
    SlotResolution,
)
from contextos.slots.resolve import resolve_context_slot
from contextos.slots.select import replay, select_autonomously, select_interactively, selection_id


@dataclass(frozen=True, slots=True)
class ArtifactSlots:
    """What a run's slot steps ask of one tenant. `shelf` has both ports, `Artifacts` and `Curation`."""

    shelf: Any
    clock: Clock

    async def take(
        self, slot: AgentContextSlot, actor: Actor, project_id: str | None, origin: SelectionOrigin
    ) -> SelectionAct | PickRefused:
        """Pin what an autonomous slot takes. What was taken before, in a drive that was lost, stands.

        Raises:
            InvalidInput: the actor is in no organisation.
        """
        assert slot.selection_mode == "autonomous", "a person picks for this slot"
        if (before := await self.recorded(slot, origin)) is not None:
            return before
        resolution = await self.offer(slot, actor, project_id)
        made = await select_autonomously(slot, resolution, origin, at_us=self.clock.now_us(), artifacts=self.shelf)
        return made.act if isinstance(made, Selected) else made

    async def offer(self, slot: AgentContextSlot, actor: Actor, project_id: str | None) -> SlotResolution:
        """What the slot may take now. Nothing is written.

        Raises:
            InvalidInput: the actor is in no organisation.
        """
        installed = await self.shelf.extensions()
        return await resolve_context_slot(actor, slot, project_id, installed, artifacts=self.shelf)

    async def answer(
        self, slot: AgentContextSlot, actor: Actor, project_id: str | None, origin: SelectionOrigin, said: bytes
    ) -> Selected | PickRefused:
        """A person's pick, against what the slot may take now.

        Raises:
            InvalidInput: the actor is in no organisation; `RepeatedAct`, the slot was answered otherwise before.
        """
        resolution = await self.offer(slot, actor, project_id)
        return await select_interactively(
            slot, resolution, said, origin, at_us=self.clock.now_us(), artifacts=self.shelf
        )

    async def contents(self, act: SelectionAct) -> Sequence[Pinned]:
        """What an act pinned, as it was then."""
        return await replay(act, artifacts=self.shelf)

    async def recorded(self, slot: AgentContextSlot, origin: SelectionOrigin) -> SelectionAct | None:
        """The act of this origin for this slot, if there is one."""
        acts = await self.shelf.selections(origin.org_id, origin.parent_run_id)
        found = {act.selection_id: act for act in acts}.get(selection_id(slot.slot_id, origin))
        fits = found is not None and found.origin == origin and found.selection_mode == slot.selection_mode
        return found if fits else None
