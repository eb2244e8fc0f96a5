"""All faults of a settings file at once, each with its line.

A check stops at the first fault. What is wrong is then taken out, or gets the name that was meant, and the rest is
checked, until nothing more is found.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from contextos.errors import InvalidSettings, Problem

ReadT = TypeVar("ReadT")
Path = tuple[str, ...]

MAX_SETTING_FAULTS: Final = 32
MAX_LINES: Final = 1_000
"""Of a longer file no lines are named: to find them takes quadratic time."""
FOLLOWS: Final = {"driving": "store", "browser_logins": "directory", "environment": "profile", "unsafe": "profile"}
"""Settings that are right or wrong by another one. While that is wrong, nothing is said of them."""

_MEANT: Final = re.compile("did you mean `(.+)`\\?")


def read_whole(text: str, table: dict[str, Any], read: Callable[[dict[str, Any]], ReadT]) -> ReadT:
    """Return what `read` makes of the table of a settings file. Raises `InvalidSettings` with every fault in it."""
    left = copy.deepcopy(table)
    taken: list[Path] = []
    found: list[tuple[int, Problem]] = []
    while True:
        try:
            made = read(left)
        except InvalidSettings as refused:
            stated = tuple(refused.problems[0].pointer.split("/")[1:])
            path = _as_written(stated, taken, table)
            follows = any(one == (FOLLOWS.get(path[0]),) for one in taken) if path else False
            if not follows and not any(one[: len(path)] == path for one in taken):
                found += [_with_line(one, path, text, table) for one in refused.problems]
            there = _there(left, stated)
            if not there or len(found) >= MAX_SETTING_FAULTS:
                break
            taken.append(_as_written(there, taken, table))
            parent = _at(left, there[:-1])
            value = parent.pop(int(there[-1]) if isinstance(parent, list) else there[-1])
            meant = _MEANT.fullmatch(refused.problems[0].remedy)
            if meant and refused.problems[0].code == "unknown_setting" and meant[1] not in parent:
                parent[meant[1]] = value
        else:
            if not found:
                return made
            break
    raise InvalidSettings(*(one for _, one in sorted(found, key=itemgetter(0))))


def line_of(text: str, table: dict[str, Any], path: Path) -> int | None:
    """Return the line of the setting at `path`, or of the table that lacks it; None if that is not known."""
    lines = text.splitlines(keepends=True)
    path = _there(table, path)
    ended = 0
    for number in range(1, len(lines) + 1) if path and len(lines) <= MAX_LINES else ():
        try:
            so_far = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue  # within a value of several lines
        if _there(so_far, path) == path:
            return ended + 1
        ended = number
    return None


def _with_line(one: Problem, path: Path, text: str, table: dict[str, Any]) -> tuple[int, Problem]:
    line = line_of(text, table, path) or 0
    where = "".join(f"/{part}" for part in path)
    detail = one.detail.replace(f"`{one.pointer}`", f"`{where}`")
    return line, Problem(where, one.code, f"line {line}: {detail}" if line else detail, one.remedy)


def _as_written(path: Path, taken: Sequence[Path], table: dict[str, Any]) -> Path:
    """The path in the file of what is at `path` now: elements of the same lists were taken out before it."""
    found: Path = ()
    for part in path:
        if isinstance(_at(table, found), list) and part.isdigit():
            at = int(part)
            for gone in sorted(int(one[-1]) for one in taken if one[:-1] == found):
                at += gone <= at
            part = str(at)
        found = (*found, part)
    return found


def _there(table: Any, path: Path) -> Path:
    """The longest part of `path` that is in the table."""
    for length in range(len(path), 0, -1):
        parent, last = _at(table, path[: length - 1]), path[length - 1]
        if (isinstance(parent, dict) and last in parent) or (
            isinstance(parent, list) and last.isdigit() and int(last) < len(parent)
        ):
            return path[:length]
    return ()


def _at(table: Any, path: Path) -> Any:
    """The value at `path`, or None."""
    for part in path:
        if isinstance(table, dict):
            table = table.get(part)
        else:
            table = table[int(part)] if isinstance(table, list) and part.isdigit() and int(part) < len(table) else None
    return table
