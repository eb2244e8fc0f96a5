"""Make every selection for a context slot: `ArtifactSlots` implements the port `SlotSteps` over a tenant's artifacts.

A selection is recorded before it is used. A governed run calls `choose`, writes the choice to its journal, and then
calls `record`, which writes it to the audit. Outside of a governed run, `take` and `answer` choose and record. If a
selection is already recorded under its act key, they return it, whatever has changed since: a caller that lost the
reply asks again and gets the same selection. For a project that is not the actor's, nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from contextos.context.slots.resolve import is_foreign, manifest_of, resolve_installed
from contextos.context.slots.select import (
    choose_autonomously,
    choose_interactively,
    picks_same,
    read_answer,
    record_selection,
    replay_selection,
    select_autonomously,
    select_interactively,
    selection_fits,
)
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
    selection_id,
)
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.storage import Artifacts, Curation
from contextos.errors import Problem, RepeatedAct


@dataclass(frozen=True, slots=True)
class ArtifactSlots:
    """Fills the context slots of runs of one tenant. `include_broader` adds artifacts without a project, after those
    of the project.
    """

    artifacts: Artifacts
    curation: Curation
    clock: Clock
    include_broader: bool = False

    async def offer(self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None) -> SlotResolution:
        """Return the artifacts that the slot can take now. Nothing is written.

        Raises:
            InvalidInput: the actor belongs to no organisation, or `project_id` is not an id.
        """
        return await resolve_installed(
            actor,
            slot,
            project_id,
            artifacts=self.artifacts,
            curation=self.curation,
            include_broader=self.include_broader,
        )

    async def choose(
        self,
        slot: AgentContextSlot,
        actor: SlotActor,
        project_id: str | None,
        origin: SelectionOrigin,
        answer: bytes | None,
    ) -> SelectionAct | PickRefused:
        """Return the selection for a slot: automatic, or by a person's answer if one is given. Nothing is written.

        Raises:
            InvalidInput: the actor belongs to no organisation, or `project_id` is not an id.
        """
        resolution, at_us = await self.offer(slot, actor, project_id), self.clock.now_us()
        if answer is None:
            assert slot.selection_mode == "autonomous", "a person selects for an interactive slot"
            return await choose_autonomously(slot, resolution, origin, at_us=at_us, artifacts=self.artifacts)
        return await choose_interactively(slot, resolution, answer, origin, at_us=at_us, artifacts=self.artifacts)

    async def record(self, selection: SelectionAct) -> PickRefused | None:
        """Write a selection, which the journal of its run holds, to the audit. Writing it again changes nothing.

        Returns why the selection is refused, or None.

        Raises:
            InvalidInput: the journal of the run does not hold the selection.
            RepeatedAct: the audit has a different selection under the same act key.
        """
        result = await record_selection(selection, artifacts=self.artifacts)
        return result if isinstance(result, PickRefused) else None

    async def take(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, origin: SelectionOrigin
    ) -> Selected | PickRefused:
        """Select artifacts for an autonomous slot and record the selection. A selection that was recorded under the
        same act key before is returned instead.

        Raises:
            InvalidInput: as `offer`; also if the origin is a governed run, which records its own selections.
            RepeatedAct: the act key belongs to a different selection.
        """
        assert slot.selection_mode == "autonomous", "a person selects for an interactive slot"
        if (recorded := await self._find_recorded(slot, actor, project_id, origin)) is not None:
            return recorded
        resolution = await self.offer(slot, actor, project_id)
        try:
            return await select_autonomously(
                slot, resolution, origin, at_us=self.clock.now_us(), artifacts=self.artifacts
            )
        except RepeatedAct:
            # Another process recorded this selection after it was looked up.
            if (recorded_since := await self._find_recorded(slot, actor, project_id, origin)) is None:
                raise
            return recorded_since

    async def answer(
        self,
        slot: AgentContextSlot,
        actor: SlotActor,
        project_id: str | None,
        origin: SelectionOrigin,
        response: bytes | str,
    ) -> Selected | PickRefused:
        """Check a person's answer against what the slot can take now, and record the selection. If the same selection
        was recorded under this act key before, it is returned and nothing is written.

        Raises:
            InvalidInput: as `offer`; also if the origin is a governed run, which records its own selections.
            RepeatedAct: the act key belongs to a different selection, or to a different answer.
        """
        parsed = read_answer(slot, response)
        if isinstance(parsed, PickRefused):
            return parsed
        if (recorded := await self._find_recorded(slot, actor, project_id, origin)) is not None:
            if not picks_same(parsed, recorded.act):
                raise _repeated_act(recorded.act)
            return recorded
        resolution = await self.offer(slot, actor, project_id)
        return await select_interactively(
            slot, resolution, response, origin, at_us=self.clock.now_us(), artifacts=self.artifacts
        )

    async def contents(self, selection: SelectionAct) -> Sequence[PinnedContent]:
        """Return the artifacts of a selection with the content that they had when they were selected."""
        return await replay_selection(selection, artifacts=self.artifacts)

    def rehearsed(self) -> ArtifactSlots:
        """Return these steps over artifacts that accept every selection and record nothing."""
        return replace(self, artifacts=_UnrecordedArtifacts(self.artifacts))

    async def withdrawn(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, selection: SelectionAct
    ) -> Sequence[str]:
        """Return the ids of the selected artifacts that the actor is no longer allowed to take.

        An artifact that only has a newer revision is not withdrawn. An artifact after the first `MAX_CANDIDATES` that
        the slot could take counts as withdrawn. Raises as `offer`.
        """
        # Resolve without `override`, so that a narrower scope that appeared since hides nothing.
        unrestricted = slot.model_copy(update={"selection_mode": "interactive", "resolution_mode": "accumulate"})
        available: set[str] = set()
        if selection.refs:
            available = {ref.artifact_id for ref in (await self.offer(unrestricted, actor, project_id)).refs}
        return [ref.artifact_id for ref in selection.refs if ref.artifact_id not in available]

    async def _find_recorded(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, origin: SelectionOrigin
    ) -> Selected | None:
        """Return the selection recorded under the act key, or None. What the actor can select now does not matter.

        Raises `RepeatedAct` if the act key belongs to a different selection.
        """
        if is_foreign(actor, project_id):
            return None
        selections = await self.artifacts.selections(origin.org_id, origin.parent_run_id)
        recorded = {act.selection_id: act for act in selections}.get(selection_id(slot.slot_id, origin))
        if recorded is None:
            return None
        if not selection_fits(recorded, slot, origin):
            raise _repeated_act(recorded)
        return Selected(act=recorded, manifest=manifest_of(await self.contents(recorded)), wrote=False)


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

    async def pinned_sizes(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[int]:
        return await self.stored.pinned_sizes(org_id, refs)

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        return await self.stored.pinned(org_id, refs)


def _repeated_act(selection: SelectionAct) -> RepeatedAct:
    detail = f"`{selection.selection_id}` is already recorded with a different pick; nothing was written"
    return RepeatedAct(Problem("/origin/act_key", "repeated_act", detail, "use a new act key for every selection"))
