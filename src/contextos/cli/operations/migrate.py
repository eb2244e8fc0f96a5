"""`store migrate`: bring the schema of a deployment's store up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from contextos.cli.command_context import JsonOption, WorkspaceOption
from contextos.cli.terminal import print_result
from contextos.cli.workspace_search import find_workspace


def migrate_command(
    url: Annotated[
        str,
        typer.Option("--url", envvar="CONTEXTOS_MIGRATE_URL", help="URL of the database, with the role that owns it."),
    ] = "",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Bring the schema of the store up to date.

    Running it again changes nothing.
    """
    import asyncio

    from contextos.workspace import migrate as bring_up_to_date
    from contextos.workspace.settings import Settings, is_postgres_url

    lines: list[str] = []
    place = url or Settings.read(find_workspace(workspace)).store
    before: str | None = None
    after: str | None = None
    if is_postgres_url(place) or url:
        before, after = asyncio.run(bring_up_to_date(place))
        lines.append(f"the schema is `{after}` already" if before == after else f"the schema is `{after}` now")
    else:
        lines.append(f"`{place}` is a SQLite file, whose schema is made when it is opened")
    print_result(
        {"store": "postgresql" if is_postgres_url(place) else place, "before": before, "after": after},
        lines,
        as_json=as_json,
    )
    return 0
