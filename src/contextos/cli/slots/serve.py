"""`slots serve`: serve the MCP tool `context_resolve`, which lists what can fill an agent's context slots.

It answers on behalf of one person (`--actor`), over stdio or over HTTP on this machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contextos.cli.command_context import CommandContext, TenantOption, WorkspaceOption, about, read_file, with_context
from contextos.cli.terminal import print_note
from contextos.errors import InvalidSettings, Problem


def slots_serve_command(
    actor: Annotated[
        Path,
        typer.Option("--actor", metavar="ACTOR.json", help="JSON file of the user: principal, organisation, teams."),
    ],
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Serve HTTP at this address instead of stdin and stdout.")
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the bearer token. Without it, a new token is printed."),
    ] = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
) -> int:
    """Serve `context_resolve` over MCP for one actor."""
    import secrets
    from contextlib import nullcontext

    from contextos.contracts.encoding.codec import parse
    from contextos.contracts.envelopes.slots import SlotActor
    from contextos.server.mcp.slots import slots_server
    from contextos.server.mcp.stdio import private_stdio, serve_stdio
    from contextos.server.serving import PATH, address_of, listen, serve_http

    with about(actor):
        user = parse(SlotActor, read_file(actor))
    file_token = read_token(token_file) if token_file else ""

    async def operation(context: CommandContext) -> None:
        artifacts = context.app.stores.artifacts(context.tenant_id)
        server = slots_server(user, artifacts, artifacts)
        if wire:
            await serve_stdio(server, wire)
            return
        token = file_token if token_file else secrets.token_urlsafe(32)
        bound = listen(http)
        print_note(f"serving http://{address_of(bound)}{PATH}")
        if token_file is None:
            print_note(f"bearer token: {token}")
        await serve_http(server, bound, token)

    with nullcontext() if http else private_stdio() as wire:
        with_context(workspace, tenant, operation)
    return 0


def read_token(path: Path) -> str:
    """Return the bearer token in a file that only its owner can read, or in stdin for `-`.

    Raises:
        InvalidSettings: the token is not ASCII, or others can read the file.
        InvalidInput: as `read_file`.
    """
    try:
        return read_file(path, private=True).decode("ascii").strip()
    except UnicodeDecodeError:
        detail = f"`{path}` does not hold a token"
        raise InvalidSettings(Problem("", "not_a_token", detail, "write a random token in ASCII to it")) from None
