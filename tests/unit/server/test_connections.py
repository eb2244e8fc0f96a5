"""One connection on a real socket: what is late, too large, too much or no HTTP ends it, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, StreamingResponse

from contextos.errors import InvalidSettings
from contextos.server import bodies, connections, edge
from contextos.server.edge import HttpEdge
from contextos.server.hosting import serve_api
from contextos.server.problems import add_problem_handlers
from contextos.server.serving import listen
from tests.world import run

HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
PARTS, PART = 400, 1 << 20


@asynccontextmanager
async def served(percent_per_address: int = 100) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A server: its port, and what is set once the answer of `/large` is over."""
    api = FastAPI()
    api.state.percent_per_address = percent_per_address
    api.state.draining, api.state.stopping = asyncio.Event(), asyncio.Event()
    api.state.wait_for_driven = partial(asyncio.sleep, 0)
    add_problem_handlers(api)
    api.add_middleware(HttpEdge)
    over = asyncio.Event()

    @api.get("/health")
    async def health() -> PlainTextResponse:
        return PlainTextResponse("live")

    @api.post("/object")
    async def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(await bodies.read_object(request)))

    @api.get("/large")
    async def large() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            try:
                for _ in range(PARTS):
                    yield b"a" * PART
            finally:
                over.set()

        return StreamingResponse(parts())

    bound = listen("127.0.0.1:0")
    port = bound.getsockname()[1]
    server = asyncio.create_task(serve_api(api, bound))
    try:
        yield port, over
    finally:
        if not server.done():
            os.kill(os.getpid(), signal.SIGINT)
        await server


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What is sent until the server ends the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""


async def exchange(port: int, sent: bytes) -> bytes:
    reader, writer = await connect(port)
    writer.write(sent)
    try:
        return await rest(reader)
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "], ids=["nothing", "half a head"])
def test_a_connection_whose_head_is_late_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "MAX_HEAD_S", 0.1)

    async def act() -> bytes:
        async with served() as (port, _):
            return await exchange(port, sent)

    assert run(act()) == b""


def test_a_head_that_is_too_large_is_refused() -> None:
    async def act() -> bytes:
        async with served() as (port, _):
            return await exchange(port, b"GET / HTTP/1.1\r\nHost: a\r\nX-Endless: " + b"a" * 4_000_000)

    answer = run(act())
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


def test_a_body_that_is_late_is_answered_and_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_S", 0.1)
    head = b"POST /object HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"

    async def act() -> bytes:
        async with served() as (port, _):
            return await exchange(port, head + b'{"')

    assert run(act()).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_nobody_reads_ends_the_connection_when_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "MAX_HEAD_S", 0.1)

    async def act() -> bytes:
        async with served() as (port, _):
            reader, writer = await connect(port)
            writer.write(b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n")
            answer = await reader.readuntil(b"}")
            try:
                while not reader.at_eof():
                    writer.write(b"a")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            except ConnectionError:
                pass
            writer.close()
            return answer

    assert run(act()).startswith(b"HTTP/1.1 404 ")


def test_an_answer_whose_reader_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_UNSENT_S", 0.1)

    async def act() -> int:
        async with served() as (port, over):
            reader, writer = await connect(port)
            writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(over.wait(), 60)
            read = len(await rest(reader))
            writer.close()
            return read

    assert run(act()) < PARTS * PART


def test_one_connection_too_many_is_answered_with_503_and_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(connections, "SPARE_CONNECTIONS", 1)

    async def act() -> tuple[bytes, bytes, bytes]:
        async with served() as (port, _):
            # An answer proves that the server counts the connection.
            first, idle = await connect(port), await connect(port)
            for reader, writer in (first, idle):
                writer.write(HEALTH)
                await reader.readuntil(b"live")
            third = await connect(port)
            closed = await exchange(port, HEALTH)
            third[1].write(HEALTH)
            refused = await rest(third[0])
            idle[1].close()
            await idle[1].wait_closed()
            third[1].close()
            again = HEALTH.replace(b"Host", b"Connection: close\r\nHost")
            taken = b""
            while not taken.startswith(b"HTTP/1.1 200 "):
                taken = await exchange(port, again)
            first[1].close()
            return closed, refused, taken

    closed, refused, taken = run(act())
    head, _, body = refused.partition(b"\r\n\r\n")
    assert closed == b""
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head.lower()
    assert json.loads(body)["code"] == "too_many_connections"
    assert taken.endswith(b"live")


def test_a_system_that_allows_too_few_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    with pytest.raises(InvalidSettings, match="ulimit -n 2368"):
        connections.reserve_files()


def test_the_files_of_this_process_are_raised_to_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changed.append(limits))
    connections.reserve_files()
    assert changed == [(2368, 4096)]
