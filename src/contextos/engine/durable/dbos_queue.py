"""`DbosQueue`: all that this package asks of DBOS, and the only module that calls it.

One queue for drives. Its partition is the tenant, so that concurrency and rate are bounded per tenant; its
deduplication id is the run, so that at most one workflow of a run is queued, delayed or in progress in the whole
deployment. A second queue drives alone what took its workers with it; what stands there is not placed in the first.
Payloads are (tenant, run) in JSON. A worker that lives keeps pushing a delayed workflow ahead of itself: its watch.
When it stops pushing, DBOS hands the watch to another worker, and that one recovers what the dead one held.

Sources: DBOS `DBOSClient.enqueue`, `register_queue`, `set_workflow_delay`; version 3.4.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from contextos.engine.durable.queue_connection import (
    RETRY_MS,
    claim_queue,
    connect_queue,
    driver_message,
    queue_refusal,
)
from contextos.engine.durable.workflows import (
    ALONE,
    BURY,
    DRIVE,
    DRIVE_ALONE,
    DRIVES,
    LIVE,
    LOST,
    RUNS,
    TICK_US,
    WATCHES,
    PendingWorkflow,
    QueueLimits,
    pending_workflow,
    run_named,
    run_of,
)
from contextos.engine.fair_queue import RunKey
from contextos.errors import InvalidSettings, Problem, Unavailable

if TYPE_CHECKING:
    from dbos import DBOSClient, WorkflowStatus

ResultT = TypeVar("ResultT")
DriveRun = Callable[[str, str], Awaitable[str]]
AddDeadLetter = Callable[[str], Awaitable[str]]

APPLICATION: Final = "contextos"
DBOS_VERSION: Final = "drive-1"
"""What DBOS calls the application's version. Ours is one call, so every release that keeps the payload shares it."""
MAX_PLACINGS: Final = 8


