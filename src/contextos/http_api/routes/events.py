"""The events of one run as a stream of server-sent events, which a reader resumes by the id of its last one.

The id of an event is the number of its entry in the journal. A stream ends with the run, after `MAX_STREAM_S`, or when
the server stops; the reader connects again with `Last-Event-ID` and a token that is still valid.
Source: HTML Living Standard, "Server-sent events"; AG-UI event types.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from contextos.app import App
from contextos.application.progress import ProgressEvent
from contextos.application.runs import EVENT_POLL_US, Run
from contextos.http_api.access import RolesHere, RunName, readable_run
from contextos.http_api.callers import AppHere, CallerHere

event_routes: Final = APIRouter(tags=["runs"])

MAX_STREAM_S: Final = 600
KEEP_ALIVE_S: Final = 15
EVENT_STREAM: Final = "text/event-stream"


@event_routes.get(
    "/runs/{run}/events",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The events behind `Last-Event-ID`, as they happen.", "content": {EVENT_STREAM: {}}},
        204: {"description": "The run has ended, and nothing follows."},
    },
)
async def get_events(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    name: RunName,
    request: Request,
    last_event_id: Annotated[int, Header(ge=0, le=2**31)] = 0,
) -> Response:
    """Follow a run: each entry of its journal is one event, in order, also those that happened before."""
    run = await readable_run(app, caller, roles, name)
    first = await app.runs.progress(run, after=last_event_id)
    if first.ended and not first.events:
        return Response(status_code=204)
    return StreamingResponse(_stream(app, run, last_event_id, request.app.state.stopping), media_type=EVENT_STREAM)


async def _stream(app: App, run: Run, after: int, stopping: asyncio.Event) -> AsyncIterator[str]:
    pauses = 0
    while not stopping.is_set():
        progress = await app.runs.progress(run, after=after)
        for event in progress.events:
            yield _written(event)
            after = event.seq
        if progress.ended or pauses * EVENT_POLL_US >= MAX_STREAM_S * 1_000_000:
            return
        await app.deployment.ports.pause(EVENT_POLL_US)
        pauses += 1
        if pauses % (KEEP_ALIVE_S * 1_000_000 // EVENT_POLL_US) == 0:
            yield ": waiting\n\n"


def _written(event: ProgressEvent) -> str:
    # JSON of one line, so that no value begins a field of its own.
    document = {"type": event.type, "timestamp": event.at_us // 1_000, **event.fields}
    return f"id: {event.seq}\nevent: {event.type}\ndata: {json.dumps(document, ensure_ascii=True)}\n\n"
