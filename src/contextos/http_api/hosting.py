"""The process that serves the API: bounded connections, and an end that loses no request.

The head of a request has to arrive within `MAX_HEAD_S`, and the parser keeps no more than `MAX_HEAD_BYTES` of one; it
is `h11`, because it is the one with such a bound. SIGINT and SIGTERM stop the server: it takes no new connection, tells
open streams, and waits for requests in progress, `GRACE_S` at most. A request that is cut off then is found again by
its id, because its run is stored.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from contextos.http_api.assembly import MAX_HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

MAX_HEAD_S: Final = 10
GRACE_S: Final = 30
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def serve_api(api: FastAPI, bound: socket, *, tls: ssl.SSLContext | None = None) -> None:
    """Serve the API on a listening socket until SIGINT or SIGTERM, or until the task is cancelled. With `tls`, every
    connection is encrypted.
    """
    config = uvicorn.Config(
        api,
        http=HeadInTime,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_graceful_shutdown=GRACE_S,
    )
    config.load()
    config.ssl = tls
    await StoppableServer(config, api.state.stopping).serve(sockets=[bound])


class StoppableServer(uvicorn.Server):
    """A server that sets `stopping` before it waits for the requests in progress, so that open streams end."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on the first signal. uvicorn's own version raises it again at the end, which would cut off the engine
        that is stopped after the server.
        """
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self._stopping.set()
        self.should_exit = True


class HeadInTime(H11Protocol):
    """Closes a connection on which the head of a request does not arrive in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on where this is a part of a head, and no longer where it is the end of one."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(MAX_HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        deadline: Any = self._deadline
        if deadline is not None:
            deadline.cancel()
        self._deadline = None
