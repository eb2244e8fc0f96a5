"""The context selector: a person selects the artifacts that fill a context slot.

It is registered under the name that the gates of Open Agent Spec flows use. For a run, the selection goes to
`/v1/runs/{run}/slot`, signed in the browser by a key of the person. For a paused flow it goes to
`/v1/slots/questions/{selection}`, and the runtime of the flow resumes it. Without scripts the form is sent to the same
page, which shows the answer and prints the command that sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Query, Request, Response

from contextos.context.slots.select import check_pick
from contextos.contracts.envelopes.artifacts import ArtifactRef
from contextos.contracts.envelopes.slots import MAX_SLOT_REFS, SCOPES, AgentContextSlot, PickRefused, SlotResolution
from contextos.server.console.reading import CONSOLE, ConsoleReader, ConsoleReaderHere, PageRoute, render_for
from contextos.server.control.slots import get_flow_question
from contextos.server.operations import asked_by
from contextos.server.problems import not_found
from contextos.service.operations.operation import Nothing
from contextos.service.operations.table import named_operation

selector_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

CONTEXT_SELECTOR: Final = "@cinatra-ai/context-selection-agent:context-selector"
"""The name under which a gate of an Open Agent Spec flow asks for this page (`metadata.renderer`)."""
RENDERERS: Final[Mapping[str, str]] = {CONTEXT_SELECTOR: "selector.html"}
"""The template of each registered renderer."""
SELECTOR: Final = f"{CONSOLE}/renderers/{CONTEXT_SELECTOR}"
CHOSEN: Final = "pick"
"""The name of the fields with what was chosen begins so. No parameter is sent twice, so each checkbox has its own."""


@dataclass(frozen=True, slots=True)
class CandidateView:
    """An artifact as the form shows it. `value` has the three ids that identify the reference, and `place` is its
    place, from 1, among the selected ones; 0 if it is not selected.
    """

    value: str
    title: str
    extension: str
    place: int


class WaitingSelection(NamedTuple):
    """A selection that waits for the reader: the address of its page, what it is for, who asks, and for which run."""

    address: str
    title: str
    agent: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SelectionView:
    """What the page shows of a question: the candidates by scope from narrow to broad, the answer that the choice
    makes, and why that answer is refused, if it is.
    """

    slot: AgentContextSlot
    groups: Sequence[tuple[str, Sequence[CandidateView]]]
    most: int
    answer: Mapping[str, Any]
    refusal: str
    more: bool


@selector_routes.get("/renderers/{renderer:path}")
async def get_renderer(
    request: Request,
    reader: ConsoleReaderHere,
    renderer: str,
    run: Annotated[str, Query(max_length=128)] = "",
    flow: Annotated[str, Query(max_length=64)] = "",
    show: Annotated[str, Query(max_length=8)] = "",
) -> Response:
    """Show the selection that a run, or with `flow` a paused flow, asks of the reader, and what they can select now."""
    if renderer not in RENDERERS or bool(run) is bool(flow):
        raise not_found()
    chosen = [text for name, text in request.query_params.items() if name.startswith(CHOSEN)]
    if flow:
        offered = await get_flow_question(reader.app, reader.caller, flow)
    else:
        operation = named_operation("slots.offer")
        asked = await asked_by(operation, reader.app, reader.caller, reader.roles, run)
        offered = await operation.run(asked, Nothing())
    return render_for(
        reader,
        RENDERERS[renderer],
        view=selection_view(offered.slot, offered.offer, chosen),
        address=SELECTOR,
        run_id=offered.run_id,
        flow=flow,
        agent=offered.origin.parent_package_name,
        shown=bool(show),
    )


async def selections_to_make(reader: ConsoleReader, most: int) -> Sequence[WaitingSelection]:
    """Return the selections that paused flows and the reader's own runs wait for; of the runs the newest `most`."""
    if reader.caller.kind != "user" or reader.caller.agent_ids is not None:
        return ()
    person = reader.caller.subject
    flows = await reader.app.slot_questions.waiting(reader.tenant_id, person)
    page = await reader.app.runs.list(reader.tenant_id, state="choosing", user_id=person, limit=most)
    runs = [run for run in page.items if run.waits_for == "slot" and run.fault is None]
    return [
        *(
            WaitingSelection(
                f"{SELECTOR}?flow={one.selection_id}",
                one.question.slot.slot_id,
                one.question.origin.parent_package_name,
                one.question.origin.parent_run_id,
            )
            for one in flows
        ),
        *(
            WaitingSelection(f"{SELECTOR}?run={run.run_id}", run.intent or run.run_id, run.agent_id or "", run.run_id)
            for run in runs
        ),
    ]


def selection_view(slot: AgentContextSlot, offer: SlotResolution, chosen: Sequence[str]) -> SelectionView:
    """Return what the page shows of a slot, of what it can take, and of what was chosen. A chosen reference that is
    not offered counts for the answer, so that it is refused by name.
    """
    wanted = [ids for text in dict.fromkeys(chosen) if len(ids := text.split(" ")) == 3]
    places: dict[str, int] = {}
    groups: dict[str, list[CandidateView]] = {scope: [] for scope in SCOPES}
    for ref, line in zip(offer.refs, offer.manifest, strict=True):
        if list(ref.triple) in wanted:
            places[_value(ref)] = len(places) + 1
        view = CandidateView(_value(ref), line.title, ref.extension, places.get(_value(ref), 0))
        groups[ref.source_scope].append(view)
    answer = {
        "slotId": slot.slot_id,
        "resolutionMode": slot.resolution_mode,
        "selectedRefs": [
            {"artifactId": artifact, "representationRevisionId": revision, "semanticAssertionId": assertion}
            for artifact, revision, assertion in wanted
        ],
    }
    checked = check_pick(slot, offer, answer)
    return SelectionView(
        slot,
        [(scope, views) for scope, views in groups.items() if views],
        1 if slot.resolution_mode == "override" else min(slot.max_items or MAX_SLOT_REFS, MAX_SLOT_REFS),
        answer,
        checked.detail if isinstance(checked, PickRefused) else "",
        offer.more,
    )


def _value(ref: ArtifactRef) -> str:
    return " ".join(ref.triple)
