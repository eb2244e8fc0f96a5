"""A served API on a real socket: heads that are late or too large end the connection, and a stop loses no request."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse

from contextos.http_api import hosting
from contextos.http_api.tls import tls_context
from contextos.server.serving import listen
from tests.certificates import certificate
from tests.world import run


@asynccontextmanager
async def served(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, FastAPI, asyncio.Event, asyncio.Event]]:
    """A server with one slow route: its port, its API, and the events at the begin and before the end of a request."""
    api = FastAPI()
    api.state.stopping = asyncio.Event()
    began, go_on = asyncio.Event(), asyncio.Event()

    @api.get("/slow")
    async def slow() -> PlainTextResponse:
        began.set()
        await go_on.wait()
        return PlainTextResponse("done")

    @api.get("/seen")
    async def seen(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"{request.url.scheme} {request.client.host if request.client else ''}")

    bound = listen("127.0.0.1:0")
    port = bound.getsockname()[1]
    server = asyncio.create_task(hosting.serve_api(api, bound, tls=tls))
    try:
        yield port, api, began, go_on
    finally:
        go_on.set()
        api.state.stopping.set()
        if not server.done():
            os.kill(os.getpid(), signal.SIGTERM)
        await server


async def exchange(port: int, sent: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
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


SEEN = b"GET /seen HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"


def test_what_a_proxy_says_of_a_request_is_not_believed() -> None:
    async def act() -> bytes:
        said = b"X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7;proto=https\r\n\r\n"
        async with served() as (port, *_):
            return await exchange(port, SEEN + said)

    assert run(act()).endswith(b"\r\n\r\nhttp 127.0.0.1")


def test_a_server_with_tls_answers_over_tls_alone(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    client = ssl.create_default_context(cafile=str(chain))
    old = ssl.create_default_context(cafile=str(chain))
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    async def act() -> None:
        async with served(tls_context(chain, key)) as (port, *_):
            for context in (client, old):
                assert (await exchange(port, SEEN + b"\r\n", context)).endswith(b"https 127.0.0.1")
            assert b"200" not in await exchange(port, SEEN + b"\r\n")

    run(act())