class DbosQueue:
    """The queue of a deployment on the PostgreSQL database at `url`, in a schema of its own.

    One per process at a time, because DBOS is. All coroutines belong to the event loop that ran `open`.

    Raises: `Unavailable` from every method when the database does not answer.
    """

    _opened: ClassVar[DbosQueue | None] = None

    def __init__(self, url: str, limits: QueueLimits, *, schema: str = "dbos") -> None:
        self.worker_id = secrets.token_hex(8)
        self._url, self._limits, self._schema = url, limits, schema
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="contextos-queue")
        self._client: DBOSClient
        self._faults: tuple[type[Exception], ...] = ()
        self._watch: str | None = None
        self._dispatches = False
        self._busy: set[str] = set()
        self._missed: set[str] = set()
        self._next_look_s = 0.0

    def _connect(self) -> None:
        import sqlalchemy as sa
        from dbos import DBOSClient, DBOSPortableJSONSerializer, error

        self._faults = (sa.exc.SQLAlchemyError, error.DBOSException)
        try:
            self._client = DBOSClient(
                system_database_url=self._url,
                dbos_system_schema=self._schema,
                serializer=DBOSPortableJSONSerializer(),
                system_database_pool_size=self._limits.threads,
                application_name=APPLICATION,
                retry_connection_errors=False,
            )
        except self._faults as fault:
            raise queue_refusal(fault, self._url) from fault

    async def open(self, drive: DriveRun, bury: AddDeadLetter) -> None:
        """Connect, say that this worker lives, and start to dispatch.

        Raises:
            InvalidSettings: this URL, database or role cannot serve, or the queue is another store's; nothing was
                started.
            Unavailable: the server does not answer; nothing was started.
        """
        if DbosQueue._opened is not None:
            twice = Problem("/engine", "second_engine", "this process runs a durable engine", "start another process")
            raise InvalidSettings(twice)
        DbosQueue._opened = self
        try:
            loop = asyncio.get_running_loop()
            self._url = await loop.run_in_executor(
                self._threads, connect_queue, self._url, self._limits.connect_timeout_s
            )
            await loop.run_in_executor(self._threads, self._connect)
            await loop.run_in_executor(self._threads, self._launch, loop, drive, bury)
        finally:
            if not self._dispatches:
                DbosQueue._opened = None

    def _launch(self, loop: asyncio.AbstractEventLoop, drive: DriveRun, bury: AddDeadLetter) -> None:
        from dbos import DBOS, DBOSPortableJSONSerializer

        _refuse_pickles()
        try:
            DBOS(
                config={
                    "name": APPLICATION,
                    "application_version": DBOS_VERSION,
                    "executor_id": self.worker_id,
                    "system_database_url": self._url,
                    "dbos_system_schema": self._schema,
                    "log_level": "ERROR",
                    "serializer": DBOSPortableJSONSerializer(),
                    "run_migrations": False,
                }
            )
            self._register_workflows(loop, drive, bury)
            self._push_watch()  # and the queues
            DBOS.launch()
            self._dispatches = True
        except self._faults as fault:
            raise queue_refusal(fault, self._url) from fault
        finally:
            if not self._dispatches:
                DBOS.destroy(destroy_registry=True)
                self._client.destroy()

    def _register_queues(self) -> None:
        limits, poll_s = self._limits, self._limits.polling_interval_ms / 1000
        rate, in_all = limits.rate_per_tenant, limits.max_drives_per_tenant_in_all
        # DBOS refuses a share that is larger than the whole.
        share = min(limits.max_drives_per_tenant, limits.max_drives, in_all or limits.max_drives)
        self._client.register_queue(
            RUNS,
            worker_concurrency=limits.max_drives,
            partition_worker_concurrency=share,
            partition_concurrency=in_all,
            polling_interval_sec=poll_s,
            partition_limiter={"limit": rate, "period": limits.rate_period_ms / 1000} if rate is not None else None,
        )
        # Each look costs several statements, and these two hold what is rare.
        self._client.register_queue(ALONE, global_concurrency=1, polling_interval_sec=TICK_US / 1e6)
        self._client.register_queue(WATCHES, polling_interval_sec=TICK_US / 1e6)

    def _register_workflows(self, loop: asyncio.AbstractEventLoop, drive: DriveRun, bury: AddDeadLetter) -> None:
        """The bodies run on the engine's own loop: ports belong to it, and DBOS keeps to its threads."""
        from dbos import DBOS

        async def here(call: Callable[..., Awaitable[str]], *args: str) -> str:
            async def called() -> str:
                return await call(*args)

            workflow_id = DBOS.workflow_id or ""
            self._busy.add(workflow_id)
            try:
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(), loop))
            finally:
                self._busy.discard(workflow_id)

        async def contextos_drive(tenant_id: str, run_id: str) -> str:
            return await here(drive, tenant_id, run_id) if run_named(tenant_id, run_id) else "no_run"

        async def contextos_drive_alone(tenant_id: str, run_id: str) -> str:
            return await contextos_drive(tenant_id, run_id)

        async def contextos_bury(worker_id: str) -> str:
            return await here(bury, worker_id)

        for name, body in ((DRIVE, contextos_drive), (DRIVE_ALONE, contextos_drive_alone)):
            DBOS.workflow(name=name, max_recovery_attempts=self._limits.max_recoveries)(body)
        DBOS.workflow(name=BURY, max_recovery_attempts=None)(contextos_bury)

    async def close(self, *, grace_s: int = 0, hand_back: Iterable[RunKey] = ()) -> None:
        """Dispatch nothing more, let what is in progress be written down for `grace_s`, and let go of everything.

        `hand_back` may grow meanwhile: runs that others shall drive on.
        """
        if self._dispatches:
            from dbos import DBOS

            await asyncio.to_thread(DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=grace_s)
            DbosQueue._opened = None
            try:
                for run in hand_back:
                    await self.place(run)
                await self._ask(self._lay_down_watch)
            except Unavailable:
                pass  # the watch runs out by itself, and the sweep finds the runs
        self._client.destroy()
        self._threads.shutdown(wait=False)

    async def _ask(self, call: Callable[..., ResultT], *args: Any, **named: Any) -> ResultT:
        asked = asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **named))
        try:
            return await asked
        except self._faults as fault:
            raise Unavailable("queue", driver_message(fault), retry_after_ms=RETRY_MS) from fault

    async def place(
        self, run: RunKey, *, delay_us: int = 0, retry: bool = False, alone: bool = False
    ) -> PendingWorkflow | None:
        """Queue a drive of `run`. None if it is queued now, else the workflow that stands in its way."""
        return await self._ask(self._place, run, delay_us, retry, alone)

    def _place(self, run: RunKey, delay_us: int, retry: bool, alone: bool) -> PendingWorkflow | None:
        tenant_id, run_id = run
        own = f"{tenant_id}/{run_id}/{secrets.token_hex(8)}" + ("/retry" if retry else "")
        options: Any = {
            "workflow_name": DRIVE_ALONE if alone else DRIVE,
            "queue_name": ALONE if alone else RUNS,
            "workflow_id": own,
            "deduplication_id": f"{tenant_id}/{run_id}",
            "duplication_policy": "return-existing",
        }
        if not alone:
            options["queue_partition_key"] = tenant_id
            # DBOS holds a deduplication id to one queue.
            for workflow in self._list(name=DRIVE_ALONE, status=LIVE, workflow_id_prefix=f"{tenant_id}/{run_id}/"):
                return pending_workflow(workflow)
        if delay_us > 0:
            options["delay_seconds"] = delay_us / 1e6
        for _ in range(MAX_PLACINGS):
            found = self._client.enqueue(options, tenant_id, run_id).workflow_id
            if found == own:
                return None
            for workflow in self._list(workflow_ids=[found], status=LIVE):
                return pending_workflow(workflow)
            # It ended between the two questions.
        raise Unavailable("queue", "others keep queueing this run", retry_after_ms=RETRY_MS)

    async def bring_forward(self, standing: PendingWorkflow, *, delay_us: int) -> None:
        """Let a delayed workflow run in `delay_us`, or give it up if that is at once: DBOS looks only every tick."""
        if delay_us > TICK_US:
            await self._ask(self._client.set_workflow_delay, standing.workflow_id, delay_seconds=delay_us / 1e6)
        else:
            await self._ask(self._client.cancel_workflow, standing.workflow_id)

    def _list(self, **which: Any) -> list[WorkflowStatus]:
        return self._client.list_workflows(load_output=False, load_input=False, limit=self._limits.max_listed, **which)

    async def live(self) -> dict[RunKey, PendingWorkflow]:
        """Every run with a workflow, as far as `max_listed` goes."""
        listed = await self._ask(self._list, name=DRIVES, status=LIVE)
        return {run: pending_workflow(workflow) for workflow in listed if (run := run_of(workflow)) is not None}

    async def lost(self) -> dict[str, tuple[RunKey | None, bool]]:
        """Workflows that will never come to their end: the run that each names, and whether it was driven alone."""
        # Not by the queue: DBOS takes such a row off it.
        listed = await self._ask(self._list, name=DRIVES, status=LOST)
        return {workflow.workflow_id: (run_of(workflow), workflow.name == DRIVE_ALONE) for workflow in listed}

    async def forget(self, workflow_ids: Sequence[str]) -> None:
        """Delete finished workflows."""
        await self._ask(self._client.delete_workflows, list(workflow_ids))

    async def tidy(self, now_us: int) -> int:
        """Delete a page of what ended well longer than `keep_finished_ms` ago, and say how many."""
        before = datetime.fromtimestamp(now_us / 1e6 - self._limits.keep_finished_ms / 1000, UTC).isoformat()
        ended = await self._ask(
            self._list, name=[*DRIVES, BURY], status=["SUCCESS", "CANCELLED"], completed_before=before
        )
        if ended:
            await self.forget([workflow.workflow_id for workflow in ended])
        return len(ended)

    async def watch(self) -> None:
        """Say that this worker lives, and queue again what it took and never began.

        Called more often than `dead_after_ms`.
        """
        try:
            await self._ask(self._push_watch)
        except InvalidSettings as taken:
            # It was made again for another store, which a worker that runs can only say.
            raise Unavailable("queue", str(taken), retry_after_ms=RETRY_MS) from taken
        if time.monotonic() >= self._next_look_s:
            await self._ask(self._queue_missed_again)
            self._next_look_s = time.monotonic() + self._limits.dead_after_ms / 2000

    def _push_watch(self) -> None:
        seconds = self._limits.dead_after_ms / 1000
        if self._watch is not None:
            self._client.set_workflow_delay(self._watch, delay_seconds=seconds)
            if self._list(workflow_ids=[self._watch], status="DELAYED"):
                return
        # The first one, or it ran out while this worker or the database slept; or the queue was made again.
        claim_queue(self._url, self._limits.store, schema=self._schema)
        self._register_queues()
        self._watch = self._enqueue_watch(self.worker_id, seconds)

    def _enqueue_watch(self, worker_id: str, delay_s: float) -> str:
        watch = f"{worker_id}/{secrets.token_hex(8)}"
        self._client.enqueue(
            {"workflow_name": BURY, "queue_name": WATCHES, "workflow_id": watch, "delay_seconds": delay_s}, worker_id
        )
        return watch

    def _queue_missed_again(self) -> None:
        """A connection that breaks while DBOS takes workflows leaves them taken by us, and nobody runs them.

        Seen in two looks, so that an end that is being written down is not taken for one.
        """
        taken = {one.workflow_id: one for one in self._list(executor_id=self.worker_id, status="PENDING")}
        missed = taken.keys() - self._busy
        for workflow_id in missed & self._missed:
            self._client.cancel_workflow(workflow_id)
            one = taken[workflow_id]
            if one.name == BURY:
                self._enqueue_watch(workflow_id.partition("/")[0], 0)
            elif (run := run_of(one)) is not None:
                self._place(run, 0, False, one.name == DRIVE_ALONE)
        self._missed = missed

    def _lay_down_watch(self) -> None:
        if self._watch is None:
            return
        if self._list(executor_id=self.worker_id, status="PENDING"):
            self._client.set_workflow_delay(self._watch, delay_seconds=0)
        else:
            self._client.cancel_workflow(self._watch)

    async def recover(self, worker_id: str) -> int:
        """Queue again what a dead worker held, unless it has set up a new watch; how many.

        Only rows that still name the dead worker are taken, so recovering twice is recovering once.
        """
        return await self._ask(self._recover, worker_id)

    def _recover(self, worker_id: str) -> int:
        from dbos import DBOS

        watches = self._list(name=BURY, status="DELAYED", workflow_id_prefix=f"{worker_id}/")
        return 0 if watches else len(DBOS._recover_pending_workflows([worker_id]))


def _refuse_pickles() -> None:
    """DBOS believes a row that says it is a pickle, so who can write to the queue could run code in every worker."""
    from dbos._serialization import DefaultSerializer

    def refuse(_: str) -> Any:
        raise TypeError("the queue holds JSON and nothing else")

    DefaultSerializer.deserialize = staticmethod(refuse)  # type: ignore[assignment, method-assign]
