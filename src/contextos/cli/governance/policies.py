"""`policies`: list, activate and deactivate the policies in force above every pack of a tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, ByOption, ExpectOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    with_read_context,
    with_unchecked_context,
)
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import NotFound

if TYPE_CHECKING:
    from contextos.control.artifact_repository import ActiveArtifacts
    from contextos.errors import Problem

    InForce = tuple[ActiveArtifacts, list[tuple[str, Problem]]]

PolicyArgument = Annotated[
    str, typer.Argument(metavar="REF", help="A published policy bundle, such as `POLICY_X@1.0.0`.")
]
LevelOption = Annotated[str, typer.Option("--level", help="platform or tenant.")]
Policies = tuple[tuple[Any, str], ...]


def policies_list_command(
    workspace: WorkspaceOption = None, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """List the policies in force, and the version of the active set."""

    _print_policies(with_read_context(workspace, tenant, active_set), as_json)
    return 0


def activate_command(
    ref: PolicyArgument,
    expect: ExpectOption,
    by: ByOption,
    key: ActKeyOption = None,
    level: LevelOption = "tenant",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Put a policy in force above every pack.

    It binds every decision from then on, also of runs that wait.
    """
    return _change_policies(lambda before: (*before, (level, ref)), expect, by, key, workspace, tenant, as_json)


def deactivate_command(
    ref: PolicyArgument,
    expect: ExpectOption,
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """End a policy that is in force."""

    def remove(before: Policies) -> Policies:
        if all(active_ref != ref for _, active_ref in before):
            raise NotFound(f"`{ref[:200]}` is not in force; list the policies with `contextos policies list`")
        return tuple(pair for pair in before if pair[1] != ref)

    return _change_policies(remove, expect, by, key, workspace, tenant, as_json)


def _change_policies(
    change: Callable[[Policies], Policies],
    expect: int,
    by: str,
    key: Path | None,
    workspace: Path | None,
    tenant: str,
    as_json: bool,
) -> int:
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> InForce:
        catalog = context.deployment.catalog(context.tenant_id)
        policies = change((await catalog.active()).policies)
        await (
            await context.app.configuration.propose_policies(context.tenant_id, policies, expected=expect, by=actor)
        ).signed()
        return await active_set(context)

    _print_policies(with_unchecked_context(workspace, tenant, operation), as_json)
    return 0


async def active_set(context: CommandContext) -> InForce:
    """Return the active set of the tenant, and the problems of policies in force and pinned packs that cannot match."""
    active = await context.deployment.catalog(context.tenant_id).active()
    return active, await context.app.configuration.of_tenant(context.tenant_id)


def _print_policies(in_force: InForce, as_json: bool) -> None:
    active, unmatched = in_force
    lines = [f"{level:<9} {displayed(ref)}" for level, ref in active.policies] or ["no policy is in force"]
    lines += unmatched_lines(unmatched)
    document = {
        "version": active.version,
        "policies": [{"level": level, "ref": ref} for level, ref in active.policies],
        "unmatched": unmatched_documents(unmatched),
    }
    print_result(document, [*lines, f"version {active.version}"], as_json=as_json)


def unmatched_lines(unmatched: Iterable[tuple[str, Problem]]) -> list[str]:
    """Return a line for each problem: the ref of the pack or policy, the place, the reason and the remedy."""
    return [f"{_consequence(problem)}: {displayed(ref)} {displayed(str(problem))}" for ref, problem in unmatched]


def _consequence(problem: Problem) -> str:
    return "can be passed by" if problem.code in ("beside", "observes_beside") else "cannot match now"


def unmatched_documents(unmatched: Iterable[tuple[str, Problem]]) -> list[dict[str, str]]:
    """Return the problems of `unmatched_lines` as JSON objects."""
    return [{"ref": ref, **asdict(problem)} for ref, problem in unmatched]
