"""Fill a context slot for one run of one agent, in steps: find what it can take, check a person's answer, record it.

The slot comes from the agent's own document and the actor from verified identity. A flow only names the slot; run and
package are compared, and a difference is refused. No state is kept between two calls, so the second call can come from
another process, or twice: the flow carries `act_key`, which identifies the selection. Source: docs/design/contracts.md,
"Context slots".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from contextos.context.slots.oas import require_package, slot_of
from contextos.context.slots.resolve import is_foreign, require_organisation
from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.encoding.codec import JsonValue, parse
from contextos.contracts.encoding.display_escape import escape_for_display
from contextos.contracts.envelopes.slots import (
    AgentContextSlot,
    PickRefused,
    Selected,
    SelectionMode,
    SelectionOrigin,
    SlotActor,
    SlotQuestion,
    SlotResolution,
)
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.storage import Artifacts, Curation
from contextos.errors import InvalidInput, Problem


@dataclass(frozen=True, slots=True)
class SlotCall:
    """The four inputs of a selection node (the node of an agent's flow that fills a slot). An empty `project_id`: no
    project.
    """

    parent_run_id: str
    parent_package_name: str
    slot_id: str
    project_id: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The artifacts that a slot can take now, and the act key under which the answer to this offer is recorded."""

    slot: AgentContextSlot
    resolution: SlotResolution
    act_key: str

    def payload(self) -> dict[str, Any]:
        """Return the offer as JSON for display to a person. Titles are escaped: no invisible characters and no
        markup.
        """
        lines = zip(self.resolution.refs, self.resolution.manifest, strict=True)
        return {
            "slot": {"minItems": 0, "readableOnly": False} | self.slot.to_json(),
            "candidates": [ref.to_json() | {"title": _escaped_title(line.title)} for ref, line in lines],
            "more": self.resolution.more,
        }


@dataclass(frozen=True, slots=True)
class SelectionSession:
    """Fills the context slots of one run of one agent. `document` is the installed agent; `curation` lists artifact
    types. `ask` puts a question to the person elsewhere too, such as `app.slot_questions.ask` on the console.
    """

    document: JsonValue
    run_id: str
    package: str
    actor: SlotActor
    artifacts: Artifacts
    curation: Curation
    clock: Clock
    ask: Callable[[SlotQuestion], Awaitable[object]] | None = None

    async def offer(self, call: SlotCall) -> Offer:
        """Return the artifacts that the slot can take. Nothing is written.

        Raises:
            InvalidInput: the run or package differs, the document states another package, there is no such slot, or the
                actor has no organisation.
        """
        slot, project = self._slot(call), call.project_id or None
        resolution = await self._steps.offer(slot, self.actor, project)
        if is_foreign(self.actor, project):
            return Offer(slot, resolution, "act_of_a_foreign_project")
        selections = await self.artifacts.selections(require_organisation(self.actor), call.parent_run_id)
        before = [
            selection
            for selection in selections
            if selection.slot_id == slot.slot_id and selection.origin.parent_package_name == call.parent_package_name
        ]
        return Offer(slot, resolution, f"act_{len(before) + 1}")

    async def ask_person(self, call: SlotCall, offer: Offer) -> None:
        """Put the question of an interactive slot to the person, if this session asks elsewhere. Raises as `ask`."""
        project = call.project_id or None
        if self.ask is None or offer.slot.selection_mode != "interactive" or is_foreign(self.actor, project):
            return
        origin = self._origin(call, offer.act_key)
        await self.ask(SlotQuestion(slot=offer.slot, actor=self.actor, project_id=project, origin=origin))

    async def take(self, call: SlotCall, act_key: str) -> Selected | PickRefused:
        """Select artifacts for a slot that needs no person. An act key that is already recorded returns that
        selection.

        Raises:
            InvalidInput: as `offer`, or the slot is interactive.
            RepeatedAct: the act key belongs to a different selection.
        """
        slot, origin = self._slot(call, "autonomous"), self._origin(call, act_key)
        return await self._steps.take(slot, self.actor, call.project_id or None, origin)

    async def finalize(self, call: SlotCall, act_key: str, answer: str) -> Selected | PickRefused:
        """Check a person's answer against what the slot can take now, and record it. Repeating the answer changes
        nothing.

        Raises:
            InvalidInput: as `offer`, or the slot is autonomous.
            RepeatedAct: the act key was answered differently before.
        """
        slot, origin = self._slot(call, "interactive"), self._origin(call, act_key)
        return await self._steps.answer(slot, self.actor, call.project_id or None, origin, answer)

    @property
    def _steps(self) -> ArtifactSlots:
        return ArtifactSlots(self.artifacts, self.curation, self.clock)

    def _slot(self, call: SlotCall, mode: SelectionMode | None = None) -> AgentContextSlot:
        for name, value, own in (
            ("parentRunId", call.parent_run_id, self.run_id),
            ("parentPackageName", call.parent_package_name, self.package),
        ):
            if value != own:
                detail = f"`{name}` of the flow is `{value[:128]}`, and this run has `{own}`"
                raise InvalidInput(Problem(f"/{name}", "other_origin", detail, "start the flow with these values"))
        slot = slot_of(self.document, call.slot_id)
        require_package(self.document, self.package)
        if mode is not None and slot.selection_mode != mode:
            detail = f"slot `{slot.slot_id}` is {slot.selection_mode}"
            remedy = "branch on the `selectionMode` that resolving returns"
            raise InvalidInput(Problem("/selectionMode", "selection_mode_mismatch", detail, remedy))
        return slot

    def _origin(self, call: SlotCall, act_key: str) -> SelectionOrigin:
        origin = {
            "org_id": require_organisation(self.actor),
            "parent_run_id": call.parent_run_id,
            "act_key": act_key,
            "parent_package_name": call.parent_package_name,
            "principal_id": self.actor.principal_id,
        }
        return parse(SelectionOrigin, origin)


def _escaped_title(title: str) -> str:
    return escape_for_display(title).replace("<", "\\u003c").replace(">", "\\u003e")
