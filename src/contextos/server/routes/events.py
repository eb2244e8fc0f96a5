"""The events of one run as a stream of server-sent events, which a reader resumes by the id of its last event.

The events and their ids come from `app.runs.open_stream`. A stream ends with the run, after `MAX_STREAM_S` seconds,
when the server stops, when the store does not answer, and when the reader loses the token, the session or a role, which
is checked every `KEEP_ALIVE_S` seconds. The reader connects again with `Last-Event-ID` and a token that is still valid.
`connections` cuts off a reader that takes nothing.
Source: HTML Living Standard, "Server-sent events"; AG-UI event types; docs/application.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse

from contextos.contracts.envelopes.run import InvokeRequest
from contextos.deployment.stream.folding import StreamEvent
from contextos.errors import ContextOSError
from contextos.server.access import RolesHere, RunName, held_roles, readable_run
from contextos.server.callers import AppHere, CallerHere, sender_of
from contextos.server.problems import HttpProblem
from contextos.server.rates import Places, client_address
from contextos.service.views import EVENT_STREAM, RequestOutcome
from contextos.telemetry.logs import error_fields
from contextos.trust.identity.callers import Caller
from contextos.workspace import App, RequestStream

event_routes: Final = APIRouter(tags=["runs"])

MAX_STREAM_S: Final = 600
KEEP_ALIVE_S: Final = 15
UNBUFFERED: Final = {"X-Accel-Buffering": "no"}
"""Tells a proxy such as nginx to pass on each event at once, and not to collect events."""
WAITING: Final = ": waiting\n\n"
"""A comment that keeps a connection alive."""
OUTCOME_EVENT: Final = "contextos.outcome"
"""The name of the `CUSTOM` event with the answer to a request. It is about no journal entry, so it has no id."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a stream: the app, the request, its caller, and the roles of the caller when it began."""

    app: App
    request: Request
    caller: Caller
    roles: frozenset[str]

    @property
    def left_s(self) -> float:
        """The seconds after which the token or session of the reader expires at the latest."""
        return self.caller.expires_at - self.app.deployment.ports.clock.now_us() / 1_000_000

    async def is_still(self) -> bool:
        """Return whether the reader is still the same caller: not logged out, with the same roles and agents."""
        try:
            caller_now = await sender_of(self.request)
            is_same = replace(caller_now, expires_at=self.caller.expires_at) == self.caller
            return is_same and self.roles == await held_roles(self.app, caller_now)
        except (HttpProblem, ContextOSError):
            return False

    @property
    def address(self) -> str:
        """The address from which the stream is read."""
        return client_address(self.request.client)

    @property
    def places(self) -> Places:
        """The places for streams of this server."""
        places: Places = self.request.app.state.streams
        return places


async def stream_reader(app: AppHere, request: Request, caller: CallerHere, roles: RolesHere) -> Reader:
    """Return the reader of a stream (dependency of routes)."""
    return Reader(app, request, caller, roles)


ReaderHere = Annotated[Reader, Depends(stream_reader)]


@event_routes.get(
    "/runs/{run}/events",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The events behind `Last-Event-ID`, as they happen.", "content": {EVENT_STREAM: {}}},
        204: {"description": "The run has ended, and nothing follows."},
    },
)
async def get_events(
    reader: ReaderHere, name: RunName, last_event_id: Annotated[str, Header(max_length=200)] = ""
) -> Response:
    """Follow a run: its events in order, also those that happened before."""
    app = reader.app
    run = await readable_run(app, reader.caller, reader.roles, name)
    opened = await app.runs.open_stream(run.tenant_id, run.run_id, after=last_event_id)
    if opened.is_over:
        return Response(status_code=204)
    reader.places.check(run.tenant_id, reader.address)
    return StreamingResponse(_as_text(_live(reader, opened.follow())), 200, UNBUFFERED, EVENT_STREAM)


def wants_events(request: Request, mode: str) -> bool:
    """Return whether a request of `mode` is answered with a stream of events: where `Accept` names `text/event-stream`,
    and in the mode `stream` also where it has a matching wildcard or is missing.
    """
    accept = ",".join(request.headers.getlist("accept")) or "*/*"
    accepted: dict[str, bool] = {}
    for media_type, *parameters in (entry.split(";") for entry in accept.split(",")):
        compact = (parameter.replace(" ", "") for parameter in parameters)
        weight = next((parameter for parameter in compact if parameter.startswith("q=")), "q=1")
        accepted[media_type.strip().lower()] = weight.rstrip("0.") != "q="
    if EVENT_STREAM in accepted or mode != "stream":
        return accepted.get(EVENT_STREAM, False)
    return accepted.get("text/*", accepted.get("*/*", False))


