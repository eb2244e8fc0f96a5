"""The command line: commands on one workspace. Each command returns its exit code. `main` is the entry point.

Commands import what they need when they run, so that `contextos --help` costs no more than the parser.
Tests: `tests/unit/cli`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.exceptions import TyperException

from contextos.cli.commands import COMMANDS
from contextos.cli.completion import COMPLETE_VARIABLE, answer_shell
from contextos.cli.parser import command_line
from contextos.cli.terminal import JSON_OPTION, USAGE, defect, fail, misused, prepare_streams
from contextos.errors import ContextOSError

__all__ = ["COMMANDS", "command_line", "main", "run_command_line"]


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Refused input and failures become exit codes, never exceptions."""
    as_json = JSON_OPTION in arguments
    try:
        word = next((argument for argument in arguments if not argument.startswith("-")), "")
        code: Any = command_line(word)(list(arguments) or ["--help"], standalone_mode=False, prog_name="contextos")
        return USAGE if not arguments else code if isinstance(code, int) else 0
    except ContextOSError as error:
        return fail(error, as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except TyperException as error:
        return _report_usage(error, as_json=as_json)
    except BaseException as error:
        # A `SystemExit` of foreign code must not end a command with its own exit code.
        return defect(error, as_json=as_json)


def _report_usage(error: Any, *, as_json: bool) -> int:
    message = error.format_message().rstrip(".")
    path = error.ctx.command_path if getattr(error, "ctx", None) else "contextos"
    return misused(f"{message[:1].lower()}{message[1:]}; see `{path} --help`", as_json=as_json)


def main() -> None:
    """Run the `contextos` command. The exit code says what was done, also if the output cannot be written.

    With `CONTEXTOS_DEBUG` it logs to stderr, in JSON lines if stderr is not a terminal.
    """
    prepare_streams()
    # Only the user of a command can read the files that it creates.
    os.umask(0o077)
    if os.environ.get("CONTEXTOS_DEBUG"):
        from contextos.telemetry.logs import configure_if_debugging

        configure_if_debugging()
    if COMPLETE_VARIABLE in os.environ:
        sys.exit(answer_shell(command_line()))
    sys.exit(run_command_line(sys.argv[1:]))
