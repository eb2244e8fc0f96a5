"""`breakers list`: list the circuit breakers, which stop calls to a capability that failed too often."""

from __future__ import annotations

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
        from dataclasses import asdict

        from contextos.contracts.documents.operations import BREAKERS

        found = await BREAKERS.page(context.store, after=after, limit=limit)
        return context.deployment.ports.clock.now_us(), [(one.key, asdict(one.body)) for one in found]

    now_us, found = with_read_context(workspace, tenant, operation)
    lines: list[str] = [Heading(f"{'state':<9}  {'failures':>8}  {'retry in s':>10}  {'process':<16}  capability")]
    for name, told in found:
        left_s = max(0, told["retry_at_us"] - now_us) / 1e6
        again = f"{left_s:.0f}" if told["state"] != "closed" else "-"
        lines.append(
            f"{told['state']:<9}  {told['failures']:>8}  {again:>10}  {told['process']:<16}  {displayed(name)}"
        )
    body = {
        "breakers": [{"capability_id": name, **told} for name, told in found],
        "next_after": found[-1][0] if len(found) == limit else None,
    }
    print_result(body, lines if found else ["no circuit breaker has ever opened"], as_json=as_json)
    return 0
