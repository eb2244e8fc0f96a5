"""`pack new`: the first draft of a pack, over the tools of the workspace or over those of an MCP server.

With `--from-mcp` the adapter of the server is drafted beside it, every tool at its strictest. Nothing is active before
a person published both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.adapters.adding import (
    EgressOption,
    EnvOption,
    InternalOption,
    LocalServerOption,
    ReadOption,
    ResourceOption,
    TokenEnvOption,
    draft_lines,
    draft_text,
    mcp_connection,
)
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    usage_error,
    with_authors_context,
    write_new_file,
    write_new_files,
)
from contextos.cli.governance.declarations import workspace_definitions
from contextos.cli.terminal import print_result
from contextos.cli.workspace_search import find_workspace
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.runtime.environment import RunLimits

SESSION_BUDGET: Final = {"max_tool_calls": 200, "wall_clock_ms": 600_000}
"""The budget of a drafted pack for an MCP client, which makes more calls in a session than a request does in a run. If
the deployment allows less, the draft has the lower limit.
"""

SERVE: Final = "contextos mcp serve --agent AGENT --user USER --delegation TOKEN --session NAME"


def new_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pack, for example acme.deploy.")],
    who: Annotated[list[str], typer.Option("--who", metavar="ROLE", help="A role that may use it. Repeatable.")],
    approver: Annotated[
        str, typer.Option("--approver", metavar="ROLE", help="The role that is asked about each write.")
    ] = "approver",
    observe: Annotated[
        bool, typer.Option("--observe", help="The pack stops no call, and records what it would have done.")
    ] = False,
    from_mcp: Annotated[
        str | None,
        typer.Option(
            "--from-mcp", metavar="URL|COMMAND", help="An MCP server; its adapter is drafted beside the pack."
        ),
    ] = None,
    read: ReadOption = [],  # noqa: B006 - typer copies it
    env: EnvOption = [],  # noqa: B006
    token_env: TokenEnvOption = "",
    resource: ResourceOption = [],  # noqa: B006
    egress: EgressOption = [],  # noqa: B006
    local: LocalServerOption = False,
    internal: InternalOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The file. Default: NAME.yaml, with --from-mcp packs/NAME.yaml."),
    ] = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write the short form of a new pack, with all tools of the workspace, or of an MCP server. An agent chooses their
    calls.

    With --from-mcp the adapter of the server is drafted too, as `adapters add mcp` does: the server is started and
    asked for its tools, and no tool is called.
    """
    from contextos.packs.reading import draft_pack
    from contextos.workspace.adapter_files import require_reach

    options = {"--read": read, "--env": env, "--token-env": token_env, "--resource": resource, "--egress": egress}
    used = [option for option, value in {**options, "--local": local, "--internal": internal}.items() if value]
    if used and from_mcp is None:
        detail = f"{used[0]} says something of an MCP server, and none is named"
        raise usage_error(detail, "add --from-mcp, or leave it out")
    tenant_id, limits = _tenant_and_limits(workspace, tenant)
    body: dict[str, Any] = {"name": name, "version": "0.1.0", "tenant": tenant_id, "who": who}
    body |= {"approver": approver, **({"mode": "observe"} if observe else {})}
    if from_mcp is None:
        path, definitions = out or Path(f"{name}.yaml"), workspace_definitions(workspace)
        if not definitions:
            raise _no_tools(find_workspace(workspace))
        write_new_file(path, draft_pack(displayed(str(path)), body, definitions.values()))
        print_result({"file": str(path)}, [f"{displayed(str(path))} is written"], as_json=as_json)
        return 0
    url, command = _url_or_command(from_mcp)
    require_reach(url, egress, local=local)
    connection = mcp_connection(command, env, url, token_env, internal=internal)
    budget = {limit: min(maximum, getattr(limits, limit)) for limit, maximum in SESSION_BUDGET.items()}
    return _draft_pack_and_adapter(
        body | {"budget": budget},
        find_workspace(workspace),
        connection,
        {"reads": read, "resources": resource, "egress": egress, "local": local},
        out,
        as_json=as_json,
    )


