"""`app.stream`: the events of a request of the mode `stream` while it is driven, and its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ConflictingRequest, InvalidInput
from contextos.runtime.admission import parsed_request
from contextos.workspace.engine.request_streams import Driven, RequestStream, open_request_stream
from contextos.workspace.engine.run_watch import RunWatch
from tests.http_face import http_face
from tests.world import TENANT, TestWorld, open_world, request, run


def in_world(path: Path, play: Callable[[TestWorld], Awaitable[None]]) -> None:
    async def inside() -> None:
        world = await open_world(path)
        await play(world)
        await world.aclose()

    run(inside())


async def opened(world: TestWorld, body: dict[str, Any], driving: set[Driven]) -> RequestStream:
    watch = RunWatch(world.stores, world.keys)
    return await open_request_stream(world.deployment, watch, parsed_request(body), driving)


@pytest.mark.parametrize(("amount", "ends"), [(900, True), (4200, False)])
def test_the_events_are_those_of_the_run_and_end_with_its_answer(tmp_path: Path, amount: int, ends: bool) -> None:
    async def play(world: TestWorld) -> None:
        driving = set[Driven]()
        stream = await opened(world, request(amount, "req_s"), driving)
        events = [one async for one in stream.follow()]
        view = await stream.outcome()
        assert (view.run_id, view.ended) == (stream.run_id, ends)
        assert events == [one async for one in world.runs().stream(TENANT, stream.run_id)]
        assert driving == set()

    in_world(tmp_path, play)


def test_a_reader_who_goes_away_stops_no_run(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        stream = await opened(world, request(900, "req_s"), set())
        events = stream.follow()
        await anext(events)
        await events.aclose()
        assert (await stream.outcome()).state == "completed"
        assert len(world.refunds()) == 1

    in_world(tmp_path, play)


def test_a_program_that_closes_waits_for_the_requests_that_it_drives(tmp_path: Path) -> None:
    """A reader leaves early, and the context is left at once: no refund is cut off halfway."""
    path = tmp_path / "w"
    made = make_workspace(path, witness="off")

    async def play() -> None:
        async with contextos.open(path) as app:
            await app.initialise(TENANT, by=example_operator(path))
            await seed_graph(app, made)
            body = json.loads((path / "requests" / "small.json").read_text("utf-8"))

            async def later() -> RunView:
                await asyncio.sleep(0.2)
                return await app.deployment.invoke(body)

            driven = asyncio.ensure_future(later())
            app.driving.add(driven)
        assert driven.done()
        assert driven.result().state == "completed"

    run(play())


def test_what_is_refused_before_it_is_stored_opens_no_stream(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        driving = set[Driven]()
        await world.invoke(request(900, "req_s"))
        with pytest.raises(ConflictingRequest):
            await opened(world, request(901, "req_s"), driving)
        await asyncio.sleep(0)
        assert driving == set()

    in_world(tmp_path, play)


def test_the_application_streams_requests_of_this_mode_alone(tmp_path: Path) -> None:
    with http_face(tmp_path) as face:

        async def streamed() -> tuple[list[str], RunView]:
            stream = await face.app.stream(face.request(mode="stream"))
            return [one.type async for one in stream.follow()], await stream.outcome()

        types, view = face.call(streamed())
        assert (types[0], types[-1], view.state) == ("RUN_STARTED", "RUN_FINISHED", "completed")
        with pytest.raises(InvalidInput, match="the mode is `batch`; write `stream`"):
            face.call(face.app.stream(face.request()))
