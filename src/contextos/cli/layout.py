"""Lays out text in lines of 80 columns, as a terminal counts them: a wide character takes two columns.

Text of other parties was escaped by `displayed` before, so each of its characters takes at least one column.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Iterator
from typing import Final

WIDTH: Final = 80
MIN_WIDTH: Final = 40

_TOKENS: Final = re.compile(r" +|[^ ]+")


def line_width() -> int:
    """Return the number of columns of a line: the width of the terminal, at most 80 and at least 40."""
    return max(MIN_WIDTH, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def moment(at_us: int | None) -> str:
    """Return a time (Unix microseconds) as text in UTC, to the second.

    >>> moment(1_767_225_600_000_000), moment(None)
    ('2026-01-01T00:00:00Z', '-')
    """
    from datetime import UTC, datetime

    return "-" if at_us is None else datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def columns_of(text: str) -> int:
    """Return the columns that `text` takes at most. Characters of ambiguous width count as wide.

    >>> columns_of("INR 4200"), columns_of("金")
    (8, 2)
    """
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WFA" else 1 for character in text)


def folded(first: str, text: str) -> Iterator[str]:
    """Yield `text` wrapped at blanks, the first line after `first` and the others indented below it."""
    width = line_width()
    line, below = first, " " * (len(first) + 2)
    used, empty = columns_of(first), True
    for token in _TOKENS.findall(text):
        for part in _split_token(token, width - len(below)):
            columns = columns_of(part)
            if used + columns > width and not empty:
                yield line.rstrip()
                line, used, empty = below, len(below), True
            if empty and part.isspace():
                continue
            line, used, empty = line + part, used + columns, False
    if not empty or line == first:
        yield line.rstrip()


def chopped(line: str, indent: int) -> Iterator[str]:
    r"""Yield `line` cut into parts that fit, with a backslash after each part and `indent` blanks before the next.

    Nothing is dropped, so different texts look different, and no later part begins in the column of a new line.
    """
    width, used, part = line_width() - 1, 0, ""
    for character in line:
        columns = columns_of(character)
        if used + columns > width:
            yield part + "\\"
            used, part = indent, " " * indent
        part, used = part + character, used + columns
    yield part


def _split_token(token: str, width: int) -> Iterator[str]:
    """Yield a token whole, or cut into parts if it is longer than a line."""
    part = ""
    for character in token if columns_of(token) > width else ():
        if columns_of(part + character) > width:
            yield part
            part = ""
        part += character
    yield part or token
