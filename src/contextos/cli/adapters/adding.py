"""`adapters add`: draft the file of an adapter from a description of its tools, each tool at its strictest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from contextos.cli.command_context import JsonOption, WorkspaceOption, about, write_new_file
from contextos.cli.terminal import Heading, print_result
from contextos.cli.workspace_search import find_workspace
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The id of the adapter: letters, digits and `_`.")]
ReadOption = Annotated[
    list[str], typer.Option("--read", metavar="TOOL", help="State that this tool only reads. Repeatable.")
]
EgressOption = Annotated[
    list[str], typer.Option("--egress", metavar="HOST:PORT", help="An endpoint that it reaches. Repeatable.")
]
EnvOption = Annotated[
    list[str], typer.Option("--env", metavar="NAME", help="A variable that the command gets. Repeatable.")
]
TokenEnvOption = Annotated[
    str, typer.Option("--token-env", metavar="NAME", help="The variable with the bearer token of the URL.")
]
ResourceOption = Annotated[
    list[str], typer.Option("--resource", metavar="URI", help="A resource to offer. Repeatable.")
]
LocalServerOption = Annotated[bool, typer.Option("--local", help="State that it reaches nothing outside.")]
InternalOption = Annotated[
    bool, typer.Option("--internal", help="State that the URL is at a loopback or private address.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The file to write. Default: adapters/NAME.json.")
]


def add_mcp_command(
    name: NameArgument,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The server's command, after `--`.")
    ] = None,
    url: Annotated[str, typer.Option("--url", help="The URL of the server, instead of a command.")] = "",
    env: EnvOption = [],  # noqa: B006 - typer copies it
    token_env: TokenEnvOption = "",
    read: ReadOption = [],  # noqa: B006
    resource: ResourceOption = [],  # noqa: B006
    egress: EgressOption = [],  # noqa: B006
    local: LocalServerOption = False,
    internal: InternalOption = False,
    only: Annotated[list[str], typer.Option("--only", metavar="TOOL", help="Draft this tool only. Repeatable.")] = [],  # noqa: B006
    out: OutOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Draft the adapter of an MCP server.

    The server is started and asked for its tools; no tool is called.
    """
    import asyncio

    from contextos.workspace.adapter_files import draft_mcp

    root = find_workspace(workspace)
    if assignment := next((variable for variable in env if "=" in variable), None):
        name_alone = displayed(assignment.partition("=")[0])
        detail = f"`--env` names a variable, and `{name_alone}=…` has its value too"
        raise InvalidInput(Problem("/env", "value", detail, f"set it in your shell, and write `--env {name_alone}`"))
    connection = mcp_connection(command or (), env, url, token_env, internal=internal)
    drafting = draft_mcp(root, name, connection, reads=read, resources=resource, egress=egress, local=local, only=only)
    draft = asyncio.run(drafting)
    return write_draft(root, out or Path("adapters") / f"{name}.json", *draft, as_json=as_json)


def mcp_connection(
    command: Sequence[str], env: Sequence[str], url: str, token_env: str, *, internal: bool
) -> dict[str, Any]:
    """Return the `connection` of an adapter file for an MCP server."""
    connection: dict[str, Any] = {"kind": "mcp", "command": list(command), "env": list(env), "url": url}
    if internal:
        connection["internal"] = True
    if token_env:
        connection["token_env"] = token_env
    return connection


def add_openapi_command(
    name: NameArgument,
    document: Annotated[Path, typer.Argument(metavar="DOCUMENT", help="The OpenAPI 3.0 or 3.1 document.")],
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="The server. Default: the first of the document.")
    ] = "",
    internal: Annotated[
        bool, typer.Option("--internal", help="State that the server is on this machine or a private network.")
    ] = False,
    only: Annotated[
        list[str], typer.Option("--only", metavar="OPERATION", help="Draft this operation only. Repeatable.")
    ] = [],  # noqa: B006
    read: ReadOption = [],  # noqa: B006
    bearer_env: Annotated[
        str, typer.Option("--bearer-env", metavar="NAME", help="The variable with a bearer token for every call.")
    ] = "",
    out: OutOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Draft the adapter of an HTTP API from its OpenAPI document.

    Nothing is sent. An operation is named by its `operationId`, or as `get /path`.
    """
    from contextos.workspace.openapi_files import draft_openapi_file

    root = find_workspace(workspace)
    with about(document):
        draft = draft_openapi_file(
            name, document, server=server, internal=internal, only=only, reads=read, bearer_env=bearer_env
        )
    return write_draft(root, out or Path("adapters") / f"{name}.json", *draft, as_json=as_json)


def add_a2a_command(
    name: NameArgument,
    url: Annotated[str, typer.Option("--url", help="The URL of the agent, or of its card (`.json`).")],
    read: Annotated[
        list[str], typer.Option("--read", metavar="SKILL", help="State that this skill only reads. Repeatable.")
    ] = [],  # noqa: B006
    token_env: Annotated[
        str, typer.Option("--token-env", metavar="NAME", help="The variable with the bearer token of the agent.")
    ] = "",
    internal: Annotated[
        bool, typer.Option("--internal", help="State that the agent is at a loopback or private address.")
    ] = False,
    out: OutOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Draft the adapter of an A2A agent from its card.

    The agent is asked for its card; no message is sent.
    """
    import asyncio

    from contextos.workspace.adapter_files import draft_a2a

    root = find_workspace(workspace)
    draft = asyncio.run(draft_a2a(name, url, internal=internal, token_env=token_env, reads=read))
    return write_draft(root, out or Path("adapters") / f"{name}.json", *draft, as_json=as_json)


def _reach_lines(connection: Mapping[str, Any]) -> list[str]:
    """Return the line that says where calls go and which variables of the environment are sent with them."""
    target = connection.get("server") or connection.get("url") or " ".join(connection.get("command", ()))
    variables = [*connection.get("env", ()), connection.get("token_env")]
    variables += [credential.get("env") for credential in connection.get("credentials", {}).values()]
    variable_list = ", ".join(f"${displayed(variable)}" for variable in dict.fromkeys(variables) if variable)
    return [f"calls go to {displayed(target)}{f', with {variable_list}' if variable_list else ''}"]


def draft_text(content: Mapping[str, Any]) -> str:
    """Return the text of the file of a drafted adapter."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def draft_lines(content: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the table of a draft, with a row for each tool (kind, highest mode and why), and where calls go."""
    width = max([len(displayed(row["tool"])) for row in rows], default=4)
    lines: list[str] = [Heading(f"{'tool':<{width}}  kind   highest mode  why")]
    lines += [
        f"{displayed(row['tool']):<{width}}  {row['kind']:<5}  {row['mode']:<12}  {displayed(row['why'])}"
        for row in rows
    ]
    return lines + _reach_lines(content["connection"])


def write_draft(root: Path, file: Path, content: dict[str, Any], rows: list[dict[str, str]], *, as_json: bool) -> int:
    """Write a drafted file below the workspace `root` and print its table. Raises `InvalidInput` if it exists."""
    place = root / file
    if place.exists():
        detail, remedy = f"`{displayed(file)}` exists", "name another with --out, compare them, and publish one"
        raise InvalidInput(Problem("", "exists", detail, remedy))
    place.parent.mkdir(parents=True, exist_ok=True)
    write_new_file(place, draft_text(content))
    lines = draft_lines(content, rows)
    lines.append(f"{displayed(file)} is drafted; review it, then `contextos adapters publish {displayed(file)}`")
    print_result({"file": str(file), "tools": rows}, lines, as_json=as_json)
    return 0
