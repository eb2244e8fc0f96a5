"""Opens the stream of a request with `mode: stream`: its run is watched while it is driven.

Source: API Contracts, "Execution modes".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from contextos.contracts.envelopes.run import InvokeRequest
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.run_view import RunView
from contextos.deployment.stream.folding import BEFORE_ALL, StreamEvent
from contextos.service.runs import LaterEvents, Runs
from contextos.workspace.engine.concurrency import retrieve

Driven = asyncio.Future[RunView]
"""A request that is being driven."""


class RequestStream:
    """The events of a request's run while it is driven, and the outcome of the request. `run_id` is the id of the run.

    If the reader goes away, only the events end; the run is driven on.
    """

    def __init__(self, runs: Runs, later: LaterEvents, tenant_id: str, run_id: str, driven: Driven) -> None:
        self.run_id, self._tenant_id = run_id, tenant_id
        self._runs, self._later, self._driven = runs, later, driven

    async def follow(self) -> AsyncGenerator[StreamEvent]:
        """Yield the events in order as they happen, until the run has ended or waits for somebody.

        Raises as `Deployment.invoke`. The events that were yielded before an error did happen.
        """
        last_id = ""
        async with aclosing(self._later.follow(self._tenant_id, self.run_id, 0, BEFORE_ALL)) as events:
            following: asyncio.Future[Any] = asyncio.ensure_future(anext(events, None))
            try:
                while not self._driven.done():
                    await asyncio.wait({self._driven, following}, return_when=asyncio.FIRST_COMPLETED)
                    if not following.done():
                        break
                    if (event := following.result()) is None:
                        break
                    last_id = event.id
                    yield event
                    following = asyncio.ensure_future(anext(events, None))
            finally:
                following.cancel()
                await asyncio.wait({following})
        # The end of a run is in the journal a little before its answer is there.
        await asyncio.wait({self._driven})
        self._driven.result()
        async for event in (await self._runs.open_stream(self._tenant_id, self.run_id, after=last_id)).so_far():
            yield event

    @property
    def is_driven(self) -> bool:
        """Whether the run has ended or waits, so that `outcome` is there."""
        return self._driven.done()

    async def outcome(self) -> RunView:
        """Return the view of the run when it has ended or waits. Returns and raises as `Deployment.invoke`."""
        return await asyncio.shield(self._driven)


async def open_request_stream(
    deployment: Deployment, later: LaterEvents, request: InvokeRequest, driving: set[Driven]
) -> RequestStream:
    """Send a request, and return the stream of its events once its run is stored. The request is in `driving` until the
    drive ends. Before its run is stored, raises as `Deployment.invoke`.
    """
    run_ids = asyncio.Queue[str]()
    driven: Driven = asyncio.ensure_future(deployment.invoke_parsed(request, named=run_ids.put_nowait))
    driving.add(driven)
    driven.add_done_callback(driving.discard)
    # The reader can have gone away, and then nobody else looks at the error.
    driven.add_done_callback(retrieve)

    async def first_event() -> str:
        run_id = await run_ids.get()
        async with aclosing(later.follow(request.tenant_id, run_id, 0, BEFORE_ALL)) as events:
            await anext(events, None)
        return run_id

    first_task = asyncio.ensure_future(first_event())
    futures: tuple[asyncio.Future[Any], ...] = (driven, first_task)
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        run_id = driven.result().run_id if driven.done() else first_task.result()
    finally:
        first_task.cancel()
        await asyncio.wait({first_task})
    return RequestStream(Runs(deployment, later), later, request.tenant_id, run_id, driven)
