"""Runs the process that serves the API, and stops it without losing a request.

SIGTERM begins to drain: `/v1/ready` answers 503, every answer closes its connection, and requests are still taken, so
that a load balancer has the time to notice. Then, and at once after SIGINT or a second signal, the server stops: it
takes no new connection, ends open streams, and waits for requests in progress, at most `GRACE_S` seconds. A request
that is cut off then is answered with 503. Its run is stored, so the same request again finds it.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextos.server.connections import CLOSING, MAX_PART_BYTES, BoundedConnection, reserve_files
from contextos.server.edge import MAX_HEAD_S
from contextos.server.problems import problem_response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

GRACE_S: Final = 30
MAX_IDLE_S: Final = 75
"""The seconds for which an idle connection stays open. A proxy in front closes its side earlier, mostly after 60 s, so
it sends no request on a connection that is being closed.
"""


async def serve_api(api: FastAPI, bound: socket, *, drain_s: float = 0, tls: ssl.SSLContext | None = None) -> None:
    """Serve the API on a listening socket until SIGINT or SIGTERM, or until the task is cancelled. With `tls`, every
    connection is encrypted. `api.state.percent_per_address` limits the share of the connections of one address.

    After SIGTERM the server takes requests for `drain_s` seconds more. Raises as `reserve_files`.
    """
    reserve_files()
    config = uvicorn.Config(
        AnsweredWhenCutOff(api),
        http=partial(BoundedConnection, percent_per_address=api.state.percent_per_address),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=MAX_IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    config.load()
    config.ssl = tls
    await DrainingServer(config, api.state.draining, api.state.stopping, drain_s).serve(sockets=[bound])
    await api.state.wait_for_driven()


class DrainingServer(uvicorn.Server):
    """A server that sets `draining` before it refuses new requests, and `stopping` before it waits for requests in
    progress, so that open streams end.
    """

    def __init__(
        self, config: uvicorn.Config, draining: asyncio.Event, stopping: asyncio.Event, drain_s: float
    ) -> None:
        super().__init__(config)
        self._draining, self._stopping, self._drain_s = draining, stopping, drain_s

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal. uvicorn's own version raises the signal again at the end, which would cut off the engine,
        because the engine is stopped after the server.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stop)
        loop.add_signal_handler(signal.SIGTERM, partial(self._drain, loop))
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen. A TLS handshake may take `MAX_HEAD_S` seconds, and not the 60 s that uvicorn would allow it."""
        loop = asyncio.get_running_loop()
        if self.config.ssl is None:
            await super().startup(sockets)
            return
        create_server = partial(loop.create_server, ssl_handshake_timeout=MAX_HEAD_S)
        loop.create_server = create_server  # type: ignore[method-assign]
        try:
            await super().startup(sockets)
        finally:
            del loop.create_server

    def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._draining.is_set():
            self._stop()
        else:
            self._draining.set()
            loop.call_later(self._drain_s, self._stop)

    def _stop(self) -> None:
        self._draining.set()
        self._stopping.set()
        self.should_exit = True


class AnsweredWhenCutOff:
    """Answers a request with 503 if it is cancelled because the server stops. Sends a large answer in parts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def send_in_parts(message: Message) -> None:
            nonlocal began
            began = True
            body = message.get("body", b"")
            for start in range(0, len(body) - MAX_PART_BYTES, MAX_PART_BYTES):
                part = body[start : start + MAX_PART_BYTES]
                await send({"type": "http.response.body", "body": part, "more_body": True})
            if len(body) > MAX_PART_BYTES:
                message = {**message, "body": body[(len(body) - 1) // MAX_PART_BYTES * MAX_PART_BYTES :]}
            await send(message)

        try:
            await self._app(scope, receive, send_in_parts)
        except asyncio.CancelledError:
            if not began:
                detail = "this server is stopping; send the same request again, and it is the same run"
                answer = problem_response(503, "stopping", detail, headers={**CLOSING, "Retry-After": "1"})
                await answer(scope, receive, send)
