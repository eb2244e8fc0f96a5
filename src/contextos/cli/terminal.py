"""Terminal output: one JSON document or readable lines on stdout, errors on stderr, and an exit code.

Text of other parties is printed with `displayed`: hidden characters, changes of writing direction and terminal
sequences become escapes. `rich` is imported only when something is drawn.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.errors import ContextOSError

WIDTH: Final = 80

DECIDED, REFUSED, USAGE, INTEGRITY, UNAVAILABLE, WAITING, DEFECT = 0, 1, 2, 3, 4, 5, 70

EXIT_CODES: Final[dict[int, str]] = {
    DECIDED: "decided, or done",
    REFUSED: "rejected, refused, cancelled or escalated; or an invalid answer",
    USAGE: "usage or invalid input; nothing was stored",
    INTEGRITY: "a ledger, signature, replay, schema or invariant does not verify",
    UNAVAILABLE: "a dependency is unavailable; nothing was lost, try again",
    WAITING: "the run waits for a person, or for an engine to drive it",
    DEFECT: "a defect of contextos; please report it",
    130: "interrupted",
}

JSON_OPTION: Final = "--json"


class Heading(str):
    """A heading line; bold where there is colour."""

    __slots__ = ()


def print_result(document: Mapping[str, Any] | Sequence[Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Write one result to stdout: the document as JSON, or the lines."""
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True) + "\n")
    else:
        for line in lines:
            _write(line)
    sys.stdout.flush()


def _write(line: str) -> None:
    if isinstance(line, Heading) and colourful(sys.stdout):
        from rich.console import Console
        from rich.text import Text

        Console(file=sys.stdout).print(Text(line, style="bold"))
    else:
        sys.stdout.write(f"{line}\n")


def colourful(stream: TextIO) -> bool:
    """Whether colour is wanted: on a terminal, and not under NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def folded(first: str, text: str) -> Iterator[str]:
    """`text` within 80 columns, after `first` and indented below it."""
    below = " " * (len(first) + 2)
    yield from textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=below, break_on_hyphens=False) or [
        first.rstrip()
    ]


def print_note(text: str) -> None:
    """Write a line to stderr. A closed stderr is ignored."""
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def fail(error: ContextOSError, *, as_json: bool) -> int:
    """Report an error and return its exit code."""
    body: dict[str, Any] = {"code": error.code, "detail": displayed(str(error)), "exit_code": error.exit_code}
    problems = getattr(error, "problems", ())
    if problems:
        body["problems"] = [
            {"pointer": one.pointer, "code": one.code, "detail": displayed(one.detail), "remedy": displayed(one.remedy)}
            for one in problems
        ]
    for name in ("reason", "retry_after_ms"):
        if hasattr(error, name):
            body[name] = getattr(error, name)
    lines = [displayed(str(one)) for one in problems] or [displayed(str(error))]
    return _failed(body, lines, as_json=as_json)


def misused(message: str, *, as_json: bool) -> int:
    """Report a wrong command line."""
    return _failed(
        {"code": "usage", "detail": displayed(message), "exit_code": USAGE}, [displayed(message)], as_json=as_json
    )


def defect(error: BaseException, *, as_json: bool) -> int:
    """Report an unexpected exception: its type and text, and what to do."""
    line = f"{type(error).__name__}: {displayed(str(error))[:300]}"
    how = "this is a defect of contextos; report it with the command, or set CONTEXTOS_DEBUG=1 for the traceback"
    return _failed({"code": "defect", "detail": line, "exit_code": DEFECT}, [line, how], as_json=as_json)


def _failed(body: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> int:
    if as_json:
        print_result({"error": body}, (), as_json=True)
    else:
        for number, line in enumerate(lines):
            print_note(f"error: {line}" if number == 0 else f"       {line}")
    code: int = body["exit_code"]
    return code
