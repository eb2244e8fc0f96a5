"""Lists the artifacts that a caller could select for a context slot, and takes their answers to flows that wait.

The owner is looked up in the directory by the verified caller, and never taken from the body of the request. A question
of a flow is sealed by the runtime of this deployment, and only the person whom it names sees and answers it.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path

from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.artifacts import PARTY
from contextos.contracts.envelopes.slots import AgentContextSlot, SelectionId, SelectionOrigin, SlotResolution
from contextos.contracts.model import Model, Name, OpenObject
from contextos.errors import InvalidInput, Problem
from contextos.runtime.inputs.slot_steps import actor_of
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.service.operations.slots import SlotOffer
from contextos.trust.identity.callers import Caller

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


class FlowQuestionDocument(Model):
    """A selection that a paused flow asks of the caller. `asked_at_us` is Unix time in microseconds."""

    selection_id: SelectionId
    slot: AgentContextSlot
    origin: SelectionOrigin
    asked_at_us: int


class FlowQuestionList(Model):
    """The open questions of flows to the caller, the oldest first; 32 at most."""

    items: list[FlowQuestionDocument]


class FlowAnswer(Model):
    """A selection (`userResponse`: `slotId`, `resolutionMode` and `selectedRefs`, chosen from `refs` of the offer)."""

    answer: OpenObject


FlowAnswerBody = Annotated[FlowAnswer, json_of(FlowAnswer)]
FlowQuestionName = Annotated[str, Path(alias="selection", description="The id of a selection.", max_length=64)]


@slot_routes.get("/slots/questions", response_model_exclude_unset=True)
async def get_flow_questions(app: AppHere, caller: CallerHere) -> FlowQuestionList:
    """List the selections that paused flows ask of the caller."""
    found = await app.slot_questions.waiting(caller.tenant_id, person_of(caller))
    items = [
        FlowQuestionDocument(
            selection_id=one.selection_id,
            slot=one.question.slot,
            origin=one.question.origin,
            asked_at_us=one.asked_at_us,
        )
        for one in found
    ]
    return FlowQuestionList(items=items)


@slot_routes.get("/slots/questions/{selection}", response_model_exclude_unset=True)
async def get_flow_question(app: AppHere, caller: CallerHere, name: FlowQuestionName) -> SlotOffer:
    """Read which selection a paused flow asks of the caller, and the artifacts that they can select now."""
    question, offer = await app.slot_questions.offer(caller.tenant_id, person_of(caller), name)
    return SlotOffer(run_id=question.origin.parent_run_id, slot=question.slot, origin=question.origin, offer=offer)


@slot_routes.post("/slots/questions/{selection}", status_code=202, openapi_extra=body_of(FlowAnswer))
async def post_flow_answer(
    app: AppHere, caller: CallerHere, name: FlowQuestionName, sent: FlowAnswerBody
) -> FlowAnswer:
    """Answer a paused flow. Its runtime resumes it with the answer, and records the selection."""
    refused = await app.slot_questions.answer(caller.tenant_id, person_of(caller), name, canonical(sent.answer))
    if refused is not None:
        raise InvalidInput(Problem(f"/answer{refused.pointer}", refused.code, refused.detail, "choose from the offer"))
    return sent


def person_of(caller: Caller) -> str:
    """Return the id of a person who acts themselves. Raises `HttpProblem` (403) for a workload, and for the token that
    a person gave to an agent: only a person answers a selection.
    """
    if caller.kind != "user" or caller.agent_ids is not None:
        raise HttpProblem(403, "no_person", "a person answers for themselves; sign in as one")
    return caller.subject
