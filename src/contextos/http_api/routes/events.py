"""The events of one run as a stream of server-sent events, which a reader resumes by the id of its last one.

The events and their ids are those of `app.runs.stream`. A stream ends with the run, with the token or session of its
reader, after `MAX_STREAM_S`, or when the server stops; the reader connects again with `Last-Event-ID` and a token that
is still valid. One who takes nothing is
cut off by `hosting`.
Source: HTML Living Standard, "Server-sent events"; AG-UI event types; docs/events.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from contextos.app import App
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.errors import ContextOSError, Unavailable
from contextos.http_api.access import RolesHere, RunName, readable_run
from contextos.http_api.callers import AppHere, CallerHere
from contextos.http_api.documents import EVENT_STREAM, RequestOutcome
from contextos.queries.run_view import RunView
from contextos.queries.stream.folding import BEFORE_ALL, StreamEvent
from contextos.telemetry.logs import error_fields
from contextos.trust.identity.callers import Caller

event_routes: Final = APIRouter(tags=["runs"])

MAX_STREAM_S: Final = 600
KEEP_ALIVE_S: Final = 15
WAITING: Final = ": waiting\n\n"
"""A comment that keeps a connection alive."""
OUTCOME_EVENT: Final = "contextos.outcome"
"""The name of the `CUSTOM` event with the answer to a request. It is about no journal entry, so it has no id."""

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
    opened = await app.runs.open_stream(run.tenant_id, run.run_id, after=last_event_id)
    if opened.is_over:
        return Response(status_code=204)
    live = _until(opened.follow(), request.app.state.stopping, most_s=_left_s(app, caller))
    return StreamingResponse(_written(live), media_type=EVENT_STREAM)


def wants_events(request: Request) -> bool:
    """Return whether a client accepts a stream of events as the answer to its request."""
    accepted = [one.strip().split(";") for one in ",".join(request.headers.getlist("accept")).split(",")]
    return any(
        media_type.strip().lower() == EVENT_STREAM and "q=0" not in [one.replace(" ", "") for one in parameters]
        for media_type, *parameters in accepted
    )


async def stream_request(
    app: App, caller: Caller, request: Request, fields: dict[str, Any], invoked: InvokeRequest
) -> Response:
    """Send a request, and answer with the events of its run until it ends or waits for somebody; a `long_running` run
    is followed to its end. The last event is the answer that a client without a stream gets.

    A client that goes away ends its stream alone. As long as nothing was stored, raises as `Deployment.invoke`.
    """
    tenant_id, named = invoked.tenant_id, asyncio.Queue[str]()
    driven = asyncio.ensure_future(app.deployment.invoke(fields, named=named.put_nowait))
    request.app.state.driven.add(driven)
    driven.add_done_callback(partial(_was_driven, request.app.state.driven))
    answered = asyncio.Event()
    if invoked.mode == "long_running":
        run_id = (await asyncio.shield(driven)).run_id
        app.engine.submit(tenant_id, run_id)
    else:
        driven.add_done_callback(lambda _: answered.set())
        run_id = await _stored(app, tenant_id, named, driven)
    following = app.watch.follow(tenant_id, run_id, 0, BEFORE_ALL)
    live = _until(following, answered, request.app.state.stopping, most_s=_left_s(app, caller))
    stream = _answer(app, tenant_id, live, driven)
    return StreamingResponse(stream, 200, {"Location": f"/v1/runs/{run_id}"}, EVENT_STREAM)


async def _stored(app: App, tenant_id: str, named: asyncio.Queue[str], driven: asyncio.Future[RunView]) -> str:
    """Return the id of the run of a request once it has an entry, or was driven."""

    async def first_event() -> str:
        run_id = await named.get()
        async with aclosing(app.watch.follow(tenant_id, run_id, 0, BEFORE_ALL)) as events:
            await anext(events, None)
        return run_id

    begun = asyncio.ensure_future(first_event())
    both: tuple[asyncio.Future[Any], ...] = (driven, begun)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return driven.result().run_id if driven.done() else begun.result()
    finally:
        begun.cancel()
        await asyncio.wait({begun})


async def _answer(
    app: App, tenant_id: str, live: AsyncGenerator[StreamEvent | None], driven: asyncio.Future[RunView]
) -> AsyncGenerator[str]:
    """Yield the live events of a request as text, then those that are left, and the answer."""
    last = ""
    async with aclosing(live):
        async for event in live:
            last = event.id if event else last
            yield _text_of(event)
    if not driven.done():
        # The server stops, or the time of the stream is over.
        return
    try:
        run_id = driven.result().run_id
        async for event in (await app.runs.open_stream(tenant_id, run_id, after=last)).so_far():
            yield _text_of(event)
        outcome = RequestOutcome.of_view(await app.deployment.view(tenant_id, run_id))
    except ContextOSError as fault:
        # Without the last event the client knows that this is no answer.
        _LOG.warning("a streamed request failed", extra=error_fields(fault))
        return
    now_ms = app.deployment.ports.clock.now_us() // 1_000
    said = {"type": "CUSTOM", "timestamp": now_ms, "name": OUTCOME_EVENT, "value": outcome.to_json()}
    yield _text("CUSTOM", said)


async def _written(live: AsyncGenerator[StreamEvent | None]) -> AsyncGenerator[str]:
    async with aclosing(live):
        async for event in live:
            yield _text_of(event)


def _left_s(app: App, caller: Caller) -> float:
    """The seconds for which the token or session of the caller still counts."""
    return caller.expires_at - app.deployment.ports.clock.now_us() / 1_000_000


async def _until(
    events: AsyncGenerator[StreamEvent], *stops: asyncio.Event, most_s: float
) -> AsyncGenerator[StreamEvent | None]:
    """Yield events until they end, one of `stops` is set, or `most_s` or `MAX_STREAM_S` are over; None where none came
    for long. Closes `events`.
    """
    loop = asyncio.get_running_loop()
    over_at = loop.time() + min(most_s, MAX_STREAM_S)
    stopped = [asyncio.ensure_future(one.wait()) for one in stops]
    following = asyncio.ensure_future(anext(events, None))
    async with aclosing(events):
        try:
            while loop.time() < over_at and not any(one.done() for one in stopped):
                pause_s = max(0.0, min(KEEP_ALIVE_S, over_at - loop.time()))
                await asyncio.wait({*stopped, following}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    yield None
                    continue
                if (event := following.result()) is None:
                    return
                yield event
                following = asyncio.ensure_future(anext(events, None))
        except Unavailable:
            # The reader connects again behind its last event.
            return
        finally:
            for one in (*stopped, following):
                one.cancel()
            await asyncio.wait({following})


def _was_driven(driving: set[asyncio.Future[RunView]], driven: asyncio.Future[RunView]) -> None:
    driving.discard(driven)
    if not driven.cancelled():
        # The client can have gone away, so that nobody else looks at the error.
        driven.exception()


def _text_of(event: StreamEvent | None) -> str:
    return WAITING if event is None else _text(event.type, event.document(), event.id)


def _text(event: str, document: dict[str, Any], event_id: str = "") -> str:
    # JSON of one line, so that no value begins a field of its own.
    named = f"id: {event_id}\n" if event_id else ""
    return f"{named}event: {event}\ndata: {json.dumps(document, ensure_ascii=True)}\n\n"
