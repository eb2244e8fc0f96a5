"""`worker`, `runs dead-stuck` and `runs retry`: drive due runs, and handle runs that failed for good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    exit_code_of,
    with_context,
    with_read_context,
)
from contextos.cli.governance.policies import unmatched_lines
from contextos.cli.runs.requests import act_and_drive
from contextos.cli.terminal import print_note, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidSettings, Problem

if TYPE_CHECKING:
    from contextos.workspace import App

COLLECTED_AFTER: Final = (50_000, 2, 2)
"""The thresholds of `gc.set_threshold`: new objects (a run holds about 700), then collections of younger objects."""


def worker_command(workspace: WorkspaceOption = None) -> int:
    """Drive due runs and send notices until interrupted.

    Notices go to the destinations of the settings. Any number of workers can run at the same time. On PostgreSQL they
    share the due runs.
    """
    with_context(workspace, None, _run_worker)
    return 0


def dead_letters_command(
    workspace: WorkspaceOption = None, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """List the runs that failed for good and wait for `runs retry`, and the notices that nobody took."""

    async def operation(context: CommandContext) -> Any:
        from contextos.contracts.documents.subscriptions import UNDELIVERED
        from contextos.deployment import dead_letters

        return await dead_letters.list_dead_letters(context.store), await UNDELIVERED.page(context.store)

    stuck, undelivered = with_read_context(workspace, tenant, operation)
    names = ("run_id", "code", "detail", "failures", "failed_at_us")
    documents = [{name: getattr(run, name) for name in names} for run in stuck]
    lines = [f"{run.run_id}  {displayed(run.code)}  x{run.failures}  {displayed(run.detail)}" for run in stuck]
    notices = [{"subscriber": row.key.partition("/")[0], **asdict(row.body)} for row in undelivered]
    lines += [
        f"{notice['run']}  {notice['event']} was not delivered to {displayed(notice['subscriber'])}  "
        f"x{notice['failures']}  {displayed(notice['detail'])}"
        for notice in notices
    ]
    print_result(
        {"dead_letters": documents, "undelivered": notices}, lines or ["there are no dead letters"], as_json=as_json
    )
    return 0


def retry_command(
    run: RunArgument,
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Take a run off the dead-letter list and drive it again.

    If it fails again, it is put back on the list.
    """

    from contextos.deployment.operator import retry_run

    actor = named_actor(by, key)

    async def act(context: CommandContext, run_id: str) -> None:
        await retry_run(context.deployment, context.tenant_id, run_id, by=actor)

    return exit_code_of(act_and_drive(run, act, workspace, tenant, as_json=as_json))


async def _run_worker(context: CommandContext) -> None:
    import asyncio
    import signal

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running_engine(context.app):
        print_note(f"worker {context.app.owner.id} drives due runs; interrupt to stop")
        await stop.wait()
        print_note("stopping: the runs in progress are released")


async def note_warnings(app: App) -> None:
    """Print warnings: that the service has no witness, and what is configured and cannot be in force."""
    if app.lacks_witness:
        print_note("warning: this service has no witness, so nobody finds a cut end of its journals; set `witness`")
    for line in unmatched_lines(await app.configuration.check()):
        print_note(f"warning: {line}")


@asynccontextmanager
async def running_engine(app: App, *, drives: bool = True, serves_metrics: bool = False) -> AsyncIterator[None]:
    """Drive due runs and send notices in this process until the block ends; without `drives` leave both to other
    workers. The failure of a run is noted on the terminal.

    Raises:
        InvalidSettings: the settings ask for metrics that nobody could read from this process.
    """
    from contextos.workspace.outbox import begin_outboxes

    telemetry = app.settings.telemetry
    if telemetry is not None and not telemetry.sends and not serves_metrics:
        detail = "this process serves no `/metrics`, so its telemetry would reach nobody"
        raise InvalidSettings(Problem("/telemetry", "unread", detail, "name a collector, or leave `[telemetry]` out"))
    await note_warnings(app)
    app.engine = app.worker(_report_failure, drives=drives)
    await app.engine.start()
    spare_collections()
    try:
        if drives:
            await begin_outboxes(app)
        yield
    finally:
        await app.delivery.stop()
        await app.engine.stop()


def spare_collections() -> None:
    """Exclude all present objects from garbage collection, because most of them live until the end. Collect seldom,
    because a run leaves no garbage, and a collection looks at all objects of the runs in progress.
    """
    import gc

    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def _report_failure(tenant_id: str, run_id: str, fault: BaseException) -> None:
    name = f"{tenant_id} {run_id}" if tenant_id else f"the {run_id}"
    print_note(f"{displayed(name)}: {displayed(str(fault) or type(fault).__name__)}")
