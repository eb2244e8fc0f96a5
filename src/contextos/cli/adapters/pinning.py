"""`pin-code`: show how the files of function adapters differ from the pinned files, and pin the present files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from contextos.cli.command_context import JsonOption, WorkspaceOption
from contextos.cli.terminal import print_note, print_result
from contextos.cli.workspace_search import find_workspace
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.workspace.pinned_code import ChangedFile

NEXT: Final = (
    "publish a new version of the pack with `contextos apply` if a tool was added or its arguments changed",
    "start running processes again, and ask open questions about these tools again: `contextos approvals reask RUN`",
)


def pin_code_command(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Files of tools. Default: all that changed.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Pin without asking; the difference is shown all the same.")
    ] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show how the code of tools changed, and pin it.

    Nothing of the files runs before you say yes.
    """
    from contextos.workspace.pinned_code import changed_files, pin_files

    root = find_workspace(workspace)
    changed = changed_files(root, files or ())
    shown = [line for one in changed for line in _shown(one)]
    for line in () if as_json else shown:
        print_note(line)
    if not yes:
        _confirm(as_json, shown)
    pin_files(root, changed)
    documents = [
        {
            "file": one.path,
            "adapter": one.entry,
            "tools": list(one.tools),
            "before": one.pinned,
            "after": one.found,
            "diff": one.diff() if one.before is not None else None,
        }
        for one in changed
    ]
    lines = [f"{displayed(one.path)} is pinned with the digest {one.found}" for one in changed]
    print_result(
        {"pinned": documents, "next": list(NEXT)}, [*lines, "Next:", *(f"  {one}" for one in NEXT)], as_json=as_json
    )
    return 0


def _shown(one: ChangedFile) -> list[str]:
    known = one.before is not None
    none = "no decorated function changed; what they call may have" if known else "no decorated function in it"
    tools = f"tools: {displayed(', '.join(one.tools))}" if one.tools else none
    return [
        f"{displayed(one.path)} of {displayed(one.entry)} changed; {tools}",
        f"  pinned {displayed(one.pinned)}",
        f"  now    {one.found}",
        *(f"  {displayed(line)}" for line in one.diff()),
        *(
            ()
            if known
            else ("  the text that was pinned is not known, so there is no difference to show: read the file",)
        ),
    ]


class _NotConfirmed(InvalidInput):
    """Nobody confirmed the pins. `diff` are the lines that a person reads before they confirm."""

    def __init__(self, problem: Problem, diff: Sequence[str]) -> None:
        super().__init__(problem)
        self.diff = list(diff)


def _confirm(as_json: bool, shown: Sequence[str]) -> None:
    """Ask for confirmation at the terminal. Raises `InvalidInput` if there is no terminal, or the person says no."""
    if as_json or not sys.stdin.isatty() or not sys.stderr.isatty():
        why = "with `--json` nobody is asked" if as_json else "there is no terminal to ask at"
        detail = f"{why}, and nothing was pinned"
        raise _NotConfirmed(Problem("", "usage", detail, "review the difference, then pass --yes"), shown)
    if not typer.confirm("Pin the code as it is now?", default=False, err=True):
        raise InvalidInput(Problem("", "not_confirmed", "nothing was pinned", "run it again when you are sure"))
