"""`runs resolve`, `runs reopen` and `runs close`: acts of a person on the decision of a run that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, ByOption, ReasonOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    exit_code_of,
    usage_error,
    with_context,
)
from contextos.cli.runs.requests import act_and_drive
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.deployment.queries.decisions import DecisionView


def resolve_command(
    run: RunArgument,
    by: ByOption,
    reason: ReasonOption,
    decided: Annotated[bool, typer.Option("--decided", help="What the run was asked for was done.")] = False,
    rejected: Annotated[bool, typer.Option("--rejected", help="It was not done.")] = False,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Record what a person decided about an escalated run.

    The run and its record do not change. Only an operator can, and not for their own request.
    """
    if decided == rejected:
        detail = "resolve needs --decided or --rejected"
        raise usage_error(detail, "pass exactly one of the two")
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> Any:
        from contextos.deployment.acts.ended_runs import resolve_escalation

        run_id = await context.run_id(run)
        status: Any = "DECIDED" if decided else "REJECTED"
        await resolve_escalation(context.deployment, context.tenant_id, run_id, status, by=actor, reason=reason)
        return await _read_decision(context, run_id)

    return _print_decision(*with_context(workspace, tenant, operation), as_json=as_json)


def close_command(
    run: RunArgument,
    by: ByOption,
    reason: ReasonOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Record that nothing more follows from an ended run.

    It is neither resolved nor reopened any more. Only an operator can, and not for their own request.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> Any:
        from contextos.deployment.acts.ended_runs import close_decision

        run_id = await context.run_id(run)
        await close_decision(context.deployment, context.tenant_id, run_id, by=actor, reason=reason)
        return await _read_decision(context, run_id)

    return _print_decision(*with_context(workspace, tenant, operation), as_json=as_json)


def reopen_command(
    run: RunArgument,
    by: ByOption,
    reason: ReasonOption,
    to: Annotated[
        float | None, typer.Option("--to", metavar="VALUE", help="The new value of the limit that the run exhausted.")
    ] = None,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Let an escalated run go on from its journal.

    The run is then driven on. What was sent is not sent again, and approvals are asked anew. Only an operator can, and
    not for their own request.
    """
    from contextos.deployment.acts.ended_runs import reopen_run

    actor = named_actor(by, key)

    async def act(context: CommandContext, run_id: str) -> None:
        await reopen_run(context.deployment, context.tenant_id, run_id, by=actor, reason=reason, to=to)

    return exit_code_of(act_and_drive(run, act, workspace, tenant, as_json=as_json))


async def _read_decision(context: CommandContext, run_id: str) -> tuple[str, DecisionView]:
    from contextos.deployment.queries.decisions import decision_of

    view = await context.deployment.view(context.tenant_id, run_id)
    return run_id, await decision_of(context.store, view, context.app.keys)


def _print_decision(run_id: str, decision: DecisionView, *, as_json: bool) -> int:
    document = {"run_id": run_id, "decision": decision_document(decision)}
    print_result(document, [f"{run_id}: {decision_line(decision)}"], as_json=as_json)
    return 0


def decision_document(decision: DecisionView) -> dict[str, str | None]:
    """Return the status of a decision, with its author and reason, as a JSON object."""
    return {"status": decision.status, "by": decision.by, "reason": decision.reason}


def decision_line(decision: DecisionView) -> str:
    """Return the status of a decision as one line, with the person who resolved or closed it."""
    if decision.by is None:
        return f"the decision is {decision.status or 'erased'}"
    return f"the decision is {decision.status} by {displayed(decision.by)}: {displayed(decision.reason or '')}"
