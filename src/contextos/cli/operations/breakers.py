"""`breakers list`: list the circuit breakers, which stop calls to a capability that failed too often."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from contextos.cli.command_context import CommandContext, JsonOption, TenantOption, WorkspaceOption, with_read_context
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed


def breakers_list_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 100,
    after: Annotated[str, typer.Option("--after", metavar="CAPABILITY", help="Continue after this capability.")] = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the tenant's circuit breakers that have ever opened."""

    async def operation(context: CommandContext) -> tuple[int, list[tuple[str, Any]]]:

        from contextos.contracts.documents.operations import BREAKERS

        breakers = await BREAKERS.page(context.store, after=after, limit=limit)
        return context.deployment.ports.clock.now_us(), [(row.key, asdict(row.body)) for row in breakers]

    now_us, breakers = with_read_context(workspace, tenant, operation)
    lines: list[str] = [Heading(f"{'state':<9}  {'failures':>8}  {'retry in s':>10}  {'process':<16}  capability")]
    for name, state in breakers:
        left_s = max(0, state["retry_at_us"] - now_us) / 1e6
        retry_in = f"{left_s:.0f}" if state["state"] != "closed" else "-"
        lines.append(
            f"{state['state']:<9}  {state['failures']:>8}  {retry_in:>10}  {state['process']:<16}  {displayed(name)}"
        )
    body = {
        "breakers": [{"capability_id": name, **state} for name, state in breakers],
        "next_after": breakers[-1][0] if len(breakers) == limit else None,
    }
    print_result(body, lines if breakers else ["no circuit breaker has ever opened"], as_json=as_json)
    return 0
