"""A served API on a real socket: it drains, and a stop loses no request."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from contextos.http_api import hosting
from contextos.server.serving import listen
from tests.world import run


@asynccontextmanager
async def served(drain_s: float = 0) -> AsyncIterator[tuple[int, FastAPI, asyncio.Event, asyncio.Event]]:
    """A server with one slow route: its port, its API, and the events at the begin and before the end of a request."""
    api = FastAPI()
    api.state.draining, api.state.stopping = asyncio.Event(), asyncio.Event()
    began, go_on = asyncio.Event(), asyncio.Event()

    @api.get("/slow")
    async def slow() -> PlainTextResponse:
        began.set()
        await go_on.wait()
        return PlainTextResponse("done")

    bound = listen("127.0.0.1:0")
    port = bound.getsockname()[1]
    server = asyncio.create_task(hosting.serve_api(api, bound, drain_s=drain_s))
    try:
        yield port, api, began, go_on
    finally:
        go_on.set()
        api.state.stopping.set()
        if not server.done():
            os.kill(os.getpid(), signal.SIGINT)
        await server


async def exchange(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_a_signal_ends_the_server_after_the_request_in_progress_is_answered() -> None:
    async def act() -> bytes:
        async with served() as (port, api, began, go_on):
            request = b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            answer = asyncio.create_task(exchange(port, request))
            await began.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await api.state.stopping.wait()
            assert not answer.done()
            go_on.set()
            return await answer

    answer = run(act())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"done")
    assert b"server:" not in answer.lower()


def test_a_server_that_drains_says_so_and_takes_requests_until_it_stops() -> None:
    async def act() -> tuple[bytes, bool]:
        async with served(drain_s=300) as (port, api, _began, go_on):
            go_on.set()
            request = b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            # An answer proves that the server takes signals.
            await exchange(port, request)
            os.kill(os.getpid(), signal.SIGTERM)
            await api.state.draining.wait()
            answer = await exchange(port, request)
            stopping = api.state.stopping.is_set()
            os.kill(os.getpid(), signal.SIGTERM)
            await api.state.stopping.wait()
            return answer, stopping

    answer, stopping = run(act())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert not stopping


def test_a_request_that_is_cut_off_by_the_stop_is_answered_with_503(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hosting, "GRACE_S", 0.1)

    async def act() -> bytes:
        async with served() as (port, _api, began, _):
            answer = asyncio.create_task(exchange(port, b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"))
            await began.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            return await answer

    answer = run(act()).decode().lower()
    assert answer.startswith("http/1.1 503 ")
    assert "retry-after: 1\r\n" in answer
    assert '"code":"stopping"' in answer
    assert not [one for one in caplog.records if one.exc_info]
