"""`token`: a short-lived token of the development issuer, to call a service on this machine as somebody."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    with_authors_context,
)
from contextos.cli.layout import moment
from contextos.cli.terminal import print_note, print_result
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.trust.identity.development import DevelopmentToken

DEFAULT_TTL_S: Final = 3_600


def token_command(
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="The user or approver who calls.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="ID", help="The agent that calls; with --user, for this user.")
    ] = None,
    delegation: Annotated[
        str | None,
        typer.Option(
            "--delegation", metavar="REF", help="Their delegation, by its reference. Default: the only one there is."
        ),
    ] = None,
    ttl: Annotated[
        int, typer.Option("--ttl", metavar="SECONDS", help="How long it is valid, at most 43200.")
    ] = DEFAULT_TTL_S,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Print a development token for a service on this machine.

    It takes you for somebody of the directory: only a workspace with plain key files and a plain directory makes such
    tokens, and a service accepts them only on the loopback. The output is the token alone, for the header
    `Authorization: Bearer`.
    """
    from contextos.workspace.logins.development_tokens import development_token

    async def operation(context: CommandContext) -> tuple[str, DevelopmentToken]:
        app = context.app
        return await development_token(
            app.settings,
            app.deployment.ports,
            context.tenant_id,
            user=user,
            agent=agent,
            delegation=delegation,
            ttl_s=ttl,
        )

    token, identity = with_authors_context(workspace, tenant, operation)
    names = " for ".join(displayed(name) for name in (identity.agent_id, identity.user_id) if name)
    print_note(f"unsafe: {names} is named and not proved, until {moment(identity.expires_at * 1_000_000)}")
    document = {"token": token, **asdict(identity)}
    del document["token_digest"]
    print_result(document, [token], as_json=as_json)
    return 0
