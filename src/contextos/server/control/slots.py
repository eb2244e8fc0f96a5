"""Context slots: what a run asks its user to select, their signed answer, what was selected, and what a slot can take.

Whose artifacts a slot can take is looked up in the directory, and never what a caller states of themselves.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from contextos.audit.verify import verify_audited_run
from contextos.context.slots.select import replay_selection
from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.artifacts import PARTY
from contextos.contracts.envelopes.pack import ContextPack, DecisionLayer, IntentCatalog
from contextos.contracts.envelopes.slots import (
    AgentContextSlot,
    PickRefused,
    Selected,
    SelectionAct,
    SelectionOrigin,
    SlotResolution,
)
from contextos.contracts.model import Model, Name, OpenObject
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.checks import verified_run
from contextos.deployment.queries.run_view import run_principals
from contextos.deployment.slot_answers import answer_slot, read_offer
from contextos.errors import InvalidInput, Problem
from contextos.runtime.inputs.slot_steps import actor_of
from contextos.server.access import RolesHere, RunName, readable_run, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.server.shared.pages import Limit, LongCursor
from contextos.server.shared.signing import act_document, signing_actor
from contextos.service.acts import check_stated_at
from contextos.service.operations.operation import Signed, StatedAt, page_of
from contextos.service.operations.packs import PACK_READERS
from contextos.service.views import ActDocument
from contextos.workspace import App

slot_routes: Final = APIRouter(tags=["slots"])


class DeclaredSlot(Model):
    """A slot that a task template of a pinned pack or catalog declares."""

    ref: str
    intent: str
    slot: AgentContextSlot


class DeclaredSlotPage(Model):
    """A page of the slots that pinned packs declare. `cursor` asks for the next page; null after the last."""

    items: list[DeclaredSlot]
    cursor: str | None


class SlotQuery(Model):
    """A slot to look at: what could the caller select for it, when `agent` acts for them? With `project_id` artifacts
    of this project, and with `include_broader` also those of none.
    """

    slot: AgentContextSlot
    agent: Name | None = None
    project_id: Name | None = None
    include_broader: bool = False


class SlotOffer(Model):
    """What a run asks its user to select, what the selection belongs to (`origin`), and the artifacts that this user
    can select now.
    """

    run_id: str
    slot: AgentContextSlot
    origin: SelectionOrigin
    offer: SlotResolution


class SlotAnswer(Model):
    """A selection (`userResponse`: `slotId`, `resolutionMode` and `selectedRefs`, chosen from `refs` of the offer).
    `at_us` is now, in Unix microseconds, and counts for 15 minutes.
    """

    answer: OpenObject
    at_us: StatedAt


class SignedSlotAnswer(SlotAnswer, Signed):
    """A selection, with the proof of the run's user."""


class PinnedArtifact(Model):
    """An artifact as it was selected. `content` is null unless it was asked for."""

    ref: OpenObject
    title: str
    revision: int
    content: str | None


class RecordedSelection(Model):
    """A selection of a run, and what it pinned."""

    act: SelectionAct
    pinned: list[PinnedArtifact]


class SelectionPage(Model):
    """A page of the selections of a run, in order. `cursor` asks for the next page; null after the last."""

    items: list[RecordedSelection]
    cursor: str | None


SlotQueryBody = Annotated[SlotQuery, json_of(SlotQuery)]
SlotAnswerBody = Annotated[SlotAnswer, json_of(SlotAnswer)]
SignedSlotAnswerBody = Annotated[SignedSlotAnswer, json_of(SignedSlotAnswer)]


@slot_routes.get("/slots")
async def get_slots(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: LongCursor = ""
) -> DeclaredSlotPage:
    """List the slots that the pinned packs declare."""
    require_role(roles, *PACK_READERS)
    active = await app.artifacts.active(caller.tenant_id)
    found = []
    for ref in sorted({ref for pin in active.packs for ref in pin.refs}):
        stored = await app.deployment.catalog(caller.tenant_id).repository.published(ref)
        artifact = stored.artifact if stored is not None else None
        declaring = artifact.decision_layer if isinstance(artifact, ContextPack) else artifact
        for template in declaring.task_templates if isinstance(declaring, DecisionLayer | IntentCatalog) else ():
            found += [DeclaredSlot(ref=ref, intent=template.intent, slot=one.slot) for one in template.context_slots]
    items, following = page_of(found, (caller.tenant_id, "slots", active.version), limit, cursor)
    return DeclaredSlotPage(items=list(items), cursor=following)


