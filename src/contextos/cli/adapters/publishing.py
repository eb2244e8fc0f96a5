"""`adapters publish` and `adapters list`: make a reviewed file active, and show what each server lists now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contextos.cli.command_context import JsonOption, WorkspaceOption, about
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
    from contextos.app.adapter_files import publish_adapter_file

    with about(file):
        published = publish_adapter_file(find_workspace(workspace), file)
    line = f"{displayed(published['path'])} is published with the digest {published['digest']}"
    print_result(published, [line], as_json=as_json)
    return 0


def list_adapters_command(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> int:
    """List the adapters: what they reach, their tools, how calls authenticate, and whether definitions still match.

    Each server is started or asked, except one that answers a user only (`not asked`). The exit code is 1 if a
    definition changed.
    """
    import asyncio

    from contextos.app.adapter_files import list_adapters

    found = asyncio.run(list_adapters(find_workspace(workspace)))
    lines: list[str] = [Heading(f"{'adapter':<20}  {'kind':<8}  {'definition':<12}  tools")]
    for one in found:
        name, tools = displayed(one["adapter_id"]), ", ".join(one["tools"])
        lines.append(f"{name:<20}  {one['kind']:<8}  {one['state']:<12}  {tools}")
        if one["egress"]:
            lines.append(f"{'':<20}  reaches {', '.join(one['egress'])}")
        modes = {tool: " for ".join(auth.values()) for tool, auth in one["auth"].items()}
        for mode in sorted(set(modes.values())):
            alike = ", ".join(tool for tool in modes if modes[tool] == mode)
            which = "" if len(set(modes.values())) == 1 else f": {alike}"
            lines.append(f"{'':<20}  auth {displayed(mode)}{which}")
        lines += [f"{'':<20}  {tool} changed; nothing is sent to it" for tool in one["drifted"]]
    if not found:
        lines = ["the workspace has no adapters"]
    print_result({"adapters": found}, lines, as_json=as_json)
    return 1 if any(one["drifted"] for one in found) else 0
