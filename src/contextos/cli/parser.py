"""The parser of the command line, and its help: the commands under the headings of `commands.COMMAND_GROUPS`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from contextos.cli.commands import COMMAND_GROUPS, COMMANDS, NESTED
from contextos.cli.terminal import EXIT_CODES
from contextos.errors import InvalidInput, Problem


class GroupedHelp(TyperGroup):
    """A command group whose help lists its commands under the headings of `COMMAND_GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as typer calls it
        """Write the commands under their headings; all descriptions begin in the same column."""
        width = max(map(len, self.commands))
        for heading, group in COMMAND_GROUPS.items():
            names = dict.fromkeys(name.partition(" ")[0] for name in group)
            limit = formatter.width - width - 6
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(limit)) for name in names]
                )


@cache
def command_line(only: str | None = None) -> Any:
    """Return the parser of the command line: the same object every time.

    With `only` it can parse only the commands that begin with this word, and has the names and the help of the others:
    reading the parameters of all commands takes as long as the rest of `contextos --help`.
    """
    root = _group("Governed decisions for AI agents: run, approve, audit and replay them.", _exit_codes(), GroupedHelp)
    root.callback()(_root)
    nested = {name: _group(help_text, "", TyperGroup) for name, help_text in NESTED.items() if _is_under(name, only)}
    for name, group in nested.items():
        parent, _, word = name.rpartition(" ")
        (nested[parent] if parent else root).add_typer(group, name=word)
    for name, (command, example) in COMMANDS.items():
        if not _is_under(name, only):
            continue
        parent, _, verb = name.rpartition(" ")
        register = (nested[parent] if parent else root).command(verb, epilog=f"\b\nExample:\n  {example}")
        register(_refusing_bytes(command))
    parser: Any = typer.main.get_command(root)
    words = dict.fromkeys(name.partition(" ")[0] for name in COMMANDS)
    parser.commands = {word: parser.commands.get(word) or _help_only(word) for word in words}
    return parser


def _is_under(name: str, only: str | None) -> bool:
    return only is None or name.partition(" ")[0] == only


def _help_only(word: str) -> TyperCommand:
    """Return a command or a group that can only show its help."""
    return TyperCommand(word, help=NESTED.get(word) or inspect.getdoc(COMMANDS[word][0]))


def _refusing_bytes(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with a check that each text argument is UTF-8. A path can be any bytes."""

    @wraps(command)
    def checked(**arguments: Any) -> int:
        for value in arguments.values():
            for text in value if isinstance(value, list) else (value,):
                if isinstance(text, str) and not _is_utf8(text):
                    raise InvalidInput(Problem("", "not_utf8", f"`{text[:64]}` is not UTF-8", "write it in UTF-8"))
        return command(**arguments)

    return checked


def _is_utf8(text: str) -> bool:
    """Return whether an argument was UTF-8. Python turns other bytes into lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _group(help_text: str, epilog: str, cls: type[TyperGroup]) -> typer.Typer:
    return typer.Typer(
        cls=cls,
        help=help_text,
        epilog=epilog,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def _exit_codes() -> str:
    return "\b\nExit codes:\n" + "\n".join(f"  {code:<3} {meaning}" for code, meaning in EXIT_CODES.items())


def _print_version(wanted: bool) -> None:
    if wanted:
        from contextos import __version__

        sys.stdout.write(f"contextos {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Declares the options of `contextos` itself."""
