"""Runs `work` in child processes: off the event loop, a few at once, bounded in size, memory and time.

A child is killed if it is too slow, if its caller goes away, or if its request is cancelled. It gets no environment and
no open file of the server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from starlette.types import Receive

from contextos.errors import InvalidArtifact, MalformedJson, Problem, Unavailable
from contextos.server.control import work
from contextos.server.problems import HttpProblem
from contextos.server.rates import Places

MAX_CHILDREN: Final = 4
MAX_CHILDREN_PER_TENANT: Final = 2
MAX_WALL_S: Final = 60
"""How long a child may take, also when it waits for a processor, in seconds."""
LOOK_S: Final = 1.0
"""How often the server checks whether a caller that sent more data is still there, in seconds."""
MAX_TASK_BYTES: Final = 8 << 20
CHILD: Final = ("-I", "-m", work.__name__)

_LOG: Final = logging.getLogger(__name__)


def child_places() -> Places:
    """Return the places for the child processes of one server."""
    return Places("checks of packs", MAX_CHILDREN, MAX_CHILDREN_PER_TENANT)


class Children:
    """Runs the child processes of one request, within the places of the server. `receive` is the ASGI function of the
    request, whose body was read: the next message is that its caller went away.
    """

    def __init__(self, places: Places, receive: Receive) -> None:
        self._places, self._receive = places, receive

    async def do(self, kind: str, tenant_id: str, **fields: Any) -> dict[str, Any]:
        """Do a task in a place of its own. Raises as `place` and `in_child`."""
        async with self.place(tenant_id):
            return await in_child(kind, tenant_id, **fields)

    @asynccontextmanager
    async def place(self, tenant_id: str) -> AsyncIterator[None]:
        """Return a context in which a tenant does heavy work, for `MAX_WALL_S` at most, and while the caller is there.

        Raises:
            Overloaded: the server or the tenant does as much as it may (429).
            HttpProblem: the work took too long (503).
        """
        try:
            with self._places.place(tenant_id):
                async with asyncio.timeout(MAX_WALL_S) as limit:
                    watcher = asyncio.create_task(self._end_without_caller(limit))
                    try:
                        yield
                    finally:
                        watcher.cancel()
        except TimeoutError:
            detail = f"the work took longer than {MAX_WALL_S} s; send it again, or less of it"
            raise HttpProblem(503, "too_slow", detail, {"Retry-After": "5"}) from None

    async def _end_without_caller(self, limit: asyncio.Timeout) -> None:
        """End the time limit when the caller goes away. Nobody reads the answer then, which says `too_slow`."""
        is_gone = False
        while not is_gone:
            # If more data came on the connection, the server stops reading until `receive` is called again.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    is_gone = (await self._receive())["type"] == "http.disconnect"
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time())


async def children_of(request: Request) -> Children:
    """Return the children of a request."""
    return Children(request.app.state.child_places, request.receive)


ChildrenHere = Annotated[Children, Depends(children_of)]


async def in_child(kind: str, tenant_id: str, **fields: Any) -> dict[str, Any]:
    """Do the task `kind` of `work.WORK` for a tenant in a child, and return its answer. Call it within a `place`.

    Raises:
        InvalidArtifact, MalformedJson: the document of the caller is refused.
        HttpProblem: the task is too large or costs too much (422), or the child failed (500).
        Unavailable: the machine starts no process.
    """
    task = json.dumps({"work": kind, "tenant": tenant_id, **fields}).encode()
    if len(task) > MAX_TASK_BYTES:
        raise HttpProblem(422, "too_large", "the work has too much input; name fewer runs, or send less")
    answer = await _run_child(task)
    if "refused" in answer:
        error = MalformedJson if answer["refused"] == "malformed" else InvalidArtifact
        raise error(*(Problem(**problem) for problem in answer["problems"]))
    return answer


async def _run_child(task: bytes) -> dict[str, Any]:
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *CHILD,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable("authoring", "no process can be started") from error
    exchange = asyncio.create_task(process.communicate(task))
    try:
        await asyncio.wait({exchange})
    finally:
        if process.returncode is None:
            process.kill()
        # Read to the end also when cancelled: `process.wait()` alone never returns while a full pipe is unread.
        await asyncio.wait({exchange})
    output, _ = exchange.result()
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL, work.OUT_OF_MEMORY):
        detail = "the document costs more time or memory than it may; send a smaller one"
        raise HttpProblem(422, "too_much_work", detail)
    if process.returncode != 0:
        _LOG.error("work on a pack failed", extra=json.loads(output) if output else {})
        raise HttpProblem(500, "defect", "the request could not be answered; the log of the server has the reason")
    answer: Mapping[str, Any] = json.loads(output)
    return dict(answer)
