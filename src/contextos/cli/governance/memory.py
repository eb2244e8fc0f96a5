"""`memory list` and `memory review`: list the memories that runs propose, and record a person's decision on them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    usage_error,
    with_context,
    with_read_context,
)
from contextos.cli.terminal import REFUSED, print_result
from contextos.contracts.encoding.display_escape import displayed, displayed_json


def memory_list_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 20,
    after: Annotated[str, typer.Option("--after", metavar="ID", help="Continue after this proposal.")] = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the memories that are proposed and wait for a review."""

    async def operation(context: CommandContext) -> Any:
        from contextos.intelligence.memory import list_candidates

        return await list_candidates(context.store, after=after, limit=limit)

    waiting = with_read_context(workspace, tenant, operation)
    lines = []
    for proposal in waiting:
        fact = proposal.candidate
        text = f"{displayed(fact.entity_ceid)} {displayed(fact.predicate)} {displayed_json(fact.value)}"
        lines.append(f"{proposal.proposal_id}  {text}")
        checks = f"consent {proposal.consent_check}, {proposal.contradiction_check.verdict}"
        lines.append(f"{'':<20}  from {proposal.run_id}, {proposal.tier_target}, {checks}")
    body = {
        "proposals": [proposal.to_json() for proposal in waiting],
        "next_after": waiting[-1].proposal_id if len(waiting) == limit else None,
    }
    print_result(body, lines or ["nothing waits for a review"], as_json=as_json)
    return 0


def memory_review_command(
    proposal: Annotated[str, typer.Argument(metavar="ID", help="The proposal's id.")],
    by: ByOption,
    key: ActKeyOption = None,
    promote: Annotated[bool, typer.Option("--promote", help="Let runs recall it.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Do not propose it again.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="The reason for the review.")] = "",
    trusted: Annotated[bool, typer.Option("--trusted", help="The reviewer checked that it is true.")] = False,
    supersede: Annotated[
        bool, typer.Option("--supersede", help="Replace a promoted memory that contradicts it.")
    ] = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Promote or reject one proposed memory.

    The reviewer is neither the requester of the run, nor its agent or the agent's owner.
    """
    if promote == reject:
        raise usage_error("review needs --promote or --reject", "pass exactly one of the two")
    verdict: Literal["promote", "reject"] = "promote" if promote else "reject"

    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> Any:
        from contextos.deployment.acts.memories import review_memory

        return await review_memory(
            context.deployment,
            context.tenant_id,
            proposal,
            verdict,
            by=actor,
            reason=reason,
            integrity="trusted" if trusted else "untrusted",
            supersede=supersede,
        )

    outcome = with_context(workspace, tenant, operation)
    if isinstance(outcome, dict):
        line = f"{proposal} {'promoted' if promote else 'rejected'} by {displayed(by)}"
        print_result(outcome, [line], as_json=as_json)
        return 0
    line = f"refused: {outcome.reason}: {displayed(outcome.detail)}"
    print_result({"refused": outcome.to_json()}, [line], as_json=as_json)
    return REFUSED
