"""A served API on a real socket: it drains, and a stop loses no request."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, StreamingResponse

from contextos.server import connections, edge, hosting
from contextos.server.serving import listen
from contextos.server.tls import tls_context
from tests.certificates import certificate
from tests.world import run

LARGE_BYTES = 16_000_001


@asynccontextmanager
async def served(
    drain_s: float = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, FastAPI, asyncio.Event, asyncio.Event]]:
    """A server with one slow route: its port, its API, and the events at the begin and before the end of a request."""
    api = FastAPI()
    api.state.percent_per_address = 100
    api.state.draining, api.state.stopping = asyncio.Event(), asyncio.Event()
    api.state.wait_for_driven = partial(asyncio.sleep, 0)
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

    @api.get("/seen")
    async def seen(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"{request.url.scheme} {request.client.host if request.client else ''}")

    @api.get("/large")
    async def large() -> PlainTextResponse:
        return PlainTextResponse("x" * LARGE_BYTES)

    bound = listen("127.0.0.1:0")
    port = bound.getsockname()[1]
    server = asyncio.create_task(hosting.serve_api(api, bound, drain_s=drain_s, tls=tls))
    try:
        yield port, api, began, go_on
    finally:
        go_on.set()
        api.state.stopping.set()
        if not server.done():
            os.kill(os.getpid(), signal.SIGINT)
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
    monkeypatch.setattr(connections, "MAX_UNSENT_S", 0.1)

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
    monkeypatch.setattr(connections, "MAX_UNSENT_S", 1)

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
        async with served(tls=tls_context(chain, key)) as (port, *_):
            for context in (client, old):
                assert (await exchange(port, SEEN + b"\r\n", context)).endswith(b"https 127.0.0.1")
            assert b"200" not in await exchange(port, SEEN + b"\r\n")

    run(act())


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_a_large_answer_reaches_a_steady_reader_whole_and_ends_for_one_who_takes_nothing(
    has_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for a reader who takes nothing, not for the whole answer."""
    chain, key = certificate(tmp_path)
    client = ssl.create_default_context(cafile=str(chain)) if has_tls else None
    monkeypatch.setattr(connections, "MAX_UNSENT_S", 1)

    async def read(port: int, *, steady: bool) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, limit=1_000)
        writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        taken = 0
        if not steady:
            await asyncio.sleep(3)
        with suppress(ConnectionError, ssl.SSLError):
            while part := await reader.read(200_000):
                taken += len(part)
                if steady and taken < LARGE_BYTES:
                    await asyncio.sleep(0.02)
        writer.close()
        return taken

    async def act() -> tuple[int, int]:
        async with served(tls=tls_context(chain, key) if has_tls else None) as (port, *_):
            return await read(port, steady=True), await read(port, steady=False)

    whole, cut = run(act())
    assert whole > LARGE_BYTES
    assert cut < LARGE_BYTES


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_whose_tls_never_begins_are_counted_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = certificate(tmp_path)
    client = ssl.create_default_context(cafile=str(chain))
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(connections, "SPARE_CONNECTIONS", 1)
    for module in (edge, connections, hosting):
        monkeypatch.setattr(module, "MAX_HEAD_S", 1)

    async def act() -> None:
        async with served(tls=tls_context(chain, key)) as (port, *_):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
            ends = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
            closed, open_still = await asyncio.wait(ends, timeout=0.3)
            assert (len(closed), len(open_still)) == (4, 4)
            await asyncio.wait(ends, timeout=30)
            assert all(one.done() for one in ends)
            assert (await exchange(port, SEEN + b"\r\n", client)).endswith(b"https 127.0.0.1")
            for one in ends:
                one.exception()
            for _, writer in silent:
                writer.close()

    run(act())
