"""`approvals list`: the questions that wait for people."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import CommandContext, JsonOption, TenantOption, WorkspaceOption, with_read_context
from contextos.cli.layout import folded, moment
from contextos.cli.runs.faults import exit_code_of_faults, fault_lines
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed, displayed_json

if TYPE_CHECKING:
    from contextos.service.approvals import Question
    from contextos.service.pages import Page


def approvals_list_command(
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="Only questions to this role.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 20,
    cursor: Annotated[str, typer.Option("--cursor", metavar="TEXT", help="Continue here; the list ends with it.")] = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the questions that wait for people, newest first.

    One call reads at most 1,000 runs. A run that does not verify is marked, and the exit code is 3: nobody should
    answer it. A question to which no approval would count any more says what changed.
    """

    async def operation(context: CommandContext) -> tuple[Page[Question], list[str]]:
        questions = context.app.approvals
        page = await questions.waiting(context.tenant_id, role=role or None, limit=limit, cursor=cursor)
        held = (await context.deployment.ports.directory.held_roles(context.tenant_id)).approvers if role else ()
        return page, [_nobody_holds(role, held)] if role and role not in held else []

    page, notes = with_read_context(workspace, tenant, operation)
    lines: list[str] = [Heading(f"{'run':<20}  {'asks':<16}  {'until':<20}  call")]
    for one in page.items:
        args = displayed_json({each.name: each.value for each in one.args}, None)
        until = moment(one.deadline_us)
        start = f"{one.run_id:<20}  {displayed(one.required_role):<16}  {until:<20}  {displayed(one.capability_id)}"
        lines += [start, *folded("  ", args)]
        if one.void:
            lines += folded("  ", f"void: {one.void}; have it asked again: contextos approvals reask {one.run_id}")
    for altered in page.unverified:
        lines += [altered.run_id, *fault_lines(altered.fault)]
    if not page.items and not page.unverified:
        lines = ["nobody is asked anything" if page.cursor is None else "nobody is asked anything by these runs"]
    lines += notes
    if page.cursor is not None:
        only = f" --role {displayed(role)}" if role else ""
        lines.append(f"more: contextos approvals list{only} --cursor {page.cursor}")
    document = {
        "questions": [_document(one) for one in page.items],
        "unverified": [{"run_id": one.run_id, "fault": displayed(one.fault)} for one in page.unverified],
        "cursor": page.cursor,
    }
    print_result(document, lines, as_json=as_json)
    return exit_code_of_faults(one.fault for one in page.unverified)


def _nobody_holds(role: str, held: Collection[str]) -> str:
    from contextos.contracts.facts import name_remedy

    remedy = name_remedy(role, sorted(held)) if held else "give somebody the role"
    return f"no approver holds the role `{displayed(role)}`; {remedy}"


def _document(one: Question) -> dict[str, Any]:
    return {
        "run_id": one.run_id,
        "gate_id": one.gate_id,
        "required_role": one.required_role,
        "deadline_us": one.deadline_us,
        "binding_digest": one.binding_digest,
        "capability_id": one.capability_id,
        "mode": one.mode,
        "args": {each.name: each.value for each in one.args},
        "requester": list(one.requester),
        "untrusted": {each.name: each.value for each in one.untrusted},
        "secrets": {each.name: each.value for each in one.secrets},
        "void": one.void,
    }
