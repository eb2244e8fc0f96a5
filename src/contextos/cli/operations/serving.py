"""`serve`: serve the HTTP API of a workspace, with its workers in the same process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.command_context import CommandContext, WorkspaceOption, with_context
from contextos.cli.operations.worker import running_engine
from contextos.cli.terminal import print_note
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidSettings, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket
    from ssl import SSLContext

DEFAULT_PORT: Final = 8765
MAX_SHOWN_LOGINS: Final = 32
MAX_DRAIN_S: Final = 300


def serve_command(
    host: Annotated[str, typer.Option("--host", help="The address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")] = DEFAULT_PORT,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Leave due runs and notices to `contextos worker` processes.")
    ] = False,
    drain: Annotated[
        int,
        typer.Option("--drain", min=0, max=MAX_DRAIN_S, metavar="SECONDS", help="How long to serve on after SIGTERM."),
    ] = 0,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate and its chain (PEM), for TLS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM), without a passphrase.")
    ] = None,
    behind_tls_proxy: Annotated[
        bool, typer.Option("--behind-tls-proxy", help="Serve other machines without TLS: a proxy in front has it.")
    ] = False,
    only_host: Annotated[
        list[str] | None,
        typer.Option("--only-host", metavar="HOST[:PORT]", help="Refuse requests to other hosts. Give it for each."),
    ] = None,
    workspace: WorkspaceOption = None,
) -> int:
    """Serve the HTTP API and drive due runs until interrupted.

    In a development workspace it prints a login for each person of the directory file. Other machines are served over
    TLS alone, or through a TLS proxy; the headers that a proxy adds to a request are not believed. After SIGTERM it
    goes on for `--drain` seconds, in which `/v1/ready` says no.
    """
    require_service()
    from contextos.contracts.urls import is_loopback
    from contextos.server.serving import listen
    from contextos.server.tls import check_reach, hosts_of, tls_context

    if (tls_cert is None) is not (tls_key is None):
        detail = "a certificate needs its key, and a key its certificate"
        raise InvalidSettings(Problem("/http", "no_certificate", detail, "give `--tls-cert` and `--tls-key`"))
    hosts = hosts_of(only_host or ())
    tls = tls_context(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    check_reach(is_loopback(host), has_tls=tls is not None, behind_tls_proxy=behind_tls_proxy)

    async def operation(context: CommandContext) -> None:
        await serve_context(context, bound, tls, hosts, drives=not no_worker, drain_s=drain)

    # Bind first: a client that connects before the server is ready then waits and is not refused.
    with listen(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", reachable=True) as bound:
        with_context(workspace, None, operation)
    return 0


async def serve_context(
    context: CommandContext,
    bound: socket,
    tls: SSLContext | None = None,
    hosts: Sequence[str] = (),
    *,
    drives: bool = True,
    drain_s: int = 0,
) -> None:
    """Serve an open workspace on a listening socket until SIGINT or SIGTERM, and say where and for whom."""
    from contextos.server.assembly import http_api
    from contextos.server.hosting import serve_api
    from contextos.server.serving import address_of
    from contextos.telemetry.logs import configure_if_debugging
    from contextos.trust.identity.development import MAX_DEVELOPMENT_TTL_S
    from contextos.workspace.logins.development_tokens import development_logins

    configure_if_debugging(serves=True)
    app = context.app
    tokens = app.bearer_tokens(bound_to=str(bound.getsockname()[0]))
    logins = []
    if tokens.development:
        logins = await development_logins(app.settings, app.deployment.ports, ttl_s=MAX_DEVELOPMENT_TTL_S)
    async with running_engine(app, drives=drives, serves_metrics=True):
        print_note(f"serving {'https' if tls else 'http'}://{address_of(bound)}/v1; interrupt to stop")
        if logins:
            print_note(f"the console is at {console_address(bound.getsockname()[1])}")
        if not drives:
            print_note("this process drives no due run; `contextos worker` does, on this store")
        if logins:
            print_note("development logins, for this machine and for twelve hours:")
        for tenant_id, person_id, token in logins[:MAX_SHOWN_LOGINS]:
            print_note(f"  {displayed(tenant_id)} {displayed(person_id)} {token}")
        if len(logins) > MAX_SHOWN_LOGINS:
            print_note(f"  and {len(logins) - MAX_SHOWN_LOGINS} more people; `contextos token` makes one for each")
        await serve_api(http_api(app, tokens, list(hosts)), bound, drain_s=drain_s, tls=tls)
        print_note("stopping: the runs in progress are released")


def console_address(port: int) -> str:
    """Return the address at which a browser of this machine opens the console."""
    return f"http://localhost:{port}/console"


def require_service() -> Any:
    """Refuse to serve without the extra `service`. Raises `InvalidSettings`."""
    try:
        import fastapi
        import uvicorn
    except ImportError:
        detail = "the HTTP API needs packages that are not installed"
        raise InvalidSettings(Problem("", "no_service", detail, "pip install 'contextos[service]'")) from None
    return fastapi, uvicorn
