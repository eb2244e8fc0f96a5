"""Read a settings file: all of its faults at once, each with its line.

A wrong setting is taken out of the table, or gets the name that was meant. Then the rest is validated again, until no
fault is found. So no fault hides another one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from math import inf
from operator import getitem, itemgetter
from typing import Any, Final

from pydantic import ValidationError

from contextos.contracts.facts import nearest_name
from contextos.contracts.setting_types import QUIET, Fault, Nearest, validator_of
from contextos.errors import InvalidSettings, Problem

SettingPath = tuple[str | int, ...]
LinePath = tuple[str, ...]

MAX_SETTING_FAULTS: Final = 32
MAX_READ_CHARS: Final = 1 << 21
"""How many characters are parsed to find lines: a list of many lines is parsed again at each line. Beyond this limit
faults are reported without their line."""
FOLLOWS: Final = {"driving": "store", "browser_logins": "directory"}
"""Settings whose validity depends on another setting. While the other one is wrong, they are not reported."""


def check_value(kind: Any, value: Any, at: str = "") -> Any:
    """Return a value of a table or a type of settings as it is validated, with tuples for lists. `at` is its pointer.

    Raises:
        InvalidSettings: names each fault.
    """
    try:
        return validator_of(kind).validate_python(value)
    except ValidationError as refused:
        faults = _faults(refused)[:MAX_SETTING_FAULTS]
    # Raised outside the handler of pydantic's error, which holds the values and would become the context of this one.
    raise InvalidSettings(*(_problem(one, one.path, at) for one in faults))


def read_table(kind: Any, text: str, table: dict[str, Any], given: Mapping[str, Any]) -> Any:
    """Return the table of a settings file as a value of `kind`. `text` is the content of the file, and `given` has the
    fields that are not in it. Changes `table`.

    Raises:
        InvalidSettings: names each fault, with its line.
    """
    validate = partial(validator_of(kind).validate_python, table, context=given)
    try:
        return validate()
    except ValidationError as refused:
        faults = _faults(refused)
    left = _Left(table, setting_lines(text))
    found: dict[SettingPath, tuple[float, Fault]] = {}
    while faults:
        for one in faults:
            path = left.as_written(one.path)
            if not left.follows(path):
                found.setdefault(path, (left.line(one.path), one))
        if len(found) >= MAX_SETTING_FAULTS or not left.take_out(faults):
            break
        try:
            validate()
            break
        except ValidationError as refused:
            faults = _faults(refused)
    ordered = sorted(found.items(), key=lambda item: item[1][0])[:MAX_SETTING_FAULTS]
    raise InvalidSettings(*(with_line(_problem(one, path), line) for path, (line, one) in ordered))


class _Left:
    """A table from which wrong settings are taken out. It knows the place in the file of each setting that is left."""

    def __init__(self, table: dict[str, Any], lines: dict[LinePath, int]) -> None:
        self._table, self._lines = table, lines
        self._removed: set[SettingPath] = set()
        self._kept: dict[SettingPath, list[int]] = {}

    def take_out(self, faults: Sequence[Fault]) -> bool:
        """Take out each wrong setting, or give it the name that was meant. Return whether any of them was there."""
        # The last elements of a list go first, so that the others stay where they are until it is their turn.
        wrong = sorted({self.there(one.path): one for one in faults}.items(), key=itemgetter(0), reverse=True)
        for there, one in wrong:
            if not there or self.there(there) != there:
                continue
            *above, name = self.as_written(there)
            parent: Any = reduce(getitem, there[:-1], self._table)  # type: ignore[arg-type]
            if isinstance(parent, list):
                kept = self._kept.setdefault(tuple(above), list(range(len(parent))))
                del kept[there[-1]]  # type: ignore[arg-type]  # of a list it is the index
            value = parent.pop(there[-1])
            self._removed.add((*above, name))
            is_unknown = one.code == "unknown_setting" and isinstance(one.remedy, Nearest)
            meant = nearest_name(*one.remedy) if is_unknown else None
            if meant and meant not in parent:
                parent[meant] = value
                stated = tuple(map(str, (*above, name)))
                for place in [each for each in self._lines if each[: len(stated)] == stated]:
                    self._lines[(*stated[:-1], meant, *place[len(stated) :])] = self._lines[place]
        return any(there for there, _ in wrong)

    def as_written(self, path: SettingPath) -> SettingPath:
        """Return the place in the file of the setting that is at `path` now."""
        written: SettingPath = ()
        for part in path:
            written = (*written, self._kept[written][part] if written in self._kept else part)  # type: ignore[index]
        return written

    def line(self, path: SettingPath) -> float:
        """Return the line of the setting at `path` now, or of the table in which it is missing: 0 if the whole file
        lacks it, infinity if the line is not known.
        """
        there = self.there(path)
        return self._lines.get(tuple(map(str, self.as_written(there))), inf) if there else 0

    def follows(self, path: SettingPath) -> bool:
        """Return whether the fault at `path`, as written, can be due only to settings that were taken out."""
        other = FOLLOWS.get(str(path[0])) if path else None
        return (other,) in self._removed or any(one[: len(path)] == path for one in self._removed)

    def there(self, path: SettingPath) -> SettingPath:
        """Return the longest part of `path` that is in the table."""
        value: Any = self._table
        for length, part in enumerate(path):
            names = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            if part not in names:
                return path[:length]
            value = value[part]
        return path


def _faults(refused: ValidationError) -> list[Fault]:
    """Return the faults of an error of pydantic, each with the path in what was validated."""
    return [_fault(one["type"], one["loc"], one.get("ctx", {}), one["msg"]) for one in refused.errors(**QUIET)]


def _fault(code: str, path: SettingPath, context: Mapping[str, Any], message: str) -> Fault:
    if code == "bad_name":
        path, code = path[:-1], "bad_setting"  # pydantic adds `[key]`
    if code == "missing" and not context:
        return Fault(path, f"`{path[-1]}` is missing", "add it", "missing")
    return Fault(path, context.get("detail", message), context.get("remedy", "correct it"), code)


def _problem(fault: Fault, path: SettingPath, at: str = "") -> Problem:
    where = at + "".join(f"/{str(part)[:80]}" for part in path)
    return Problem(where, fault.code, fault.detail, str(fault.remedy))


def with_line(problem: Problem, line: float) -> Problem:
    """Return a problem that names its line in the file, unless that is 0 or infinite."""
    return replace(problem, detail=f"line {line}: {problem.detail}") if 0 < line < inf else problem


def invalid_setting(pointer: str, code: str, detail: str, remedy: str) -> InvalidSettings:
    """Return the error for one setting; `pointer` names it."""
    return InvalidSettings(Problem(pointer, code, detail, remedy))


@contextmanager
def within(at: str, name: str = "") -> Iterator[None]:
    """Name a setting of the table `at` in an `InvalidSettings` raised within: `name`, or the error's own setting."""
    try:
        yield
    except InvalidSettings as error:
        first = error.problems[0]
        pointer = f"{at}/{name or first.pointer.rpartition('/')[2]}"
        raise invalid_setting(pointer, "bad_setting", first.detail, first.remedy) from None


def setting_lines(text: str) -> dict[LinePath, int]:
    """Return, by path, the line on which each table, setting and list element of a settings file begins."""
    found: dict[LinePath, int] = {}
    last: dict[LinePath, int] = {}
    table: LinePath = ()
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
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _opened(header: Any, last: dict[LinePath, int], *, new: bool) -> LinePath:
    """Return the path of the table that a header opens. `last` has the last index of each list of tables; with `new`,
    another table is added to its list.
    """
    path: LinePath = ()
    while header:
        name = next(iter(header))
        header = header[name][0] if isinstance(header[name], list) else header[name]
        path = (*path, name)
        if new and not header:
            last[path] = last.get(path, -1) + 1
        if path in last:
            path = (*path, str(last[path]))
    return path


def _paths(value: Any, at: LinePath = ()) -> Iterator[LinePath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield (*at, str(key))
        yield from _paths(below, (*at, str(key)))