def _no_tools(root: Path) -> InvalidInput:
    """Return the error for a workspace without tools. Its remedy names an unpublished draft, or how to make tools."""
    drafts = sorted(file.relative_to(root).as_posix() for file in root.glob("adapters/*.json"))
    remedy = "list functions under `[[adapters]]` in contextos.toml, or draft the tools of a server with `--from-mcp`"
    if drafts:
        remedy = f"review its draft, then `contextos adapters publish {displayed(drafts[0])}`, and run this again"
    return InvalidInput(Problem("", "no_tools", "the workspace has no tools yet, so nothing was written", remedy))


def _draft_pack_and_adapter(
    body: dict[str, Any],
    root: Path,
    connection: Mapping[str, Any],
    choices: Mapping[str, Any],
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Draft the adapter of a server and the pack over its tools, and print the next steps of a person."""
    import asyncio

    from contextos.contracts.encoding.codec import parse
    from contextos.contracts.envelopes.plan import MAX_TEMPLATE_STEPS
    from contextos.contracts.envelopes.tool import AdapterDefinition
    from contextos.packs.building import expand_content
    from contextos.packs.reading import draft_pack
    from contextos.workspace.adapter_files import draft_mcp

    name = str(body["name"])
    adapter_id = re.sub(r"[^A-Za-z0-9_]", "_", name.rpartition(".")[2])
    adapter_file, pack_file = Path("adapters") / f"{adapter_id}.json", Path("packs") / f"{name}.yaml"
    place = out or root / pack_file
    for file in (root / adapter_file, place):
        if file.exists():
            detail, remedy = f"`{displayed(file)}` exists", "name another pack, or remove the file"
            raise InvalidInput(Problem("", "exists", detail, remedy))
    content, rows = asyncio.run(draft_mcp(root, adapter_id, connection, **choices))
    definition = parse(AdapterDefinition, content["definition"])
    text = draft_pack(displayed(str(out or pack_file)), body, [definition])
    # Lint here, so that the draft that a person reviews can be published.
    expand_content(text.encode(), [definition])
    for file in (root / adapter_file, place):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_new_files({root / adapter_file: draft_text(content), place: text})
    files = [displayed(str(file)) for file in (adapter_file, out or pack_file)]
    next_steps = [f"contextos adapters publish {files[0]}", "contextos apply --by PUBLISHER --key FILE", SERVE]
    lines = draft_lines(content, rows)
    if omitted := max(0, len(definition.capabilities) - MAX_TEMPLATE_STEPS):
        lines.append(f"{omitted} tools are not in the pack, which can have {MAX_TEMPLATE_STEPS}; its file lists them")
    lines.append(f"{' and '.join(files)} are drafted, and nothing is active; review both, then:")
    if definition.egress:
        lines.append(
            f"  let `{displayed(body['tenant'])}` reach {', '.join(definition.egress)}: `[egress]` in contextos.toml"
        )
    lines += [f"  {command}" for command in next_steps]
    document = {"file": files[1], "adapter": files[0], "tools": rows, "next": next_steps}
    print_result(document, lines, as_json=as_json)
    return 0


def _url_or_command(server: str) -> tuple[str, list[str]]:
    """Return the URL of a server, or the words of its command as a shell splits them.

    Raises:
        InvalidInput: it is neither.
    """
    if scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", server):
        if scheme[1].lower() not in ("http", "https"):
            detail = f"`--from-mcp` is a URL of `{scheme[1]}`, and an MCP server has one of `https`"
            raise usage_error(detail, "name it with `https://`, or give a command")
        return server, []
    try:
        words = shlex.split(server)
    except ValueError as error:
        detail = f"the command is not one: {str(error).lower()}"
        raise usage_error(detail, "close the quotation marks") from None
    if not words:
        raise usage_error("`--from-mcp` is empty", "name the URL or the command of a server")
    return "", words


def _tenant_and_limits(workspace: Path | None, tenant: str) -> tuple[str, RunLimits]:
    async def operation(context: CommandContext) -> tuple[str, RunLimits]:
        return context.tenant_id, context.deployment.config.limits

    return with_authors_context(workspace, tenant, operation)
