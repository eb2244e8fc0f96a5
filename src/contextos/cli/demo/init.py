"""`init`: make a new workspace from a template.

`WORKSPACE_TEMPLATES` lists the templates. A new template is a folder in `examples`, which the wheel includes, and a
line in that list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from contextos.cli.command_context import JsonOption, usage_error
from contextos.cli.demo.templates import copy_template
from contextos.cli.demo.workspace import make_workspace
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed

WORKSPACE_TEMPLATES: Final[Mapping[str, Callable[[Path], object]]] = {
    "deploy": partial(copy_template, "deploy_rollback"),
    "agent": partial(copy_template, "deploy_rollback", over="deploy_by_model"),
    "refund": make_workspace,
    "empty": partial(copy_template, "empty"),
}
"""The functions that make a workspace in a directory, by the name of the template. The first is the default."""


def init_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new workspace: a directory that is new or empty.")],
    template: Annotated[
        str, typer.Option("--from", metavar="|".join(WORKSPACE_TEMPLATES), help="What the workspace begins with.")
    ] = next(iter(WORKSPACE_TEMPLATES)),
    as_json: JsonOption = False,
) -> int:
    """Make a workspace: keys, people, settings, tools and a pack.

    Its keys and its directory are files, which are stand-ins for development.
    """
    make = WORKSPACE_TEMPLATES.get(template)
    if make is None:
        from contextos.contracts.facts import name_remedy

        detail = f"there is no template `{template[:80]}`"
        raise usage_error(detail, name_remedy(template, WORKSPACE_TEMPLATES))
    make(folder)
    files = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    lines = [f"{displayed(str(folder))} is a workspace: {', '.join(files)}", "Its README.md says how to begin."]
    print_result({"workspace": str(folder), "template": template, "files": files}, lines, as_json=as_json)
    return 0
