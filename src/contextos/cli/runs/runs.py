"""`runs list` and `runs show`: list a tenant's runs, and show the story of one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    document_of,
    with_read_context,
)
from contextos.cli.runs.faults import exit_code_of_faults, fault_lines
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.contracts.envelopes.record import DecisionOutput
    from contextos.contracts.journal import Entry
    from contextos.deployment.queries.checked_run import CheckedRun
    from contextos.deployment.queries.decisions import DecisionView
    from contextos.deployment.queries.timeline import Story
    from contextos.service.pages import Page
    from contextos.service.runs import Run


_BLOCKED: Final = "waits for an operation of {}, and goes on when that is settled"


def runs_list_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 20,
    after: Annotated[str, typer.Option("--after", metavar="PLACE", help="Continue after this place of the list.")] = "",
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only runs that wait for a person or for another run's operation.")
    ] = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the tenant's runs, newest first.

    A run that does not verify is marked, and the exit code is 3. The whole journal is checked by `verify`.
    """

    async def operation(context: CommandContext) -> Page[Run]:
        return await context.app.runs.list(context.tenant_id, waiting=waiting, limit=limit, cursor=after)

    page = with_read_context(workspace, tenant, operation)
    runs = [_row(listed_run) for listed_run in page.items]
    lines: list[str] = [Heading(f"{'run':<20}  {'state':<9}  {'record':<9}  request, intent")]
    for row in runs:
        lines.append(
            f"{row['run_id']:<20}  {row['state']:<9}  {row['status'] or '-':<9}  "
            f"{displayed(row['request_id'])}, {displayed(row['intent'])}"
        )
        if row["blocked_by"]:
            lines.append(f"  {_BLOCKED.format(row['blocked_by'])}")
        lines += fault_lines(row["fault"])
    if page.cursor is not None:
        lines.append(f"more: contextos runs list{' --waiting' if waiting else ''} --after {page.cursor}")
    document = {"runs": runs, "next_after": page.cursor}
    print_result(document, lines if runs else ["there are no runs"], as_json=as_json)
    return exit_code_of_faults(listed_run.fault for listed_run in page.items)


def _row(run: Run) -> dict[str, Any]:
    """Return the fields of a run in a list. A missing part of the request was erased, or the run was altered."""
    missing = "(unreadable)" if run.fault else "(erased)"
    return {
        "run_id": run.run_id,
        "state": run.state,
        "status": run.status,
        "request_id": run.request_id or missing,
        "intent": run.intent or missing,
        "began_at_us": run.began_at_us,
        "waits_for": run.waits_for,
        "blocked_by": run.blocked_by,
        "fault": run.fault,
    }


def runs_show_command(
    run: RunArgument, workspace: WorkspaceOption = None, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """Show the story of one run from its journal.

    What does not verify is said first, and the exit code is 3.
    """
    from contextos.cli.runs.escalations import decision_document, decision_line
    from contextos.cli.runs.requests import outcome_lines
    from contextos.cli.runs.story import story_lines
    from contextos.deployment.queries.checked_run import read_checked
    from contextos.deployment.queries.decisions import checked_decision
    from contextos.deployment.queries.rationales import checked_story
    from contextos.deployment.queries.run_names import no_such_run
    from contextos.deployment.queries.run_now import run_budget
    from contextos.deployment.queries.run_view import blocked_by
    from contextos.deployment.queries.timeline import story_document

    async def operation(context: CommandContext) -> tuple[CheckedRun, Story, DecisionView, str | None, str | None]:
        checked = await read_checked(context.store, context.tenant_id, context.app.keys, await context.run_id(run))
        if not (checked.entries or checked.fault):
            raise await no_such_run(context.store, checked.run_id)
        blocking = await blocked_by(context.store, checked.view())
        story, untold = await checked_story(checked, context.deployment.catalog(context.tenant_id))
        decision, fault = await checked_decision(context.store, checked, context.app.keys)
        return checked, story, decision, fault or untold, blocking

    checked, story, decision, fault, blocking = with_read_context(workspace, tenant, operation)
    no_lines: list[str] = []
    view = checked.view()
    entries = [_entry_document(entry, checked) for entry in checked.entries]
    body = {**document_of(view), "decision": decision_document(decision), "fault": fault, "blocked_by": blocking}
    body |= {"run_budget": checked.told(lambda: run_budget(checked.entries), None)}
    body |= {"story": story_document(story), "entries": entries}
    body.pop("exit_code")
    notes = [_BLOCKED.format(blocking)] if blocking else [decision_line(decision)] if decision.by else []
    lines = [*fault_lines(fault), f"{view.run_id} is {view.state}", *notes, "", *story_lines(story)]
    if not view.ended:
        lines += ["", *checked.told(lambda: outcome_lines(view), no_lines)]
    print_result(body, lines, as_json=as_json)
    return exit_code_of_faults([fault])


def _entry_document(entry: Entry, run: CheckedRun) -> dict[str, Any]:
    import orjson

    body = None if entry.body is None else run.told(partial(orjson.loads, entry.body), None)
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "key": entry.key,
        "at_us": entry.at_us,
        "by": entry.by,
        "hash": entry.hash,
        "body": body,
    }


def runs_decision_command(
    run: RunArgument, workspace: WorkspaceOption = None, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """Show the decision of an ended run: its outcome, and the evidence and rules that it rests on."""

    async def operation(context: CommandContext) -> DecisionOutput:
        from contextos.deployment.queries.checked_run import read_checked
        from contextos.deployment.queries.decisions import decision_output

        checked = await read_checked(context.store, context.tenant_id, context.app.keys, await context.run_id(run))
        return await decision_output(checked, context.deployment.catalog(context.tenant_id))

    output = with_read_context(workspace, tenant, operation)
    lines = [f"{output.decision_id}: {output.outcome}", *(f"  {displayed(ref)}" for ref in output.evidence_refs)]
    print_result(output.to_json(), lines, as_json=as_json)
    return 0
