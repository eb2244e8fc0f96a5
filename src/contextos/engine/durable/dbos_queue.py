"""`DbosQueue`: the queue of drives on DBOS. Only this module and `dbos_internals` call DBOS while workers run.

One queue holds the drives. Its partition is the tenant, so concurrency and rate are limited per tenant. Its
deduplication id is the run, so at most one workflow of a run is queued, delayed or in progress in the whole deployment.
A second queue drives alone the runs whose workers died; a run in it is not in the first queue. Payloads are (tenant,
run) in JSON. Each worker has a watch: a delayed workflow that the worker delays again and again while it lives. When
the worker dies, DBOS gives the watch to another worker, which recovers what the dead one held.

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

from contextos.engine.durable.dbos_internals import recover_workflows, refuse_pickles
from contextos.engine.durable.queue_connection import (
    RETRY_MS,
    claim_queue,
    connect_queue,
    driver_message,
    queue_refusal,
)
from contextos.engine.durable.workflows import (
    ALONE,
    DRIVE,
    DRIVE_ALONE,
    DRIVES,
    LIVE,
    LOST,
    RECOVER,
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
RecoverWorker = Callable[[str], Awaitable[str]]
"""Recovers what the worker with this id held, if it is dead. Returns what the finished workflow records."""

APPLICATION: Final = "contextos"
DBOS_VERSION: Final = "drive-1"
"""The application version for DBOS. A workflow is one call, so releases with the same payload share the version."""
MAX_ENQUEUE_TRIES: Final = 8


class DbosQueue:
    """The queue of runs to drive, shared by all workers through the PostgreSQL database at `url`, in a schema of its
    own.

    One per process at a time, as DBOS is. Call all coroutines on the event loop that ran `open`.

    Raises:
        Unavailable: from every method, if the database does not answer.
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

    async def open(self, drive: DriveRun, recover: RecoverWorker) -> None:
        """Connect to the queue, register this worker, and start to take runs from it.

        `drive` is called with each run, `recover` with each worker that died.

        Raises:
            InvalidSettings: the URL, the database or the role is not usable, or the queue belongs to another store;
                nothing was started.
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
            await loop.run_in_executor(self._threads, self._launch, loop, drive, recover)
        finally:
            if not self._dispatches:
                DbosQueue._opened = None

    def _launch(self, loop: asyncio.AbstractEventLoop, drive: DriveRun, recover: RecoverWorker) -> None:
        from dbos import DBOS, DBOSPortableJSONSerializer

        refuse_pickles()
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
            self._register_workflows(loop, drive, recover)
            self._push_watch()  # which registers the queues too
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
        rate, in_deployment = limits.rate_per_tenant, limits.max_drives_per_tenant_in_all
        # DBOS refuses a partition limit above the queue's.
        share = min(limits.max_drives_per_tenant, limits.max_drives, in_deployment or limits.max_drives)
        self._client.register_queue(
            RUNS,
            worker_concurrency=limits.max_drives,
            partition_worker_concurrency=share,
            partition_concurrency=in_deployment,
            polling_interval_sec=poll_s,
            partition_limiter={"limit": rate, "period": limits.rate_period_ms / 1000} if rate is not None else None,
        )
        # Each poll costs several statements, and workflows in these two queues are rare.
        self._client.register_queue(ALONE, global_concurrency=1, polling_interval_sec=TICK_US / 1e6)
        self._client.register_queue(WATCHES, polling_interval_sec=TICK_US / 1e6)

    def _register_workflows(self, loop: asyncio.AbstractEventLoop, drive: DriveRun, recover: RecoverWorker) -> None:
        """Register the workflows. Their bodies run on the engine's event loop, because the ports belong to it."""
        from dbos import DBOS

        async def on_loop(call: Callable[..., Awaitable[str]], *args: str) -> str:
            async def called() -> str:
                return await call(*args)

            workflow_id = DBOS.workflow_id or ""
            self._busy.add(workflow_id)
            try:
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(), loop))
            finally:
                self._busy.discard(workflow_id)

        async def contextos_drive(tenant_id: str, run_id: str) -> str:
            return await on_loop(drive, tenant_id, run_id) if run_named(tenant_id, run_id) else "no_run"

        async def contextos_drive_alone(tenant_id: str, run_id: str) -> str:
            return await contextos_drive(tenant_id, run_id)

        async def contextos_recover(worker_id: str) -> str:
            return await on_loop(recover, worker_id)

        for name, body in ((DRIVE, contextos_drive), (DRIVE_ALONE, contextos_drive_alone)):
            DBOS.workflow(name=name, max_recovery_attempts=self._limits.max_recoveries)(body)
        DBOS.workflow(name=RECOVER, max_recovery_attempts=None)(contextos_recover)

    async def close(self, *, grace_s: int = 0, hand_back: Iterable[RunKey] = ()) -> None:
        """Stop taking runs, give those in progress `grace_s` seconds to record their end, and release everything.

        `hand_back` are runs that other workers drive on; it can grow during the grace period.
        """
        if self._dispatches:
            from dbos import DBOS

            await asyncio.to_thread(DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=grace_s)
            DbosQueue._opened = None
            try:
                for run in hand_back:
                    await self.place(run)
                await self._ask(self._end_watch)
            except Unavailable:
                pass  # the watch expires, and the sweep finds the runs
        self._client.destroy()
        self._threads.shutdown(wait=False)

    async def _ask(self, call: Callable[..., ResultT], *args: Any, **named: Any) -> ResultT:
        running = asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **named))
        try:
            return await running
        except self._faults as fault:
            raise Unavailable("queue", driver_message(fault), retry_after_ms=RETRY_MS) from fault

    async def place(
        self, run: RunKey, *, delay_us: int = 0, retry: bool = False, alone: bool = False
    ) -> PendingWorkflow | None:
        """Queue a run to be driven after `delay_us` microseconds. `alone`: while this worker drives no other run.

        If the run is in the queue already, queue nothing and return its workflow (its place in the queue); otherwise
        None.
        """
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
            # A deduplication id is unique in one queue only.
            for workflow in self._list(name=DRIVE_ALONE, status=LIVE, workflow_id_prefix=f"{tenant_id}/{run_id}/"):
                return pending_workflow(workflow)
        if delay_us > 0:
            options["delay_seconds"] = delay_us / 1e6
        for _ in range(MAX_ENQUEUE_TRIES):
            found = self._client.enqueue(options, tenant_id, run_id).workflow_id
            if found == own:
                return None
            for workflow in self._list(workflow_ids=[found], status=LIVE):
                return pending_workflow(workflow)
            # It ended between the two calls.
        raise Unavailable("queue", "others keep queueing this run", retry_after_ms=RETRY_MS)

    async def bring_forward(self, pending: PendingWorkflow, *, delay_us: int) -> None:
        """Let a delayed workflow start in `delay_us` microseconds, or now if that is less than DBOS's polling
        interval.
        """
        if delay_us > TICK_US:
            await self._ask(self._client.set_workflow_delay, pending.workflow_id, delay_seconds=delay_us / 1e6)
        else:
            await self._ask(self._client.cancel_workflow, pending.workflow_id)

    def _list(self, **which: Any) -> list[WorkflowStatus]:
        return self._client.list_workflows(load_output=False, load_input=False, limit=self._limits.max_listed, **which)

    async def live(self) -> dict[RunKey, PendingWorkflow]:
        """Return the runs that are in the queue or being driven, each with its workflow; at most `max_listed`."""
        listed = await self._ask(self._list, name=DRIVES, status=LIVE)
        return {run: pending_workflow(workflow) for workflow in listed if (run := run_of(workflow)) is not None}

    async def lost(self) -> dict[str, tuple[RunKey | None, bool]]:
        """Return workflows that will never finish, by id: the run that each one is for, and whether it was driven
        alone.
        """
        # Not by the queue: DBOS removes such a row from it.
        listed = await self._ask(self._list, name=DRIVES, status=LOST)
        return {workflow.workflow_id: (run_of(workflow), workflow.name == DRIVE_ALONE) for workflow in listed}

    async def forget(self, workflow_ids: Sequence[str]) -> None:
        """Delete finished workflows (drives of runs) from the queue's tables."""
        await self._ask(self._client.delete_workflows, list(workflow_ids))

    async def tidy(self, now_us: int) -> int:
        """Delete at most `max_listed` workflows that finished more than `keep_finished_ms` ago. Returns how many were
        deleted.
        """
        before = datetime.fromtimestamp(now_us / 1e6 - self._limits.keep_finished_ms / 1000, UTC).isoformat()
        ended = await self._ask(
            self._list, name=[*DRIVES, RECOVER], status=["SUCCESS", "CANCELLED"], completed_before=before
        )
        if ended:
            await self.forget([workflow.workflow_id for workflow in ended])
        return len(ended)

    async def watch(self) -> None:
        """Record that this worker is alive, and queue again what it took from the queue and never began.

        Call it more often than every `dead_after_ms`.
        """
        try:
            await self._ask(self._push_watch)
        except InvalidSettings as taken:
            # The queue was made again for another store; a running worker can only report that.
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
        # There is no watch yet, or it expired while this worker or the database slept, or the queue was made again.
        claim_queue(self._url, self._limits.store, schema=self._schema)
        self._register_queues()
        self._watch = self._enqueue_watch(self.worker_id, seconds)

    def _enqueue_watch(self, worker_id: str, delay_s: float) -> str:
        watch = f"{worker_id}/{secrets.token_hex(8)}"
        self._client.enqueue(
            {"workflow_name": RECOVER, "queue_name": WATCHES, "workflow_id": watch, "delay_seconds": delay_s}, worker_id
        )
        return watch

    def _queue_missed_again(self) -> None:
        """Queue again the workflows that were taken by this worker and never began.

        A connection that breaks while DBOS takes workflows leaves them in that state. A workflow must be in it in two
        calls in a row, because one whose end is just being recorded looks the same.
        """
        taken = {one.workflow_id: one for one in self._list(executor_id=self.worker_id, status="PENDING")}
        missed = taken.keys() - self._busy
        for workflow_id in missed & self._missed:
            self._client.cancel_workflow(workflow_id)
            one = taken[workflow_id]
            if one.name == RECOVER:
                self._enqueue_watch(workflow_id.partition("/")[0], 0)
            elif (run := run_of(one)) is not None:
                self._place(run, 0, False, one.name == DRIVE_ALONE)
        self._missed = missed

    def _end_watch(self) -> None:
        if self._watch is None:
            return
        if self._list(executor_id=self.worker_id, status="PENDING"):
            self._client.set_workflow_delay(self._watch, delay_seconds=0)
        else:
            self._client.cancel_workflow(self._watch)

    async def recover(self, worker_id: str) -> int:
        """Queue again the runs that a dead worker was driving, unless the worker came back. Returns how many there
        were.

        Only rows that still name the dead worker are queued, so a second recovery has no effect.
        """
        return await self._ask(self._recover, worker_id)

    def _recover(self, worker_id: str) -> int:
        watches = self._list(name=RECOVER, status="DELAYED", workflow_id_prefix=f"{worker_id}/")
        return 0 if watches else recover_workflows(worker_id)
