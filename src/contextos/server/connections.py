"""Bounds the connections of clients: their number, the time of a head, and the time for which an answer may wait.

- `server.edge.MAX_HEAD_S`: a connection ends if a head, or the rest of a body that nobody reads, takes longer.
- `MAX_UNSENT_S`: a connection ends if its reader takes nothing of an answer for so long.
- `MAX_CONNECTIONS`: requests of the next `SPARE_CONNECTIONS` connections are answered with 503; any beyond is closed. A
  connection whose TLS has not begun counts too; `hosting` ends it after `MAX_HEAD_S`.
- One address has a share of them (`max_http_percent_per_address`), beyond which it is refused in the same way.

`server.edge` reads the bytes of a connection.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Receive, Scope, Send

from contextos.errors import InvalidSettings, Problem
from contextos.server.edge import MAX_HEAD_S, EdgeConnection
from contextos.server.problems import SECURE_HEADERS, problem_response
from contextos.server.rates import client_address, share_of

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

MAX_UNSENT_S: Final = 60
MAX_CONNECTIONS: Final = 2048
SPARE_CONNECTIONS: Final = 64
MAX_PART_BYTES: Final = 65_536
"""A larger answer is sent in parts, each within `MAX_UNSENT_S`: a slow reader is not taken for one who has stopped.
Without parts TLS would take the whole answer at once, and nobody would see that its reader takes nothing.
"""
OTHER_FILES: Final = 256
"""The files that the process opens besides connections of clients: the store, its log, connections of adapters."""
CLOSING: Final = {**SECURE_HEADERS, "Connection": "close"}


def reserve_files() -> None:
    """Raise the limit on open files of this process to the number that its connections need.

    Raises:
        InvalidSettings: the system does not allow so many.
    """
    needed = MAX_CONNECTIONS + SPARE_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < needed:
        detail = f"a process may open {hard} files here, and {needed} are needed"
        raise InvalidSettings(Problem("", "too_few_files", detail, f"allow more, as with `ulimit -n {needed}`"))
    if soft != unlimited and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


async def refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection beyond `MAX_CONNECTIONS` with 503 (ASGI)."""
    detail = f"this server has {MAX_CONNECTIONS} connections already; send the same request again after `Retry-After`"
    answer = problem_response(503, "too_many_connections", detail, headers={**CLOSING, "Retry-After": "1"})
    await answer(scope, receive, send)


async def refuse_address(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection beyond the share of its address with 503 (ASGI)."""
    detail = "your address has as many connections as one may have; close some, or send the request again later"
    answer = problem_response(503, "too_many_connections", detail, headers={**CLOSING, "Retry-After": "1"})
    await answer(scope, receive, send)


class BoundedConnection(EdgeConnection):
    """The protocol of one bounded connection, for `uvicorn.Config(http=…)`."""

    more_headers = SECURE_HEADERS

    _unsent_late: asyncio.TimerHandle | None = None

    def __init__(
        self, *, config: uvicorn.Config, server_state: ServerState, percent_per_address: int = 100, **options: Any
    ) -> None:
        super().__init__(config=config, server_state=server_state, **options)
        self._percent, self._address = percent_per_address, ""
        self._addresses: Counter[str] = vars(server_state).setdefault("addresses", Counter())
        # The accepted connections of the server whose TLS has not begun, with the time at which that is too late.
        self._beginning: dict[BoundedConnection, float] = vars(server_state).setdefault("beginning", {})
        if config.ssl is None:
            return
        now_s = self.loop.time()
        while self._beginning and next(iter(self._beginning.values())) < now_s:
            del self._beginning[next(iter(self._beginning))]
        if len(self._beginning) + len(self.connections) >= MAX_CONNECTIONS + SPARE_CONNECTIONS:
            # asyncio then drops the accepted socket, which closes it.
            raise ConnectionAbortedError("too many connections")
        self._beginning[self] = now_s + MAX_HEAD_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection. Refuse it if the server or its address has too many."""
        self._beginning.pop(self, None)
        super().connection_made(transport)
        # So `pause_writing` is called while any byte waits. With a limit of 0 TLS would call it for no byte too.
        transport.set_write_buffer_limits(high=1, low=0)
        self._address = client_address(self.client)
        self._addresses[self._address] += 1
        excess = self._addresses[self._address] - share_of(MAX_CONNECTIONS, self._percent) if self._address else 0
        if max(len(self.connections) - MAX_CONNECTIONS, excess) > SPARE_CONNECTIONS:
            transport.abort()
            return
        if len(self.connections) > MAX_CONNECTIONS:
            self.app = refuse_connection
        elif excess > 0:
            self.app = refuse_address

    def pause_writing(self) -> None:
        """Start the time limit of the reader of an answer."""
        super().pause_writing()
        if self._unsent_late is None:
            self._unsent_late = self.loop.call_later(MAX_UNSENT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """End the time limit of the reader: everything was sent."""
        super().resume_writing()
        self._stop_waiting_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection, and end its time limits."""
        self._addresses.subtract([self._address])
        if self._addresses[self._address] <= 0:
            del self._addresses[self._address]
        self._stop_waiting_for_reader()
        super().connection_lost(exc)

    def _stop_waiting_for_reader(self) -> None:
        if self._unsent_late is not None:
            self._unsent_late.cancel()
        self._unsent_late = None
