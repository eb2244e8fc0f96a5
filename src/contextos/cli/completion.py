"""`completion`: the script by which a shell completes commands and options. The script asks `contextos` for them.

Typer makes the script and the answers. They load the parser, and nothing of the runtime.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from typing import Annotated, Any, Final

import typer

from contextos.cli.command_context import JsonOption
from contextos.cli.terminal import USAGE, print_result
from contextos.errors import InvalidInput, Problem

SHELLS: Final = ("bash", "zsh", "fish")
COMPLETE_VARIABLE: Final = "_CONTEXTOS_COMPLETE"
"""The script sets this variable to `complete_SHELL`. With it `contextos` only answers the shell."""


def completion_command(
    shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS), help="The shell.")], as_json: JsonOption = False
) -> int:
    """Print the script that completes commands in a shell.

    For bash, put `source <(contextos completion bash)` into `~/.bashrc`; zsh needs it behind `compinit`. For fish, put
    `contextos completion fish | source` into its configuration.
    """
    if shell not in SHELLS:
        from contextos.contracts.facts import name_remedy

        detail = f"there is no completion for `{shell[:40]}`"
        raise InvalidInput(Problem("", "usage", detail, name_remedy(shell, SHELLS)))
    output = io.StringIO()
    with redirect_stdout(output):
        _complete(typer.main.get_command(typer.Typer(callback=lambda: None)), f"source_{shell}")
    script = output.getvalue().strip()
    print_result({"shell": shell, "script": script}, [script], as_json=as_json)
    return 0


def answer_shell(root: Any) -> int:
    """Print the completions for the place that the shell's variables name; return the exit code."""
    try:
        return _complete(root, os.environ[COMPLETE_VARIABLE])
    except (KeyError, ValueError):
        # A shell sets all its variables; here somebody set this one by hand.
        return USAGE


def _complete(command: Any, instruction: str) -> int:
    from typer.completion import get_completion_inspect_parameters, shell_complete

    # This call registers the shells.
    get_completion_inspect_parameters()
    return shell_complete(command, {}, "contextos", COMPLETE_VARIABLE, instruction)
