"""`mcp serve`: serve the tools of a pack to any MCP client, each call through policy, approval, budget and record.

Over stdio the person who starts the server states the user. Over HTTP each request proves its user with an access
token; with `--user` all requests share one user and one development token.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import (
    CommandContext,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    usage_error,
    with_context,
)
from contextos.cli.terminal import print_note
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from socket import socket

    from contextos.server.mcp.sessions import Client, ServedSessions
    from contextos.server.mcp.stdio import Wire


def mcp_serve_command(
    agent: Annotated[str, typer.Option("--agent", help="The agent that the client is.")],
    user: Annotated[
        str, typer.Option("--user", help="The user for whom it acts. Left out: the user of each access token (HTTP).")
    ] = "",
    session: Annotated[
        str, typer.Option("--session", help="The name of the session, which is one run. The same name goes on with it.")
    ] = "",
    delegation: Annotated[
        str, typer.Option("--delegation", help="The reference of the token by which the user delegates to the agent.")
    ] = "",
    intent: Annotated[str, typer.Option("--intent", help="The intent. Default: the only one of the tenant.")] = "",
    pack: Annotated[str, typer.Option("--pack", help="The exact pack. Default: the only one of the intent.")] = "",
    message: Annotated[str, typer.Option("--message", help="The task in words, for the record.")] = "",
    input_file: Annotated[
        Path | None, typer.Option("--context", metavar="FILE", help="JSON file with what the request states.")
    ] = None,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Serve HTTP at this address instead of stdin and stdout.")
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the development token. Without it, a new token is printed."),
    ] = None,
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="URL",
            help="The page of your own about a run, with {run} in it. A call that waits names it.",
        ),
    ] = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
) -> int:
    """Serve the tools of a pack over MCP: every call is governed."""
    from contextlib import nullcontext

    from contextos.cli.operations.worker import note_warnings
    from contextos.cli.slots.serve import read_token
    from contextos.contracts.encoding.codec import loads
    from contextos.server.mcp.sessions import Client, ServedSessions, check_link
    from contextos.server.mcp.stdio import private_stdio
    from contextos.server.serving import check_token, listen

    _check_options(user, session, delegation, http, token_file)
    if link:
        check_link(link)
    request_context: Any = {}
    if input_file:
        with about(input_file):
            request_context = loads(read_file(input_file))
            if not isinstance(request_context, dict):
                raise InvalidInput(Problem("", "no_object", "it is not a JSON object", 'write `{"name": value}`'))
    token = read_token(token_file) if token_file else ""
    if token_file:
        check_token(token)

    async def operation(context: CommandContext) -> None:
        await note_warnings(context.app)
        sessions = ServedSessions(
            context.app, context.tenant_id, agent, intent or None, pack or None, message, request_context, link
        )
        if user:
            await _serve_one_user(sessions, Client(user, delegation or None, session), wire, bound, token)
        else:
            assert bound is not None, "stdio has a user"
            await _serve_tokens(context, sessions, agent, bound)

    # Bind before a session is opened: an address that cannot be bound then leaves no session behind.
    with listen(http) if http else nullcontext() as bound, nullcontext() if http else private_stdio() as wire:
        with_context(workspace, tenant, operation)
    return 0


def _check_options(user: str, session: str, delegation: str, http: str, token_file: Path | None) -> None:
    """Raise `InvalidInput` for options that have no effect, are missing, or contradict each other."""
    if user and not session:
        raise usage_error("--user names whose session it is, and no --session names it", "add --session NAME")
    if not user and not http:
        raise usage_error("over stdin and stdout nobody says who the user is", "add --user USER and --session NAME")
    if not user and (session or delegation or token_file):
        detail = "with access tokens the client names its session, and the token delegates"
        raise usage_error(detail, "leave out --session, --delegation and --token-file; or add --user")
    if token_file and not http:
        raise usage_error("--token-file is the token of HTTP", "add --http 127.0.0.1:PORT, or leave it out")


async def _serve_one_user(
    sessions: ServedSessions, client: Client, wire: Wire | None, bound: socket | None, token: str
) -> None:
    import secrets

    from contextos.cli.operations.worker import spare_collections
    from contextos.server.mcp.serving import governed_server
    from contextos.server.mcp.sessions import OneClient
    from contextos.server.mcp.stdio import serve_stdio
    from contextos.server.serving import PATH, address_of, serve_http

    server = governed_server(sessions, OneClient(client))
    # Before a client connects: what cannot be opened is said on stderr, with its remedy.
    opened = await sessions.calls(client)
    print_note(f"session {client.session} is run {opened.gate.run_id}; tools: {', '.join(opened.gate.tools) or 'none'}")
    spare_collections()
    if wire:
        await serve_stdio(server, wire)
        return
    assert bound is not None, "it is stdio or HTTP"
    print_note(f"serving http://{address_of(bound)}{PATH}")
    if not token:
        token = secrets.token_urlsafe(32)
        print_note(f"bearer token: {token}")
    await serve_http(server, bound, token)


async def _serve_tokens(context: CommandContext, sessions: ServedSessions, agent: str, bound: socket) -> None:
    from contextos.cli.operations.worker import spare_collections
    from contextos.server.mcp.oauth import oauth_resource
    from contextos.server.mcp.serving import governed_server
    from contextos.server.mcp.sessions import SESSION_PARAMETER
    from contextos.server.serving import address_of, serve_oauth
    from contextos.telemetry.logs import configure_if_debugging

    configure_if_debugging(serves=True)
    resource = oauth_resource(context.app, context.tenant_id, agent)
    print_note(f"listening on {address_of(bound)}; clients use {resource.url}?{SESSION_PARAMETER}=NAME")
    spare_collections()
    await serve_oauth(governed_server(sessions, resource), bound, resource)
