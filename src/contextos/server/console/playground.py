"""The playground: a person changes a request, a pack and the world of a run, and sees what becomes of it.

It is `POST /v1/packs/sandbox` as a page. Nothing is stored; a link has the whole scenario in its fragment, which no
server receives, and nothing of it is sent before the person asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from contextos.context.compiler import STAGES
from contextos.contracts.encoding.display_escape import displayed_json
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import APPROVAL_MODES
from contextos.errors import InvalidInput, NotFound, Problem
from contextos.server.access import require_role
from contextos.server.bodies import MAX_BODY_BYTES
from contextos.server.console.reading import (
    ConsoleReader,
    ConsoleReaderHere,
    PageRoute,
    read_form,
    render_for,
    require_csrf,
)
from contextos.server.console.scenarios import (
    EXAMPLES,
    SCENARIO_FIELDS,
    Scenario,
    Unreadable,
    example_scenario,
    placed,
    pretty,
    sandbox_request,
)
from contextos.server.control.children import ChildrenHere
from contextos.server.control.sandboxes import SandboxReport, tried
from contextos.server.problems import not_found
from contextos.server.rates import ListsHere
from contextos.service.operations.packs import PACK_READERS
from contextos.service.pages import MAX_PAGE_ITEMS

playground_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_SCENARIO_BYTES: Final = 2 * MAX_BODY_BYTES
"""The most bytes of a form: a character of a text can take three."""
STAGE_NAMES: Final = tuple(name for name, _ in STAGES)
TOPICS: Final = ("gate", "policy", "fact", "model", "call", "authority")
"""The topics of the reasons that are listed as decisions."""
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": ("batch", "stream", "long_running"),
    "safety_mode": APPROVAL_MODES,
    "answer": ("approved", "denied"),
}


@playground_routes.get("/playground")
async def get_playground(
    reader: ConsoleReaderHere,
    lists: ListsHere,
    example: Annotated[str, Query(max_length=40)] = "",
    pack: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show the form: of an example, of a published pack, or empty. Nothing is tried."""
    require_role(reader.roles, *PACK_READERS)
    scenario: Scenario = {}
    if example:
        if example not in EXAMPLES:
            raise not_found()
        scenario = example_scenario(example, reader.tenant_id)
    elif pack:
        scenario = await _of_pack(reader, pack)
    return await _page(reader, lists, scenario, chosen=example or pack)


@playground_routes.post("/playground")
async def post_playground(
    request: Request, reader: ConsoleReaderHere, lists: ListsHere, children: ChildrenHere
) -> Response:
    """Try the scenario of the form, and show what becomes of it."""
    require_role(reader.roles, *PACK_READERS)
    form = await read_form(request, MAX_SCENARIO_BYTES)
    require_csrf(reader, form)
    scenario = {name: form[name] for name in SCENARIO_FIELDS if name in form}
    report, faults = None, dict[str, list[Problem]]()
    try:
        report = await tried(reader.app, reader.caller, reader.roles, children, sandbox_request(scenario))
        faults = {"document": [Problem(**one.model_dump()) for one in report.problems]} if report.problems else {}
    except Unreadable as error:
        faults = error.faults
    except InvalidInput as error:
        faults = placed(error.problems)
    return await _page(reader, lists, scenario, report=report, faults=faults, before=form.get("before", ""))


async def _page(
    reader: ConsoleReader,
    lists: ListsHere,
    scenario: Scenario,
    *,
    chosen: str = "",
    report: SandboxReport | None = None,
    faults: Mapping[str, list[Problem]] | None = None,
    before: str = "",
) -> Response:
    with lists.place(reader.tenant_id):
        listed = await reader.app.artifacts.list(reader.tenant_id, kinds=("context_pack",), limit=MAX_PAGE_ITEMS)
    return render_for(
        reader,
        "playground.html",
        scenario={name: scenario.get(name, "") for name in SCENARIO_FIELDS},
        chosen=chosen,
        examples=list(EXAMPLES),
        packs=[one.ref for one in listed.items if not one.withdrawn],
        choices=CHOICES,
        faults=faults or {},
        result=_result(report, before) if report is not None and report.run is not None else None,
        is_tried=report is not None or bool(faults),
    )


async def _of_pack(reader: ConsoleReader, ref: str) -> Scenario:
    """Return the scenario of a published pack: its text, and a request for its first intent to complete."""
    try:
        found = await reader.app.artifacts.get(reader.tenant_id, ref)
    except NotFound:
        raise not_found() from None
    if found.kind != "context_pack":
        raise not_found()
    pack = ContextPack.model_validate(found.document)
    intents = [intent.intent_id for intent in pack.decision_layer.intents]
    request = {
        "user": {"user_id": reader.caller.subject},
        "agent": {"agent_id": "", "workload_identity": ""},
        "context_pack_refs": [ref],
        "input": {"intent": intents[0] if intents else "", "message": "", "context": {}},
        "runtime": {},
    }
    return {"request": pretty(request)}


def _result(report: SandboxReport, before: str) -> dict[str, Any]:
    """Return what the page shows of a run."""
    run = report.run
    assert run is not None, "the caller looked"
    compiled = run.compiled
    stated = (compiled.context_ledger.stage_digests or {}) if compiled is not None else {}
    digests = {name: stated[name] for name in STAGE_NAMES if name in stated}
    earlier = _earlier(before)
    reasons = {topic: [one for one in run.reasons if one.topic == topic] for topic in TOPICS}
    record = run.record
    return {
        "state": run.state,
        "waits_for": run.waits_for,
        "failures": record.rationale.failures if record is not None and record.rationale is not None else (),
        "context": run.run_context,
        "mode": (report.request or {}).get("mode"),
        "compiled": compiled,
        "digest": compiled.context_ledger.compiled_context_hash if compiled is not None else "",
        "digests": digests,
        "changed": [name for name in STAGE_NAMES if earlier and earlier.get(name) != digests.get(name)],
        "compared": bool(earlier),
        "before": json.dumps(digests),
        "shown": {one.tool: one.text for one in run.reasons if one.topic == "shown" and one.tool},
        "reasons": {topic: texts for topic, texts in reasons.items() if texts},
        "story": run.story,
        "record": record.to_json() if record is not None else None,
        "outputs": {name: displayed_json(output, None) for name, output in run.outputs.items()},
        "made_up": run.made_up,
        "envelope": displayed_json(report.request, None) if report.request else "",
    }


def _earlier(before: str) -> dict[str, str]:
    """Return the digests of the stages that the page showed before. What else a form sends counts as nothing."""
    try:
        found = json.loads(before) if before and len(before) <= 4_096 else {}
    except (ValueError, RecursionError):
        return {}
    return (
        {name: found[name] for name in STAGE_NAMES if isinstance(found.get(name), str)}
        if isinstance(found, dict)
        else {}
    )
