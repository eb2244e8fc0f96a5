"""Context slots: the artifacts that a run asks its user to select, the signed answer, and the recorded selection.

`server.control.slots` says which artifacts a slot could take for a caller.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, Strict

from contextos.audit.verify import verify_audited_run
from contextos.context.slots.select import replay_selection
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.pack import ContextPack, DecisionLayer, IntentCatalog
from contextos.contracts.envelopes.slots import (
    AgentContextSlot,
    PickRefused,
    Selected,
    SelectionAct,
    SelectionOrigin,
    SlotResolution,
)
from contextos.contracts.model import Model, OpenObject
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.checks import verified_run
from contextos.deployment.queries.run_view import run_principals
from contextos.deployment.slot_answers import answer_slot, read_offer
from contextos.errors import InvalidInput, Problem
from contextos.service.acts import check_stated_at
from contextos.service.operations.operation import OF_RUN, Asked, Nothing, Operation, Paged, StatedAt, page_of
from contextos.service.operations.packs import PACK_READERS


class DeclaredSlot(Model):
    """A slot that a task template of a pinned pack or catalog declares."""

    ref: str
    intent: str
    slot: AgentContextSlot


class DeclaredSlotPage(Model):
    """A page of the slots that pinned packs declare. `cursor` asks for the next page; null after the last."""

    items: list[DeclaredSlot]
    cursor: str | None


class SlotOffer(Model):
    """The slot for which a run asks its user to select, the selection's `origin`, and the artifacts that this user can
    select now.
    """

    run_id: str
    slot: AgentContextSlot
    origin: SelectionOrigin
    offer: SlotResolution


class SlotAnswer(Model):
    """A selection (`userResponse`: `slotId`, `resolutionMode` and `selectedRefs`, chosen from `refs` of the offer).
    `at_us` is the current time in Unix microseconds; it counts for 15 minutes.
    """

    answer: OpenObject
    at_us: StatedAt


class SelectionQuery(Paged):
    """Which selections of a run."""

    content: Annotated[bool, Strict(False), Field(description="Also the content that was pinned.")] = False


class PinnedArtifact(Model):
    """An artifact as it was selected. `content` is null unless the query asked for it."""

    ref: OpenObject
    title: str
    revision: int
    content: str | None


class RecordedSelection(Model):
    """A selection of a run, and the artifacts that it pinned."""

    act: SelectionAct
    pinned: list[PinnedArtifact]


class SelectionPage(Model):
    """A page of the selections of a run, in order. `cursor` asks for the next page; null after the last."""

    items: list[RecordedSelection]
    cursor: str | None


async def list_slots(asked: Asked, page: Paged) -> DeclaredSlotPage:
    """List the slots that the pinned packs declare."""
    active = await asked.app.artifacts.active(asked.tenant_id)
    slots = []
    for ref in sorted(active.named()):
        stored = await asked.app.deployment.catalog(asked.tenant_id).repository.published(ref)
        artifact = stored.artifact if stored is not None else None
        declaring = artifact.decision_layer if isinstance(artifact, ContextPack) else artifact
        for template in declaring.task_templates if isinstance(declaring, DecisionLayer | IntentCatalog) else ():
            declared = (declaration.slot for declaration in template.context_slots)
            slots += [DeclaredSlot(ref=ref, intent=template.intent, slot=slot) for slot in declared]
    items, next_cursor = page_of(slots, (asked.tenant_id, "slots", active.version), page.limit, page.cursor)
    return DeclaredSlotPage(items=list(items), cursor=next_cursor)


async def read_slot_offer(asked: Asked, _nothing: Nothing) -> SlotOffer:
    """Read which selection a run asks of the caller, and the artifacts that they can select now."""
    question, offer = await read_offer(
        asked.app.deployment, asked.tenant_id, asked.name, by=asked.by.id, verified=asked.verified
    )
    return SlotOffer(run_id=asked.name, slot=question.slot, origin=question.origin, offer=offer)


async def select(asked: Asked, sent: SlotAnswer) -> ActProposal[SelectionAct]:
    """Record the selection of the run's user, and wake the run."""
    check_stated_at(asked.app.deployment, sent.at_us)

    async def recorded(result: Selected | PickRefused) -> SelectionAct:
        if isinstance(result, PickRefused):
            raise InvalidInput(Problem(f"/answer{result.pointer}", result.code, result.detail, "choose from the offer"))
        asked.app.engine.submit(asked.tenant_id, asked.name)
        return result.act

    answer = canonical(sent.answer)
    proposal = await answer_slot.propose(
        asked.app.deployment,
        asked.tenant_id,
        asked.name,
        answer,
        by=asked.by,
        selected_at_us=sent.at_us,
        verified=asked.verified,
    )
    return proposal.then(recorded)


async def list_selections(asked: Asked, query: SelectionQuery) -> SelectionPage:
    """List the selections of a run, in order, as its journal has them, with the artifacts that each pinned."""
    ports = asked.app.deployment.ports
    store, entries = await verified_run(asked.app.deployment, asked.tenant_id, asked.name)
    principals, artifacts = run_principals(entries), ports.stores.artifacts(asked.tenant_id)
    organisation = principals.user.organization_id if principals is not None else None
    selections = await artifacts.selections(organisation, asked.name) if organisation is not None else ()
    if selections:
        await verify_audited_run(store, asked.tenant_id, asked.name, ports.keys)
    list_name = (asked.tenant_id, "selections", asked.name)
    items, next_cursor = page_of(selections, list_name, query.limit, query.cursor)
    recorded = []
    for selection in items:
        pinned = [
            PinnedArtifact(
                ref=pin.ref.to_json(),
                title=pin.title,
                revision=pin.revision.revision,
                content=pin.revision.content if query.content else None,
            )
            for pin in await replay_selection(selection, artifacts=artifacts)
        ]
        recorded.append(RecordedSelection(act=selection, pinned=pinned))
    return SelectionPage(items=recorded, cursor=next_cursor)


SLOT_OPERATIONS: Final = (
    Operation("slots.list", ("GET", "/slots"), PACK_READERS, Paged, DeclaredSlotPage, list_slots),
    Operation("slots.offer", ("GET", "/runs/{run}/slot"), (), Nothing, SlotOffer, read_slot_offer, about=OF_RUN),
    Operation(
        "slots.select",
        ("POST", "/runs/{run}/slot"),
        (),
        SlotAnswer,
        SelectionAct,
        select,
        signs="select for the slot of a run",
        about=OF_RUN,
    ),
    Operation(
        "slots.selections",
        ("GET", "/runs/{run}/selections"),
        (),
        SelectionQuery,
        SelectionPage,
        list_selections,
        about=OF_RUN,
    ),
)
