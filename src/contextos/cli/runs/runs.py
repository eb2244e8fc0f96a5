"""`runs` and `show`: which runs there are, and the story of one."""

from __future__ import annotations

from typing import Annotated, Any

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
from contextos.cli.terminal import Heading, give
from contextos.contracts.encoding.display_escape import displayed
from contextos.queries.run_index import newest_runs


def runs_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")] = 20,
    after: Annotated[
        int, typer.Option("--after", min=0, max=2**62, help="Go on after this number; runs are listed newest first.")
    ] = 0,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only runs that wait for a person.")] = False,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the tenant's runs, newest first."""
    listed, more = with_context(workspace, tenant, lambda session: _listed(session, limit, after, waiting))
    lines: list[str] = [Heading(f"{'no.':>5}  {'run':<20}  {'state':<9}  {'record':<9}  request, intent")]
    lines += [
        f"{one['number']:>5}  {one['run_id']:<20}  {one['state']:<9}  {one['status'] or '-':<9}  "
        f"{displayed(one['request_id'])}, {displayed(one['intent'])}"
        for one in listed
    ]
    if more is not None:
        lines.append(f"more: contextos runs --after {more}")
    give({"runs": listed, "next_after": more}, lines if listed else ["there are no runs"], as_json=as_json)
    return 0


def show_command(
    run: RunArgument, workspace: WorkspaceOption = WORKSPACE, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """Tell the story of one run from its journal."""
    from contextos.cli.runs.story import story_lines
    from contextos.queries.timeline import story_document, tell_story

    async def act(session: CommandContext) -> Any:
        run_id = await session.run_id(run)
        view = await session.deployment.view(session.tenant_id, run_id)
        return view, await session.store.read(run_id)

    view, entries = with_context(workspace, tenant, act)
    story = tell_story(entries)
    body = {**document_of(view), "story": story_document(story), "entries": [_entry(one) for one in entries]}
    body.pop("exit_code")
    give(body, [f"{view.run_id} is {view.state}", "", *story_lines(story)], as_json=as_json)
    return 0


async def _listed(
    session: CommandContext, limit: int, after: int, waiting: bool
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of the tenant's runs, and the number after which the next one begins.

    The number of a run is that of its line in the index, where also stands what has ended.
    """
    from contextos.queries.run_view import run_view

    listed: list[dict[str, Any]] = []
    async for line, ended in newest_runs(session.store, after):
        if waiting and ended:
            continue
        if len(listed) == limit:
            return listed, listed[-1]["number"]
        entries = await session.store.read(line.key)
        view = run_view(session.tenant_id, line.key, entries)
        if waiting and (view.waiting is None or view.waiting["for"] == "engine"):
            continue
        asked = _asked(entries)
        listed.append(
            {
                "number": line.seq,
                "run_id": line.key,
                "state": view.state,
                "status": view.record["status"] if view.record else None,
                "request_id": asked.get("request_id", "(erased)"),
                "intent": asked.get("input", {}).get("intent", "(erased)"),
                "began_at_us": line.at_us,
                "waits_for": view.waiting["for"] if view.waiting else None,
            }
        )
    return listed, None


def _asked(entries: Any) -> dict[str, Any]:
    import orjson

    if not entries or entries[0].body is None:
        return {}
    request: dict[str, Any] = orjson.loads(entries[0].body)["answer"]["request"]
    return request


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
