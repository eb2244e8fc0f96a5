"""Terminal output: one JSON document or readable lines on stdout, errors on stderr, and an exit code.

Text of other parties is printed with `displayed`: hidden characters, changes of writing direction and terminal
sequences become escapes. `rich` is imported only when something is drawn.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TextIO

from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.errors import ContextOSError, Problem

STDIN, STDOUT, STDERR = 0, 1, 2


DECIDED, REFUSED, USAGE, INTEGRITY, UNAVAILABLE, WAITING, DEFECT = 0, 1, 2, 3, 4, 5, 70

EXIT_CODES: Final[dict[int, str]] = {
    DECIDED: "decided, or done",
    REFUSED: "rejected, refused, cancelled or escalated; or an invalid answer",
    USAGE: "usage or invalid input; nothing was stored",
    INTEGRITY: "a ledger, signature, replay, schema or invariant does not verify",
    UNAVAILABLE: "a dependency is unavailable; nothing was lost, try again",
    WAITING: "the run waits for a person, for its agent, or for an engine to drive it",
    DEFECT: "a defect of contextos; please report it",
    130: "interrupted",
}

JSON_OPTION: Final = "--json"


class _TolerantOutput(io.RawIOBase):
    """Writes to a descriptor. Output that cannot be written is dropped, so that the exit code still says what was done.

    The first failure of stdout is noted on stderr, unless the reader of a pipe has gone.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._print_error = descriptor, False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        if not self._print_error:
            try:
                return os.write(self._descriptor, data)
            except OSError as error:
                self._print_error = True
                if self._descriptor == STDOUT and not isinstance(error, BrokenPipeError):
                    print_note(f"warning: the output cannot be written: {(error.strerror or str(error)).lower()}")
        return len(data)


def prepare_streams() -> None:
    """Make the three standard streams of this process usable, whatever they are connected to.

    A closed descriptor is opened on the null device. Otherwise the next file that is opened, such as the store, would
    get its number and the output. Characters that the encoding of a terminal lacks are written as escapes.
    """
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(STDIN), "utf-8")
    sys.stdout, sys.stderr = _tolerant(STDOUT, sys.stdout), _tolerant(STDERR, sys.stderr)


def _tolerant(descriptor: int, replaced: TextIO | None) -> TextIO:
    raw = _TolerantOutput(descriptor)
    encoding = replaced.encoding if replaced else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=descriptor == STDERR or raw.isatty()
    )


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
    """Return whether to print colours: only on a terminal, not with `NO_COLOR`, and not if `TERM` is `dumb`."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_note(text: str) -> None:
    """Write a line to stderr. A closed stderr is ignored."""
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def fail(error: ContextOSError, *, as_json: bool) -> int:
    """Print an error to stderr and return its exit code."""
    body: dict[str, Any] = {"code": error.code, "detail": displayed(str(error)), "exit_code": error.exit_code}
    problems = getattr(error, "problems", ())
    if problems:
        body["problems"] = [problem_document(problem) for problem in problems]
    for name in ("reason", "retry_after_ms", "diff"):
        if hasattr(error, name):
            body[name] = getattr(error, name)
    lines = [displayed(str(problem)) for problem in problems] or [displayed(str(error))]
    return _print_error(body, lines, as_json=as_json)


def problem_document(problem: Problem) -> dict[str, str]:
    """Return a problem as a JSON object, with its texts escaped for display."""
    return asdict(problem) | {"detail": displayed(problem.detail), "remedy": displayed(problem.remedy)}


def misused(message: str, *, as_json: bool) -> int:
    """Print the fault of a command line to stderr, and return the exit code `USAGE`."""
    return _print_error(
        {"code": "usage", "detail": displayed(message), "exit_code": USAGE}, [displayed(message)], as_json=as_json
    )


def defect(error: BaseException, *, as_json: bool) -> int:
    """Print the class of an unexpected exception and a remedy to stderr, and return the exit code.

    The frames go to the log. The text of the exception is written nowhere: it can hold a secret or a customer's data.
    """
    import logging

    from contextos.telemetry.logs import error_fields

    logging.getLogger("contextos.cli").error("defect", extra=error_fields(error))
    line = f"unexpected `{displayed(type(error).__name__)}`"
    advice = "this is a defect of contextos; report it with the command, and with its log: set CONTEXTOS_DEBUG=1"
    return _print_error({"code": "defect", "detail": line, "exit_code": DEFECT}, [line, advice], as_json=as_json)


def _print_error(body: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> int:
    if as_json:
        print_result({"error": body}, (), as_json=True)
    else:
        for number, line in enumerate(lines):
            print_note(f"error: {line}" if number == 0 else f"       {line}")
    code: int = body["exit_code"]
    return code
