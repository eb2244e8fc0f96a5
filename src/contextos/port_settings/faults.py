"""All faults of a settings file at once, each with its line.

A check stops at the first fault. What is wrong is then taken out, or gets the name that was meant, and the rest is
checked, until nothing more is found.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from contextos.errors import InvalidSettings, Problem

ReadT = TypeVar("ReadT")
Path = tuple[str, ...]

MAX_SETTING_FAULTS: Final = 32
MAX_READ_CHARS: Final = 1 << 21
"""How much is read to find lines: a list over many lines is read anew at each. After it no line is named."""
FOLLOWS: Final = {"driving": "store", "browser_logins": "directory", "environment": "profile", "unsafe": "profile"}
"""Settings that are right or wrong by another one. While that is wrong, nothing is said of them."""

_MEANT: Final = re.compile("did you mean `(.+)`\\?")


def read_whole(text: str, table: dict[str, Any], read: Callable[[dict[str, Any]], ReadT]) -> ReadT:
    """Return what `read` makes of the table of a settings file. Raises `InvalidSettings` with every fault in it."""
    left = copy.deepcopy(table)
    taken: list[Path] = []
    found: list[tuple[int, Problem]] = []
    lines: dict[Path, int] = {}
    while True:
        try:
            made = read(left)
        except InvalidSettings as refused:
            lines = lines or setting_lines(text)
            stated = tuple(refused.problems[0].pointer.split("/")[1:])
            path = _as_written(stated, taken, table)
            follows = any(one == (FOLLOWS.get(path[0]),) for one in taken) if path else False
            if not follows and not any(one[: len(path)] == path for one in taken):
                found += [with_line(one, path, lines.get(_there(table, path), 0)) for one in refused.problems]
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


def setting_lines(text: str) -> dict[Path, int]:
    """Return the line on which each table, setting and element of a list of a settings file begins, by its path."""
    found: dict[Path, int] = {}
    last: dict[Path, int] = {}
    table: Path = ()
    statement, ended, read = "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line}\n"
        read += len(statement)
        if read > MAX_READ_CHARS:
            break
        whole = _parsed(statement)
        begun = _parsed(f"{statement}]") if whole is None else whole  # within a list of several lines
        if begun is None:
            continue
        if statement.lstrip().startswith("["):
            table = _opened(begun, last, new=statement.lstrip().startswith("[["))
            for length in range(1, len(table) + 1):
                found.setdefault(table[:length], number)
        else:
            for path in _paths(begun):
                found.setdefault((*table, *path), ended + 1)
        ended, statement = number, statement if whole is None else ""
    return found


def _parsed(statement: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return None


def _opened(header: Any, last: dict[Path, int], *, new: bool) -> Path:
    """The path of the table that a header opens. `last` has the last index of each list of tables; `new` adds one."""
    path: Path = ()
    while header:
        name = next(iter(header))
        header = header[name][0] if isinstance(header[name], list) else header[name]
        path = (*path, name)
        if new and not header:
            last[path] = last.get(path, -1) + 1
        if path in last:
            path = (*path, str(last[path]))
    return path


def _paths(value: Any, at: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield (*at, str(key))
        yield from _paths(below, (*at, str(key)))


def with_line(one: Problem, path: Path, line: int) -> tuple[int, Problem]:
    """Return the line, and a problem of the setting at `path` that names it; 0 where the line is not known."""
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
