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

        outcomes: list[tuple[str, RestoreReport | ContextOSError]] = []
        for name in context.concerned:
            try:
                publisher = context.app.witness_publisher
                outcomes.append((name, await record_restore(context.deployment, publisher, name, by=actor)))
            except ContextOSError as error:
                if not every:
                    raise
                # A failure for one tenant must not stop the work for the others.
                outcomes.append((name, error))
        return outcomes

    outcomes = with_unchecked_context(workspace, None if every else tenant, operation, ask_witness=False)
    lines = [line for name, outcome in outcomes for line in _lines(name, outcome)]
    documents = [_document(name, outcome) for name, outcome in outcomes]
    print_result({"tenants": documents} if every else documents[0], lines, as_json=as_json)
    return max((outcome.exit_code for _, outcome in outcomes if isinstance(outcome, ContextOSError)), default=0)


def _lines(tenant_id: str, outcome: RestoreReport | ContextOSError) -> list[str]:
    name = displayed(tenant_id)
    if isinstance(outcome, ContextOSError):
        return [f"{name}: refused: {outcome}"]
    if outcome.lost_nothing:
        return [f"{name} ends where its witness does: nothing was lost, and open approvals stay valid"]
    lines = [f"{name} begins epoch {outcome.epoch_id}: approvals requested before it are void"]
    lines += [restored_line(restoration) for restoration in outcome.restored]
    unknown = "entries after the backup cannot be proved: no witness knows this tenant"
    return lines if outcome.restored else [*lines, unknown]


def _document(tenant_id: str, outcome: RestoreReport | ContextOSError) -> dict[str, Any]:
    if isinstance(outcome, ContextOSError):
        return {"tenant_id": tenant_id, "code": outcome.code, "detail": str(outcome)}
    restored = [restored_document(restoration) for restoration in outcome.restored]
    report = {"epoch": outcome.epoch_id, "lost_nothing": outcome.lost_nothing, "restored": restored}
    return {"tenant_id": tenant_id} | report
