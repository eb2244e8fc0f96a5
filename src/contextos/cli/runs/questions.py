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
        holders = (await context.deployment.ports.directory.held_roles(context.tenant_id)).approvers if role else ()
        return page, [_nobody_holds(role, holders)] if role and role not in holders else []

    page, notes = with_read_context(workspace, tenant, operation)
    lines: list[str] = [Heading(f"{'run':<20}  {'asks':<16}  {'until':<20}  call")]
    for question in page.items:
        args = displayed_json({arg.name: arg.value for arg in question.args}, None)
        until = moment(question.deadline_us)
        call = f"{until:<20}  {displayed(question.capability_id)}"
        lines += [f"{question.run_id:<20}  {displayed(question.required_role):<16}  {call}", *folded("  ", args)]
        if question.void:
            remedy = f"have it asked again: contextos approvals reask {question.run_id}"
            lines += folded("  ", f"void: {question.void}; {remedy}")
    for run in page.unverified:
        lines += [run.run_id, *fault_lines(run.fault)]
    if not page.items and not page.unverified:
        lines = ["nobody is asked anything" if page.cursor is None else "nobody is asked anything by these runs"]
    lines += notes
    if page.cursor is not None:
        only = f" --role {displayed(role)}" if role else ""
        lines.append(f"more: contextos approvals list{only} --cursor {page.cursor}")
    document = {
        "questions": [_document(question) for question in page.items],
        "unverified": [{"run_id": run.run_id, "fault": displayed(run.fault)} for run in page.unverified],
        "cursor": page.cursor,
    }
    print_result(document, lines, as_json=as_json)
    return exit_code_of_faults(run.fault for run in page.unverified)


def _nobody_holds(role: str, holders: Collection[str]) -> str:
    from contextos.contracts.facts import name_remedy

    remedy = name_remedy(role, sorted(holders)) if holders else "give somebody the role"
    return f"no approver holds the role `{displayed(role)}`; {remedy}"


def _document(question: Question) -> dict[str, Any]:
    return {
        "run_id": question.run_id,
        "gate_id": question.gate_id,
        "required_role": question.required_role,
        "deadline_us": question.deadline_us,
        "binding_digest": question.binding_digest,
        "capability_id": question.capability_id,
        "mode": question.mode,
        "args": {arg.name: arg.value for arg in question.args},
        "requester": list(question.requester),
        "untrusted": {arg.name: arg.value for arg in question.untrusted},
        "secrets": {arg.name: arg.value for arg in question.secrets},
        "void": question.void,
    }
