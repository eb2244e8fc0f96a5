"""The events of one run as a stream of server-sent events, which a reader resumes by the id of its last one.

The events and their ids are those of `app.runs.stream`. A stream ends with the run, after `MAX_STREAM_S`, when the
server stops, or when the store does not answer; the reader connects again with `Last-Event-ID` and a token that is
still valid.
Source: HTML Living Standard, "Server-sent events"; AG-UI event types; docs/events.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from contextos.app import App
from contextos.application.runs import Run
from contextos.errors import ContextOSError
from contextos.http_api.access import RolesHere, RunName, readable_run
from contextos.http_api.callers import AppHere, CallerHere
from contextos.queries.stream.folding import StreamEvent
from contextos.telemetry.logs import error_fields

event_routes: Final = APIRouter(tags=["runs"])

MAX_STREAM_S: Final = 600
KEEP_ALIVE_S: Final = 15
EVENT_STREAM: Final = "text/event-stream"
_LOG: Final = logging.getLogger(__name__)


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
    last_event_id: Annotated[str, Header(max_length=200)] = "",
) -> Response:
    """Follow a run: its events in order, also those that happened before."""
    run = await readable_run(app, caller, roles, name)
    behind = app.runs.stream(run.tenant_id, run.run_id, after=last_event_id)
    first = await anext(behind, None)
    await behind.aclose()
    if first is None and run.ended:
        return Response(status_code=204)
    return StreamingResponse(_stream(app, run, last_event_id, request.app.state.stopping), media_type=EVENT_STREAM)


async def _stream(app: App, run: Run, after: str, stopping: asyncio.Event) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    events, over_at = app.runs.stream(run.tenant_id, run.run_id, after=after, wait=True), loop.time() + MAX_STREAM_S
    stop, following = asyncio.ensure_future(stopping.wait()), asyncio.ensure_future(anext(events, None))
    try:
        while not stop.done() and loop.time() < over_at:
            await asyncio.wait({stop, following}, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                yield ": waiting\n\n"
                continue
            try:
                event = following.result()
            except ContextOSError as error:
                # The answer has begun, so it cannot say this. The reader connects again, and is answered then.
                _LOG.warning("a stream ended early", extra=error_fields(error))
                return
            if event is None:
                return
            yield _written(event)
            following = asyncio.ensure_future(anext(events, None))
    finally:
        stop.cancel()
        following.cancel()
        await asyncio.wait({following})
        await events.aclose()


def _written(event: StreamEvent) -> str:
    # JSON of one line, so that no value begins a field of its own.
    said = json.dumps(event.document(), ensure_ascii=True)
    return f"id: {event.id}\nevent: {event.type}\ndata: {said}\n\n"