async def stream_request(reader: Reader, invoked: InvokeRequest) -> Response:
    """Send a request, and answer with the events of its run until it ends or waits for somebody; a `long_running` run
    is followed to its end. The last event is the answer that a client without a stream gets.

    A client that goes away ends its stream alone. As long as nothing was stored, raises as `Deployment.invoke`.
    """
    reader.places.check(invoked.tenant_id, reader.address)
    app, tenant_id = reader.app, invoked.tenant_id
    stream = await app.drive_watched(invoked)
    events = stream.follow()
    if invoked.mode == "long_running":
        await stream.outcome()
        app.engine.submit(tenant_id, stream.run_id)
        events = (await app.runs.open_stream(tenant_id, stream.run_id)).follow()
    answer = _answer(app, tenant_id, stream, _live(reader, events))
    return StreamingResponse(answer, 201, {**UNBUFFERED, "Location": f"/v1/runs/{stream.run_id}"}, EVENT_STREAM)


async def _answer(
    app: App, tenant_id: str, stream: RequestStream, live: AsyncGenerator[StreamEvent | None]
) -> AsyncGenerator[str]:
    """Yield the live events of a request as text, then the events that they did not include, and the answer."""
    last_id = ""
    async with aclosing(live):
        async for event in live:
            last_id = event.id if event else last_id
            yield _text_of(event)
    if not stream.is_driven:
        # The server stops, or the time of the stream is over.
        return
    try:
        await stream.outcome()
        async for event in (await app.runs.open_stream(tenant_id, stream.run_id, after=last_id)).so_far():
            yield _text_of(event)
        outcome = RequestOutcome.of_view(await app.deployment.view(tenant_id, stream.run_id))
    except ContextOSError as fault:
        # The stream ends without its last event, so the client knows that it has no answer.
        _LOG.warning("a streamed request failed", extra=error_fields(fault))
        return
    now_ms = app.deployment.ports.clock.now_us() // 1_000
    event_document = {"type": "CUSTOM", "timestamp": now_ms, "name": OUTCOME_EVENT, "value": outcome.to_json()}
    yield _text("CUSTOM", event_document)


async def _as_text(live: AsyncGenerator[StreamEvent | None]) -> AsyncGenerator[str]:
    async with aclosing(live):
        async for event in live:
            yield _text_of(event)


async def _live(reader: Reader, events: AsyncGenerator[StreamEvent]) -> AsyncGenerator[StreamEvent | None]:
    """Yield events until they end, the server stops, `MAX_STREAM_S` seconds are over, or the reader lost access. Yield
    None whenever no event came for `KEEP_ALIVE_S` seconds. Closes `events`.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + min(reader.left_s, MAX_STREAM_S)
    check_at = loop.time() + KEEP_ALIVE_S
    stopped = asyncio.ensure_future(reader.request.app.state.stopping.wait())
    following = asyncio.ensure_future(anext(events, None))
    async with aclosing(events):
        try:
            with reader.places.place(reader.caller.tenant_id, reader.address):
                while loop.time() < ends_at and not stopped.done():
                    pause_s = max(0.0, min(KEEP_ALIVE_S, ends_at - loop.time()))
                    await asyncio.wait({stopped, following}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                    if loop.time() >= check_at:
                        if not await reader.is_still():
                            return
                        check_at = loop.time() + KEEP_ALIVE_S
                    if not following.done():
                        yield None
                        continue
                    if (event := following.result()) is None:
                        return
                    yield event
                    following = asyncio.ensure_future(anext(events, None))
        except ContextOSError as error:
            # The answer has begun, so it cannot state the error. The reader connects again and gets it then.
            _LOG.warning("a stream ended early", extra=error_fields(error))
            return
        finally:
            for task in (stopped, following):
                task.cancel()
            await asyncio.wait({following})


def _text_of(event: StreamEvent | None) -> str:
    return WAITING if event is None else _text(event.type, event.document(), event.id)


def _text(event: str, document: dict[str, Any], event_id: str = "") -> str:
    # The JSON has one line, so that no value can begin a field of the event stream.
    id_line = f"id: {event_id}\n" if event_id else ""
    return f"{id_line}event: {event}\ndata: {json.dumps(document, ensure_ascii=True)}\n\n"