@slot_routes.post("/slots/resolve", response_model=SlotResolution, openapi_extra=body_of(SlotQuery))
async def post_resolution(app: AppHere, caller: CallerHere, sent: SlotQueryBody) -> SlotResolution:
    """Return the artifacts that the caller could select for a slot now. Nothing is written."""
    if caller.kind != "user":
        raise HttpProblem(403, "no_person", "a slot is filled for a person; sign in as one")
    agent_id = caller.agent_named(sent.agent)
    known = await app.deployment.ports.directory.resolve(caller.tenant_id, caller.subject, agent_id)
    if known is None:
        raise InvalidInput(Problem("/agent", "identity_refused", "the directory does not know you with this agent"))
    if sent.project_id is not None and not PARTY.fits(sent.project_id):
        raise InvalidInput(Problem("/project_id", "no_project", "it is not an id of a project", "name one"))
    shelf = app.stores.artifacts(caller.tenant_id)
    steps = ArtifactSlots(shelf, shelf, app.deployment.ports.clock, include_broader=sent.include_broader)
    return await steps.offer(sent.slot, actor_of(known), sent.project_id)


@slot_routes.get("/runs/{run}/slot")
async def get_slot_offer(app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName) -> SlotOffer:
    """Read what a run asks the caller to select, and what they can select now."""
    run = await readable_run(app, caller, roles, name)
    question, offer = await read_offer(app.deployment, run.tenant_id, run.run_id, by=caller.subject)
    return SlotOffer(run_id=run.run_id, slot=question.slot, origin=question.origin, offer=offer)


@slot_routes.post("/runs/{run}/slot/statement", openapi_extra=body_of(SlotAnswer))
async def post_slot_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, sent: SlotAnswerBody
) -> ActDocument:
    """Return what the caller signs to select for the slot of a run. Nothing is recorded."""
    run = await readable_run(app, caller, roles, name)
    return await act_document(app, caller, lambda by: _answer(app, run.tenant_id, run.run_id, sent, by))


@slot_routes.post("/runs/{run}/slot/answer", openapi_extra=body_of(SignedSlotAnswer))
async def post_slot_answer(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, sent: SignedSlotAnswerBody
) -> SelectionAct:
    """Record the selection of the run's user, and wake the run."""
    run = await readable_run(app, caller, roles, name)
    done = await _answer(app, run.tenant_id, run.run_id, sent, signing_actor(app, caller, sent))
    app.engine.submit(run.tenant_id, run.run_id)
    return done.act


@slot_routes.get("/runs/{run}/selections")
async def get_selections(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    name: RunName,
    content: Annotated[bool, Query(description="Also the content that was pinned.")] = False,
    limit: Limit = 50,
    cursor: LongCursor = "",
) -> SelectionPage:
    """List the selections of a run, in order, as its journal has them, with what each pinned."""
    run = await readable_run(app, caller, roles, name)
    store, entries = await verified_run(app.deployment, run.tenant_id, run.run_id)
    principals, artifacts = run_principals(entries), app.stores.artifacts(run.tenant_id)
    organisation = principals.user.organization_id if principals is not None else None
    selections = await artifacts.selections(organisation, run.run_id) if organisation is not None else ()
    if selections:
        await verify_audited_run(store, run.tenant_id, run.run_id, app.keys)
    items, following = page_of(selections, (run.tenant_id, "selections", run.run_id), limit, cursor)
    found = []
    for one in items:
        pinned = [
            PinnedArtifact(
                ref=pin.ref.to_json(),
                title=pin.title,
                revision=pin.revision.revision,
                content=pin.revision.content if content else None,
            )
            for pin in await replay_selection(one, artifacts=artifacts)
        ]
        found.append(RecordedSelection(act=one, pinned=pinned))
    return SelectionPage(items=found, cursor=following)


async def _answer(app: App, tenant_id: str, run_id: str, sent: SlotAnswer, by: Actor) -> Selected:
    check_stated_at(app.deployment, sent.at_us)
    answer = canonical(sent.answer)
    done = await answer_slot(app.deployment, tenant_id, run_id, answer, by=by, selected_at_us=sent.at_us)
    if isinstance(done, PickRefused):
        raise InvalidInput(Problem(f"/answer{done.pointer}", done.code, done.detail, "choose from the offer"))
    return done
