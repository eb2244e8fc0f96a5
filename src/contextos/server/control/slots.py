"""Lists the artifacts that a caller could select for a context slot.

The owner is looked up in the directory by the verified caller, and never taken from the body of the request.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter

from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.envelopes.artifacts import PARTY
from contextos.contracts.envelopes.slots import AgentContextSlot, SlotResolution
from contextos.contracts.model import Model, Name
from contextos.errors import InvalidInput, Problem
from contextos.runtime.inputs.slot_steps import actor_of
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem

slot_routes: Final = APIRouter(tags=["slots"])


class SlotQuery(Model):
    """A slot to look at: what could the caller select for it, when `agent` acts for them? With `project_id` artifacts
    of this project, and with `include_broader` also those of none.
    """

    slot: AgentContextSlot
    agent: Name | None = None
    project_id: Name | None = None
    include_broader: bool = False


SlotQueryBody = Annotated[SlotQuery, json_of(SlotQuery)]


@slot_routes.post("/slots/resolve", response_model=SlotResolution, openapi_extra=body_of(SlotQuery))
async def post_resolution(app: AppHere, caller: CallerHere, sent: SlotQueryBody) -> SlotResolution:
    """Return the artifacts that the caller could select for a slot now. Nothing is written."""
    if caller.kind != "user":
        raise HttpProblem(403, "no_person", "a slot is filled for a person; sign in as one")
    agent_id = caller.agent_named(sent.agent)
    principals = await app.deployment.ports.directory.resolve(caller.tenant_id, caller.subject, agent_id)
    if principals is None:
        raise InvalidInput(Problem("/agent", "identity_refused", "the directory does not know you with this agent"))
    if sent.project_id is not None and not PARTY.fits(sent.project_id):
        raise InvalidInput(Problem("/project_id", "no_project", "it is not an id of a project", "name one"))
    shelf = app.stores.artifacts(caller.tenant_id)
    steps = ArtifactSlots(shelf, shelf, app.deployment.ports.clock, include_broader=sent.include_broader)
    return await steps.offer(sent.slot, actor_of(principals), sent.project_id)
