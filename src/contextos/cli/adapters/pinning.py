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
    diff_lines = [line for file in changed for line in _change_lines(file)]
    for line in () if as_json else diff_lines:
        print_note(line)
    if not yes:
        _confirm(as_json, diff_lines)
    pin_files(root, changed)
    documents = [
        {
            "file": file.path,
            "adapter": file.entry,
            "tools": list(file.tools),
            "before": file.pinned,
            "after": file.found,
            "diff": file.diff() if file.before is not None else None,
        }
        for file in changed
    ]
    lines = [f"{displayed(file.path)} is pinned with the digest {file.found}" for file in changed]
    print_result(
        {"pinned": documents, "next": list(NEXT)}, [*lines, "Next:", *(f"  {step}" for step in NEXT)], as_json=as_json
    )
    return 0


def _change_lines(file: ChangedFile) -> list[str]:
    has_text = file.before is not None
    no_tools = "no decorated function changed; what they call may have" if has_text else "no decorated function in it"
    tools = f"tools: {displayed(', '.join(file.tools))}" if file.tools else no_tools
    return [
        f"{displayed(file.path)} of {displayed(file.entry)} changed; {tools}",
        f"  pinned {displayed(file.pinned)}",
        f"  now    {file.found}",
        *(f"  {displayed(line)}" for line in file.diff()),
        *(
            ()
            if has_text
            else ("  the text that was pinned is not known, so there is no difference to show: read the file",)
        ),
    ]


class _NotConfirmed(InvalidInput):
    """Nobody confirmed the pins. `diff` are the lines that a person reads before they confirm."""

    def __init__(self, problem: Problem, diff: Sequence[str]) -> None:
        super().__init__(problem)
        self.diff = list(diff)


def _confirm(as_json: bool, diff_lines: Sequence[str]) -> None:
    """Ask for confirmation at the terminal. Raises `InvalidInput` if there is no terminal, or the person says no."""
    if as_json or not sys.stdin.isatty() or not sys.stderr.isatty():
        reason = "with `--json` nobody is asked" if as_json else "there is no terminal to ask at"
        detail = f"{reason}, and nothing was pinned"
        raise _NotConfirmed(Problem("", "usage", detail, "review the difference, then pass --yes"), diff_lines)
    if not typer.confirm("Pin the code as it is now?", default=False, err=True):
        raise InvalidInput(Problem("", "not_confirmed", "nothing was pinned", "run it again when you are sure"))
