"""`adapters publish`, `list` and `release`: make a reviewed file active, show what each server lists now, and end a
quarantine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    with_context,
    with_read_context,
)
from contextos.cli.terminal import Heading, print_result
from contextos.cli.workspace_search import find_workspace
from contextos.contracts.encoding.display_escape import displayed


def publish_adapter_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An adapter file of the workspace.")],
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check an adapter file and write its digest to `contextos.toml`.

    A deployment that is opened afterwards has the adapter.
    """
    from contextos.workspace.adapter_files import publish_adapter_file

    published = publish_adapter_file(find_workspace(workspace), file)
    line = f"{displayed(published['path'])} is published with the digest {published['digest']}"
    print_result(published, [line], as_json=as_json)
    return 0


def list_adapters_command(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> int:
    """List the adapters: what they reach, their tools, how calls authenticate, whether definitions still match, and
    quarantines.

    Each server is started or asked, except one that answers a user only (`not asked`). The exit code is 1 if a
    definition changed or a tool is in quarantine.
    """
    import asyncio

    from contextos.workspace.adapter_files import list_adapters

    adapters, quarantined = asyncio.run(list_adapters(find_workspace(workspace))), _quarantined_tools(workspace)
    for adapter in adapters:
        adapter["quarantined"] = quarantined.get(adapter["adapter_id"], [])
    lines: list[str] = [Heading(f"{'adapter':<20}  {'kind':<8}  {'definition':<12}  tools")]
    for adapter in adapters:
        name, tools = displayed(adapter["adapter_id"]), ", ".join(adapter["tools"])
        lines.append(f"{name:<20}  {adapter['kind']:<8}  {adapter['state']:<12}  {tools}")
        if adapter["egress"]:
            lines.append(f"{'':<20}  reaches {', '.join(adapter['egress'])}")
        modes = {tool: " for ".join(auth.values()) for tool, auth in adapter["auth"].items()}
        for mode in sorted(set(modes.values())):
            same = ", ".join(tool for tool in modes if modes[tool] == mode)
            suffix = "" if len(set(modes.values())) == 1 else f": {same}"
            lines.append(f"{'':<20}  auth {displayed(mode)}{suffix}")
        lines += [
            f"{'':<20}  {tool} is called on a list of tools that is up to {age_s} s old"
            for tool, age_s in adapter["definition_max_age_s"].items()
        ]
        lines += [f"{'':<20}  {tool} changed; nothing is sent to it" for tool in adapter["drifted"]]
        lines += [
            f"{'':<20}  {row['tool']} is in quarantine for {displayed(row['tenant'])}, {displayed(row['run_id'])}"
            for row in adapter["quarantined"]
        ]
    if not adapters:
        lines = ["the workspace has no adapters"]
    print_result({"adapters": adapters}, lines, as_json=as_json)
    return 1 if any(adapter["drifted"] or adapter["quarantined"] for adapter in adapters) else 0


def release_command(
    capability: Annotated[
        str, typer.Argument(metavar="CAPABILITY", help="The id of the tool, such as `desk.look_up`.")
    ],
    by: ByOption,
    reason: Annotated[str, typer.Option("--reason", help="What you found; it is recorded and signed.")],
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """End the quarantine of a tool whose definition was found changed.

    The definition is compared as before.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> int:
        from contextos.deployment.acts.quarantines import release_capability

        return len(await release_capability(context.deployment, context.tenant_id, capability, reason=reason, by=actor))

    released = with_context(workspace, tenant, operation)
    incidents = f"{released} incident{'s' if released > 1 else ''}"
    line = f"{displayed(capability)} is no longer in quarantine ({incidents})"
    print_result({"capability_id": capability, "incidents": released}, [line], as_json=as_json)
    return 0


def _quarantined_tools(workspace: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Return the tools in quarantine by adapter id, each with its tenant, the run that found the change, and the time.
    Empty before the store is made.
    """
    from contextos.workspace.build import has_store
    from contextos.workspace.settings import Settings

    async def operation(context: CommandContext) -> dict[str, list[dict[str, Any]]]:
        from contextos.deployment.acts.quarantines import quarantined_capabilities

        quarantined: dict[str, list[dict[str, Any]]] = {}
        for tenant_id in context.app.tenants():
            for adapter_id, adapter in context.deployment.ports.adapters(tenant_id).items():
                tools = await quarantined_capabilities(context.deployment, tenant_id, adapter)
                quarantined.setdefault(adapter_id, []).extend(
                    {"tenant": tenant_id, "tool": tool, "run_id": incident.run_id, "at_us": incident.at_us}
                    for tool, incident in tools.items()
                )
        return quarantined

    if not has_store(Settings.read(find_workspace(workspace))):
        return {}
    return with_read_context(workspace, None, operation, ask_witness=False)
