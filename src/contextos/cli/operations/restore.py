"""`restored`: record that the store was restored from a backup."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from contextos.cli.command_context import (
    WORKSPACE,
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    with_read_context,
)
from contextos.cli.governance.audit import restored_document, restored_line
from contextos.cli.terminal import print_result


def restored_command(
    by: Annotated[str, typer.Option(metavar="WHO", help="Id of the operator; recorded in the control ledger.")],
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Record that the store was restored from a backup.

    Approvals that were open become void, and older runs reconcile an effect before they send it.
    """

    async def operation(context: CommandContext) -> Any:
        from contextos.operations.restore import record_restore

        return await record_restore(context.deployment, context.app.witness_publisher, context.tenant_id, by=by)

    epoch = with_read_context(workspace, tenant, operation)
    lines = [f"{epoch.tenant_id} begins epoch {epoch.epoch_id}: approvals requested before it are void"]
    lines += [restored_line(one) for one in epoch.restored]
    lines += [] if epoch.restored else ["entries after the backup cannot be proved: no witness knows this tenant"]
    told = [restored_document(one) for one in epoch.restored]
    print_result({"tenant_id": epoch.tenant_id, "epoch": epoch.epoch_id, "restored": told}, lines, as_json=as_json)
    return 0
