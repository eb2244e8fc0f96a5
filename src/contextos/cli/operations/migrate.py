"""`migrate`: bring the schema of a deployment's store and queue up to date."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from contextos.cli.command_context import WORKSPACE, JsonOption, WorkspaceOption
from contextos.cli.terminal import print_result


def migrate_command(
    url: Annotated[
        str,
        typer.Option("--url", envvar="CONTEXTOS_MIGRATE_URL", help="URL of the database, with the role that owns it."),
    ] = "",
    queue_url: Annotated[
        str,
        typer.Option(
            "--queue-url",
            envvar="CONTEXTOS_MIGRATE_QUEUE_URL",
            help="URL of the queue's database, with the role that owns it.",
        ),
    ] = "",
    workspace: WorkspaceOption = WORKSPACE,
    as_json: JsonOption = False,
) -> int:
    """Bring the schema of the store and the queue up to date.

    Running it again changes nothing.
    """
    import asyncio

    from contextos.app import migrate as bring_up_to_date
    from contextos.app import migrate_queue
    from contextos.settings import SETTINGS_FILE, Settings, is_postgres_url

    told: list[str] = []
    settings = Settings.read(workspace) if not url or os.path.exists(workspace / SETTINGS_FILE) else None
    place = url or (settings.store if settings else "")
    before: str | None = None
    after: str | None = None
    if is_postgres_url(place) or url:
        before, after = asyncio.run(bring_up_to_date(place))
        told.append(f"the schema is `{after}` already" if before == after else f"the schema is `{after}` now")
    else:
        told.append(f"`{place}` is a SQLite file, whose schema is made when it is opened")
    queue = queue_url or (settings.queue if settings else "")
    if queue:
        role = migrate_queue(queue, settings.queue if settings and queue_url else "")
        told.append(f"the queue is up to date, and `{role}` may use it" if role else "the queue is up to date")
    print_result(
        {
            "store": "postgresql" if is_postgres_url(place) else place,
            "before": before,
            "after": after,
            "queue": bool(queue),
        },
        told,
        as_json=as_json,
    )
    return 0
