"""`migrate`: the schema of a deployment's store, brought up to date before anything runs on it."""

from __future__ import annotations

from typing import Annotated

import typer

from contextos.cli.opening import WORKSPACE, JsonOption, WorkspaceOption
from contextos.cli.terminal import give


def migrate(
    url: Annotated[
        str, typer.Option("--url", envvar="CONTEXTOS_MIGRATE_URL", help="The database, as the role that owns it.")
    ] = "",
    workspace: WorkspaceOption = WORKSPACE,
    as_json: JsonOption = False,
) -> int:
    """Bring the store's schema up to date; done twice it does nothing."""
    import asyncio

    from contextos.app import Settings
    from contextos.app import migrate as bring_up_to_date
    from contextos.settings import is_url

    place = url or Settings.read(workspace).store
    if not url and not is_url(place):
        give({"store": place, "before": None, "after": None}, [_FILE.format(place)], as_json=as_json)
        return 0
    before, after = asyncio.run(bring_up_to_date(place))
    done = f"the schema is `{after}` already" if before == after else f"the schema is `{after}` now"
    give({"store": "postgresql", "before": before, "after": after}, [done], as_json=as_json)
    return 0


_FILE = "`{}` is a SQLite file, whose schema is made when it is opened"
