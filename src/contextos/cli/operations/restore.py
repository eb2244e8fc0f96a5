"""`store restored`: record that the store was restored from a backup, or failed over to a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    with_unchecked_context,
)
from contextos.cli.governance.verify import restored_document, restored_line
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import ContextOSError, InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.deployment.restore import RestoreReport


def restored_command(
    by: ByOption,
    key: ActKeyOption = None,
    every: Annotated[bool, typer.Option("--all", help="For every tenant of the directory.")] = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Record that the store was restored or failed over.

    Older runs reconcile an effect before they send it. Open approvals become void, unless the store ends exactly where
    the witness does.
    """
    if every and tenant:
        detail = "--all and --tenant exclude each other"
        raise InvalidInput(Problem("", "conflicting_options", detail, "use one of them"))
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> list[tuple[str, RestoreReport | ContextOSError]]:
        from contextos.deployment.restore import record_restore

        made: list[tuple[str, RestoreReport | ContextOSError]] = []
        for name in context.concerned:
            try:
                publisher = context.app.witness_publisher
                made.append((name, await record_restore(context.deployment, publisher, name, by=actor)))
            except ContextOSError as error:
                if not every:
                    raise
                # A failure for one tenant must not stop the work for the others.
                made.append((name, error))
        return made

    made = with_unchecked_context(workspace, None if every else tenant, operation, ask_witness=False)
    lines = [line for name, one in made for line in _lines(name, one)]
    documents = [_document(name, one) for name, one in made]
    print_result({"tenants": documents} if every else documents[0], lines, as_json=as_json)
    return max((one.exit_code for _, one in made if isinstance(one, ContextOSError)), default=0)


def _lines(tenant_id: str, made: RestoreReport | ContextOSError) -> list[str]:
    name = displayed(tenant_id)
    if isinstance(made, ContextOSError):
        return [f"{name}: refused: {made}"]
    if made.lost_nothing:
        return [f"{name} ends where its witness does: nothing was lost, and open approvals stay valid"]
    lines = [f"{name} begins epoch {made.epoch_id}: approvals requested before it are void"]
    lines += [restored_line(one) for one in made.restored]
    unknown = "entries after the backup cannot be proved: no witness knows this tenant"
    return lines if made.restored else [*lines, unknown]


def _document(tenant_id: str, made: RestoreReport | ContextOSError) -> dict[str, Any]:
    if isinstance(made, ContextOSError):
        return {"tenant_id": tenant_id, "code": made.code, "detail": str(made)}
    told = [restored_document(one) for one in made.restored]
    return {"tenant_id": tenant_id, "epoch": made.epoch_id, "lost_nothing": made.lost_nothing, "restored": told}
