"""`runs sessions`: list a tenant's `long_running` runs, how far each is and when its driver last sent a heartbeat."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from contextos.cli.command_context import CommandContext, JsonOption, TenantOption, WorkspaceOption, with_read_context
from contextos.cli.layout import moment
from contextos.cli.runs.faults import exit_code_of_faults, fault_lines
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.deployment.queries.sessions import SessionPage


def sessions_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 20,
    after: Annotated[
        int,
        typer.Option("--after", min=0, max=2**62, help="Continue after this number; sessions are listed newest first."),
    ] = 0,
    live: Annotated[bool, typer.Option("--live", help="Only sessions that have not ended.")] = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the tenant's `long_running` runs, newest first.

    A session that does not verify is marked, and the exit code is 3.
    """

    async def operation(context: CommandContext) -> SessionPage:
        from contextos.deployment.queries.sessions import list_sessions

        return await list_sessions(
            context.store, context.tenant_id, context.app.keys, limit=limit, after=after, live_only=live
        )

    page = with_read_context(workspace, tenant, operation)
    lines: list[str] = [Heading(f"{'run':<20}  {'state':<9}  {'started':<20}  {'heartbeat':<20}  checkpoint, deadline")]
    for session in page.sessions:
        last = session.checkpoint
        checkpoint = f"{last['checkpoint']} {last['verdict']}" if last else "none"
        lines.append(
            f"{session.run_id:<20}  {session.state:<9}  {moment(session.started_at_us):<20}  "
            f"{moment(session.heartbeat_at_us):<20}  {checkpoint}, {moment(session.deadline_us)}"
        )
        lines.append(f"  {displayed(session.session_id or 'no session id')}, {displayed(session.request_id)}")
        lines += fault_lines(session.fault)
    if not page.sessions:
        lines = ["there are no sessions"]
    if page.next_after is not None:
        lines.append(f"more: contextos runs sessions --after {page.next_after}")
    document = {"sessions": [asdict(session) for session in page.sessions], "next_after": page.next_after}
    print_result(document, lines, as_json=as_json)
    return exit_code_of_faults(session.fault for session in page.sessions)
