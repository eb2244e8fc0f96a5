"""Runs long jobs off the event loop: a few at once, and one for each tenant.

A job runs on an event loop of its own, in a thread. It holds its place until it has ended, also if its caller went
away. A job of unbounded size calls `WorkTime.check`, which ends it when its time is over or the server stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Request

from contextos.contracts.ports.storage import Stores
from contextos.server.problems import HttpProblem
from contextos.server.rates import Places

ResultT = TypeVar("ResultT")

MAX_JOBS: Final = 2
MAX_JOBS_PER_TENANT: Final = 1
MAX_WORK_S: Final = 60


class WorkTime:
    """The time limit of a job (`MAX_WORK_S` seconds). Used from the thread of the job."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping, self._until_s = stopping, time.monotonic() + MAX_WORK_S

    def check(self) -> None:
        """Raise `HttpProblem` if the time is over (422), or if the server stops (503)."""
        if self._stopping.is_set():
            raise HttpProblem(503, "stopping", "this server is stopping; ask another one", {"Retry-After": "1"})
        if time.monotonic() > self._until_s:
            detail = f"the work took longer than {MAX_WORK_S} s; ask for less of it, or use the command line"
            raise HttpProblem(422, "too_much_work", detail)


class Work:
    """The jobs of one server."""

    def __init__(self, stopping: asyncio.Event, stores: Stores) -> None:
        self._stopping, self._stores = stopping, stores
        self._places = Places("replays, verifications and exports", MAX_JOBS, MAX_JOBS_PER_TENANT)

    async def do(self, tenant_id: str, job: Callable[[WorkTime], Awaitable[ResultT]]) -> ResultT:
        """Do a job of a tenant and return its result. Raises each error of the job, and `Overloaded` (429) if the
        tenant or the server has as many jobs as it may.
        """
        self._places.take(tenant_id)

        async def run() -> ResultT:
            try:
                return await job(WorkTime(self._stopping))
            finally:
                # Only stores with connections have something to close.
                if leave := getattr(self._stores, "leave_loop", None):
                    await leave()

        def free(done: asyncio.Future[ResultT]) -> None:
            self._places.free(tenant_id)
            if not done.cancelled():
                done.exception()  # or the loop would report it where the caller went away

        future = asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(run()))
        future.add_done_callback(free)
        return await asyncio.shield(future)


async def work_of(request: Request) -> Work:
    """Return the `Work` of the server (dependency of routes)."""
    work: Work = request.app.state.work
    return work


WorkHere = Annotated[Work, Depends(work_of)]
