"""What the steps of the selection agent do, for one run of one agent: resolve a slot, judge a pick, pin it.

The slot comes from the agent's own document and the actor from verified identity; of what a flow says only the slot is
asked for by it. Run and package are compared and a difference refuses. Nothing is kept between two calls, so the
second may come in another process, or twice: `act_key` goes with the flow and makes it the same act.
Source: shared/spec/seeds/003, "Explicit context-selection-agent invocation"; context-slots-facts.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contextos.contracts.encoding.codec import JsonValue, parse
from contextos.contracts.encoding.display_escape import escape_for_display
from contextos.contracts.envelopes.slots import (
    AgentContextSlot,
    PickRefused,
    Selected,
    SelectionMode,
    SelectionOrigin,
    SlotActor,
    SlotResolution,
)
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.storage import Artifacts, Curation
from contextos.errors import InvalidInput, Problem
from contextos.slots.lint.oas import slot_of
from contextos.slots.resolve import is_foreign, require_organisation
from contextos.slots.steps import ArtifactSlots


@dataclass(frozen=True, slots=True)
class SlotCall:
    """The four inputs of a selection node. An empty `project_id` is none."""

    parent_run_id: str
    parent_package_name: str
    slot_id: str
    project_id: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What a slot may take now, and the key of the act that will answer it."""

    slot: AgentContextSlot
    resolution: SlotResolution
    act_key: str

    def payload(self) -> dict[str, Any]:
        """What a renderer shows a person. Of the titles nothing hides and nothing is markup."""
        lines = zip(self.resolution.refs, self.resolution.manifest, strict=True)
        return {
            "slot": {"minItems": 0, "readableOnly": False} | self.slot.to_json(),
            "candidates": [ref.to_json() | {"title": _shown(line.title)} for ref, line in lines],
            "more": self.resolution.more,
        }


@dataclass(frozen=True, slots=True)
class SelectionSession:
    """One run of one agent. `document` is the agent as it is installed, `curation` knows the installed extensions."""

    document: JsonValue
    run_id: str
    package: str
    actor: SlotActor
    artifacts: Artifacts
    curation: Curation
    clock: Clock

    async def offer(self, call: SlotCall) -> Offer:
        """What the slot may take. Nothing is written.

        Raises:
            InvalidInput: another run or package, no such slot, or an actor without an organisation.
        """
        slot, project = self._slot(call), call.project_id or None
        resolution = await self._steps.offer(slot, self.actor, project)
        if is_foreign(self.actor, project):
            return Offer(slot, resolution, "act_of_a_foreign_project")
        acts = await self.artifacts.selections(require_organisation(self.actor), call.parent_run_id)
        before = [
            act
            for act in acts
            if act.slot_id == slot.slot_id and act.origin.parent_package_name == call.parent_package_name
        ]
        return Offer(slot, resolution, f"act_{len(before) + 1}")

    async def take(self, call: SlotCall, act_key: str) -> Selected | PickRefused:
        """Pin what an autonomous slot takes; for an act key that is recorded, what it took then.

        Raises:
            InvalidInput: as `offer`; or a person is to be asked; `RepeatedAct`, the key is another act's.
        """
        slot, origin = self._slot(call, "autonomous"), self._origin(call, act_key)
        return await self._steps.take(slot, self.actor, call.project_id or None, origin)

    async def finalize(self, call: SlotCall, act_key: str, answer: str) -> Selected | PickRefused:
        """Judge a person's answer against what the slot may take now, and pin it; said again, it is the same act.

        Raises:
            InvalidInput: as `offer`; or nobody is to be asked; `RepeatedAct`, this act was answered otherwise before.
        """
        slot, origin = self._slot(call, "interactive"), self._origin(call, act_key)
        return await self._steps.answer(slot, self.actor, call.project_id or None, origin, answer)

    @property
    def _steps(self) -> ArtifactSlots:
        return ArtifactSlots(self.artifacts, self.curation, self.clock)

    def _slot(self, call: SlotCall, mode: SelectionMode | None = None) -> AgentContextSlot:
        for name, given, own in (
            ("parentRunId", call.parent_run_id, self.run_id),
            ("parentPackageName", call.parent_package_name, self.package),
        ):
            if given != own:
                detail = f"the flow says `{given[:128]}` and this is `{own}`"
                raise InvalidInput(Problem(f"/{name}", "other_origin", detail, "start the flow with its own values"))
        slot = slot_of(self.document, call.slot_id)
        if mode is not None and slot.selection_mode != mode:
            detail = f"slot `{slot.slot_id}` is {slot.selection_mode}"
            mend = "branch on the `selectionMode` that resolving returns"
            raise InvalidInput(Problem("/selectionMode", "selection_mode_mismatch", detail, mend))
        return slot

    def _origin(self, call: SlotCall, act_key: str) -> SelectionOrigin:
        told = {
            "org_id": require_organisation(self.actor),
            "parent_run_id": call.parent_run_id,
            "act_key": act_key,
            "parent_package_name": call.parent_package_name,
            "principal_id": self.actor.principal_id,
        }
        return parse(SelectionOrigin, told)


def _shown(title: str) -> str:
    return escape_for_display(title).replace("<", "\\u003c").replace(">", "\\u003e")
