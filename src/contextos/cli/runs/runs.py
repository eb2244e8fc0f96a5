"""`runs` and `show`: list a tenant's runs, and show the story of one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import (
    WORKSPACE,
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    document_of,
    with_context,
)
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.queries.run_list import RunPage


def runs_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 20,
    after: Annotated[
        int, typer.Option("--after", min=0, max=2**62, help="Continue after this number; runs are listed newest first.")
    ] = 0,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only runs that wait for a person.")] = False,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the tenant's runs, newest first."""

    async def operation(context: CommandContext) -> RunPage:
        from contextos.queries.run_list import list_runs, list_waiting_runs

        listing = list_waiting_runs if waiting else list_runs
        return await listing(context.store, context.tenant_id, limit=limit, after=after)

    page = with_context(workspace, tenant, operation)
    lines: list[str] = [Heading(f"{'no.':>5}  {'run':<20}  {'state':<9}  {'record':<9}  request, intent")]
    lines += [
        f"{one.number:>5}  {one.run_id:<20}  {one.state:<9}  {one.status or '-':<9}  "
        f"{displayed(one.request_id)}, {displayed(one.intent)}"
        for one in page.runs
    ]
    if page.next_after is not None:
        lines.append(f"more: contextos runs{' --waiting' if waiting else ''} --after {page.next_after}")
    document = {"runs": [asdict(one) for one in page.runs], "next_after": page.next_after}
    print_result(document, lines if page.runs else ["there are no runs"], as_json=as_json)
    return 0


def show_command(
    run: RunArgument, workspace: WorkspaceOption = WORKSPACE, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """Show the story of one run from its journal."""
    from contextos.cli.runs.story import story_lines
    from contextos.queries.timeline import story_document, tell_story

    async def operation(context: CommandContext) -> Any:
        run_id = await context.run_id(run)
        view = await context.deployment.view(context.tenant_id, run_id)
        return view, await context.store.read(run_id)

    view, entries = with_context(workspace, tenant, operation)
    story = tell_story(entries)
    body = {**document_of(view), "story": story_document(story), "entries": [_entry(one) for one in entries]}
    body.pop("exit_code")
    print_result(body, [f"{view.run_id} is {view.state}", "", *story_lines(story)], as_json=as_json)
    return 0


def _entry(entry: Any) -> dict[str, Any]:
    import orjson

    body = None if entry.body is None else orjson.loads(entry.body)
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "key": entry.key,
        "at_us": entry.at_us,
        "by": entry.by,
        "hash": entry.hash,
        "body": body,
    }
