"""Runs: send a request, list runs, and read one with its record, its story and its three ledgers.

A request can be sent again without a second run, because `request_id` or the header `Idempotency-Key` names it.
Source: draft-ietf-httpapi-idempotency-key-header; RFC 9110, sections 8.8 and 13.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.record import DecisionOutput, DecisionRecord
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.errors import InvalidInput, Problem
from contextos.server.access import RolesHere, RunName, held_roles, readable_run, visible_runs
from contextos.server.bodies import body_of, read_object
from contextos.server.callers import AppHere, CallerHere, TokensHere
from contextos.server.problems import HttpProblem, not_found
from contextos.server.rates import ListsHere
from contextos.server.routes.events import Reader, stream_request, wants_events
from contextos.server.routes.search import SearchHere
from contextos.server.shared.forms import STRUCTURED_STRING, RequestKey
from contextos.server.shared.pages import Cursor, Limit, is_unchanged, unchanged
from contextos.server.tracing import trace_of
from contextos.service.runs import STATES
from contextos.service.views import (
    EVENT_STREAM,
    JSON,
    LedgerDocument,
    LedgerLine,
    RequestOutcome,
    RunDocument,
    RunListDocument,
    RunSummary,
    TimelineDocument,
)

run_routes: Final = APIRouter(tags=["runs"])


@run_routes.post(
    "/runs",
    status_code=201,
    response_model=RequestOutcome,
    responses={
        201: {
            "description": "The answer, or the events of the run and then the answer.",
            "content": {EVENT_STREAM: {}},
        },
        202: {"model": RequestOutcome, "description": "Stored; an engine drives the `long_running` run."},
    },
    openapi_extra=body_of(InvokeRequest),
)
async def post_run(
    app: AppHere, tokens: TokensHere, caller: CallerHere, request: Request, idempotency_key: RequestKey = None
) -> Response:
    """Send a request. It is driven until it ends or waits; a `long_running` one is stored, and an engine drives it.

    The same request again is the same run and gets the same answer. In the mode `stream`, and in every mode with
    `Accept: text/event-stream`, it is a stream of the events of the run, whose last event is the answer. A client that
    accepts `application/json` alone gets the answer alone.
    """
    fields = await tokens.request(caller, named_request(await read_object(request), idempotency_key))
    trace = trace_of(app, caller, request.headers.items())
    invoked = parse(InvokeRequest, {"trace": trace.to_json(), **fields})
    if "trace" in fields:
        stated_trace = trace_of(app, caller, request.headers.items(), invoked.trace)
        invoked = invoked.model_copy(update={"trace": stated_trace})
    if wants_events(request, invoked.mode):
        reader = Reader(app, request, caller, await held_roles(app, caller))
        return await stream_request(reader, invoked)
    view = await app.deployment.invoke_parsed(invoked)
    status = 201
    if invoked.mode == "long_running":
        status = 202
        app.engine.submit(view.tenant_id, view.run_id)
    headers = {"Location": f"/v1/runs/{view.run_id}"}
    return Response(RequestOutcome.json_of_view(view), status, headers, JSON)


@run_routes.get("/runs", response_model_exclude_unset=True)
async def get_runs(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    search: SearchHere,
    lists: ListsHere,
    state: Annotated[
        str | None,
        Query(max_length=64, description="Only runs in this state.", json_schema_extra={"enum": sorted(STATES)}),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = "",
) -> RunListDocument:
    """List the caller's own runs, newest first: those of a person, or those of the agents that a workload is. For an
    operator or an auditor, those of the whole tenant. A run that does not verify is shown if the index finds it.

    A page ends after `limit` runs, or after 1,000 that were looked at; it can be empty and not the last.
    """
    with lists.place(caller.tenant_id):
        page = await visible_runs(app, caller, roles, state=state, search=search, limit=limit, cursor=cursor)
    return RunListDocument(items=[RunSummary.of_run(run) for run in page.items], cursor=page.cursor)


@run_routes.get("/runs/{run}", response_model_exclude_unset=True)
async def get_run(app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName) -> RunDocument:
    """Read one run with its current record, and with what it has used of its limits so far."""
    run = await readable_run(app, caller, roles, name)
    return RunDocument.of_run(run, await app.runs.budget(run))


@run_routes.get(
    "/runs/{run}/record",
    response_model_exclude_unset=True,
    response_model=DecisionRecord,
    responses={304: {"description": "The record is the one that `If-None-Match` names."}},
)
async def get_record(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    name: RunName,
    response: Response,
    if_none_match: Annotated[str | None, Header(max_length=1_000)] = None,
) -> DecisionRecord | Response:
    """Read the current decision record. `ETag` is its hash, so that a reader asks only for a newer revision. A run in
    flight has none until it waits for a person or ends (409, `not_ended`).
    """
    run = await readable_run(app, caller, roles, name)
    if (record := run.record) is None:
        raise not_found() if run.ended else _not_ended()
    tag = f'"{record.record_hash}"'
    if is_unchanged(tag, if_none_match):
        return unchanged(tag)
    response.headers["ETag"] = tag
    return record


@run_routes.get("/runs/{run}/decision")
async def get_decision(app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName) -> DecisionOutput:
    """Read the short form of the decision of an ended run: its outcome, and the evidence and rules that it rests on.
    Before the end there is none (409, `not_ended`).
    """
    run = await readable_run(app, caller, roles, name)
    if not run.ended:
        raise _not_ended()
    return await app.runs.decision(run)


def _not_ended() -> HttpProblem:
    detail = (
        "the run goes on, and this is there once it waits for a person or has ended; `GET /v1/runs/{run}` says where it"
        " stands"
    )
    return HttpProblem(409, "not_ended", detail)


@run_routes.get("/runs/{run}/timeline", response_model_exclude_unset=True)
async def get_timeline(app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName) -> TimelineDocument:
    """Read the story of a run, with text from outside escaped for display."""
    return TimelineDocument.of_timeline(await app.runs.timeline(await readable_run(app, caller, roles, name)))


@run_routes.get("/runs/{run}/ledgers/{ledger}", response_model_exclude_unset=True)
async def get_ledger(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, ledger: Literal["context", "effect", "decision"]
) -> LedgerDocument:
    """Read one of the three ledgers of a run: what it knew, what it did, or what it decided."""
    run = await readable_run(app, caller, roles, name)
    entries = await app.runs.ledger(run, ledger)
    return LedgerDocument(run_id=run.run_id, ledger=ledger, items=[LedgerLine.of_entry(entry) for entry in entries])


def named_request(fields: dict[str, Any], header: str | None) -> dict[str, Any]:
    """Return a request, with its id from `Idempotency-Key` if its body has no id. Raises `HttpProblem` (400) for no id
    or a malformed header, and `InvalidInput` for two ids that differ.
    """
    if header is None:
        if "request_id" not in fields:
            detail = "the request has no name; send `request_id`, or the header `Idempotency-Key`"
            raise HttpProblem(400, "no_idempotency_key", detail)
        return fields
    match = STRUCTURED_STRING.fullmatch(header)
    if match is None:
        detail = '`Idempotency-Key` is not a text in quotes; send it like `"8e03978e-40d5"`'
        raise HttpProblem(400, "bad_idempotency_key", detail)
    key = re.sub(r"\\(.)", r"\1", match[1])
    if fields.get("request_id", key) != key:
        detail = "`request_id` and `Idempotency-Key` differ"
        raise InvalidInput(Problem("/request_id", "conflicting_key", detail, "send one of them, or the same"))
    return {**fields, "request_id": key}
