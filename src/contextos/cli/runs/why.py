"""`why`: why a run did what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    with_read_context,
)
from contextos.cli.layout import folded
from contextos.cli.runs.faults import exit_code_of_faults, fault_lines
from contextos.cli.terminal import print_result

if TYPE_CHECKING:
    from contextos.deployment.why.explaining import RunReason


def why_command(
    run: RunArgument,
    tool: Annotated[str | None, typer.Option("--tool", help="Only what is about this tool, or the whole run.")] = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Say why a run did what it did.

    Why tools were shown or hidden, why a person was asked, which facts decided, and who authorised. Each sentence
    names the journal entry that it rests on. What does not verify is said first, and the exit code is 3.
    """
    from contextos.deployment.queries.checked_run import read_checked
    from contextos.deployment.queries.run_names import no_such_run
    from contextos.deployment.why.checked_reasons import checked_reasons
    from contextos.deployment.why.explaining import reasons_document

    async def operation(context: CommandContext) -> tuple[str, tuple[RunReason, ...], str | None]:
        checked = await read_checked(context.store, context.tenant_id, context.app.keys, await context.run_id(run))
        if not (checked.entries or checked.fault):
            raise await no_such_run(context.store, checked.run_id)
        reasons, fault = await checked_reasons(checked, context.deployment.catalog(context.tenant_id), tool)
        return checked.run_id, reasons, fault

    run_id, reasons, fault = with_read_context(workspace, tenant, operation)
    lines = fault_lines(fault)
    for reason in reasons:
        lines += folded(f"{f'#{reason.entry}':>5}  ", f"{reason.text} ({reason.kind})")
    document = {"run_id": run_id, "fault": fault, "reasons": reasons_document(reasons)}
    print_result(document, lines or ["the run has no reasons yet"], as_json=as_json)
    return exit_code_of_faults([fault])
