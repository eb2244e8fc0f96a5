"""A served API on a real socket: heads that are late or too large end the connection, and a stop loses no request."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse, StreamingResponse

from contextos.http_api import hosting
from contextos.server.serving import listen
from tests.world import run


@asynccontextmanager
async def served() -> AsyncIterator[tuple[int, FastAPI, asyncio.Event, asyncio.Event]]:
    """A server with one slow route: its port, its API, and the events at the begin and before the end of a request."""
    api = FastAPI()
    api.state.stopping, api.state.driven = asyncio.Event(), set()
    began, go_on = asyncio.Event(), asyncio.Event()

    @api.get("/slow")
    async def slow() -> PlainTextResponse:
        began.set()
        await go_on.wait()
        return PlainTextResponse("done")

    @api.get("/endless")
    async def endless() -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            try:
                while True:
                    yield "x" * 10_000
                    await asyncio.sleep(0)
            finally:
                began.set()

        return StreamingResponse(lines())

    bound = listen("127.0.0.1:0")
    port = bound.getsockname()[1]
    server = asyncio.create_task(hosting.serve_api(api, bound))
    try:
        yield port, api, began, go_on
    finally:
        go_on.set()
        api.state.stopping.set()
        if not server.done():
            os.kill(os.getpid(), signal.SIGTERM)
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


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "], ids=["nothing", "half a head"])
def test_a_connection_whose_head_is_late_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "MAX_HEAD_S", 0.1)

    async def act() -> bytes:
        async with served() as (port, *_):
            return await exchange(port, sent)

    assert run(act()) == b""


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_the_end_of_an_answer_waits_for_nothing(address: str) -> None:
    async def act() -> int:
        delayed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            delayed.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen(address) as bound:
            async with await asyncio.start_server(connected, sock=bound):
                _, writer = await asyncio.open_connection(*bound.getsockname()[:2])
                try:
                    return await delayed
                finally:
                    writer.close()

    assert run(act()) != 0


def test_a_head_that_is_too_large_is_refused() -> None:
    async def act() -> bytes:
        async with served() as (port, *_):
            return await exchange(port, b"GET / HTTP/1.1\r\nHost: a\r\nX-Endless: " + b"a" * 4_000_000)

    answer = run(act())
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


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


def test_a_reader_who_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "MAX_STALL_S", 0.1)

    async def act() -> None:
        async with served() as (port, _, ended, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_000)
            writer.write(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(ended.wait(), 30)
            async with asyncio.timeout(30):
                with suppress(ConnectionError):
                    while await reader.read(1_000_000):
                        pass
            writer.close()

    run(act())


def test_a_reader_who_is_slow_and_goes_on_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "MAX_STALL_S", 1)

    async def act() -> None:
        async with served() as (port, _, ended, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_000)
            writer.write(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
            taken = 0
            while taken < 20_000_000:
                taken += len(await reader.read(1_000_000))
            assert not ended.is_set()
            writer.close()
            await asyncio.wait_for(ended.wait(), 30)

    run(act())
