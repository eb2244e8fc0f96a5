"""The command line: commands on one workspace, each of which returns its exit code. `main` is the outermost function.

Commands import what they need when they run, so that `contextos --help` costs no more than the parser.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.exceptions import TyperException

from contextos.cli.commands import COMMANDS
from contextos.cli.parser import command_line
from contextos.cli.terminal import JSON_OPTION, USAGE, defect, fail, misused
from contextos.errors import ContextOSError

__all__ = ["COMMANDS", "command_line", "main", "run_command_line"]


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Refused input and failures become exit codes, never exceptions."""
    as_json = JSON_OPTION in arguments
    try:
        code: Any = command_line()(list(arguments) or ["--help"], standalone_mode=False, prog_name="contextos")
        return USAGE if not arguments else code if isinstance(code, int) else 0
    except ContextOSError as error:
        return fail(error, as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The process that read our output has gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except TyperException as error:
        return _usage(error, as_json=as_json)
    except Exception as error:
        if os.environ.get("CONTEXTOS_DEBUG"):
            raise
        return defect(error, as_json=as_json)


def _usage(error: Any, *, as_json: bool) -> int:
    message = error.format_message().rstrip(".")
    path = error.ctx.command_path if getattr(error, "ctx", None) else "contextos"
    return misused(f"{message[:1].lower()}{message[1:]}; see `{path} --help`", as_json=as_json)


def main() -> None:
    """The `contextos` command. With `CONTEXTOS_DEBUG` it logs to stderr, in JSON lines where that is no terminal."""
    if os.environ.get("CONTEXTOS_DEBUG"):
        from contextos.telemetry.logs import configure

        configure(sys.stderr, as_json=not sys.stderr.isatty())
    sys.exit(run_command_line(sys.argv[1:]))
