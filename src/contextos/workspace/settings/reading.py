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
    except ValidationError as error:
        faults = _faults(error)[:MAX_SETTING_FAULTS]
    # Raised outside the handler of pydantic's error, which holds the values and would become the context of this one.
    raise InvalidSettings(*(_problem(fault, fault.path, at) for fault in faults))


def read_table(kind: Any, text: str, table: dict[str, Any], given: Mapping[str, Any]) -> Any:
    """Return the table of a settings file as a value of `kind`. `text` is the content of the file, and `given` has the
    fields that are not in it. Changes `table`.

    Raises:
        InvalidSettings: names each fault, with its line.
    """
    validate = partial(validator_of(kind).validate_python, table, context=given)
    try:
        return validate()
    except ValidationError as error:
        faults = _faults(error)
    remaining = _RemainingTable(table, setting_lines(text))
    faults_by_path: dict[SettingPath, tuple[float, Fault]] = {}
    while faults:
        for fault in faults:
            path = remaining.as_written(fault.path)
            if not remaining.follows(path):
                faults_by_path.setdefault(path, (remaining.line(fault.path), fault))
        if len(faults_by_path) >= MAX_SETTING_FAULTS or not remaining.take_out(faults):
            break
        try:
            validate()
            break
        except ValidationError as error:
            faults = _faults(error)
    ordered = sorted(faults_by_path.items(), key=lambda item: item[1][0])[:MAX_SETTING_FAULTS]
    raise InvalidSettings(*(with_line(_problem(fault, path), line) for path, (line, fault) in ordered))


class _RemainingTable:
    """A table from which wrong settings are taken out. Knows the place in the file of each remaining setting."""

    def __init__(self, table: dict[str, Any], lines: dict[LinePath, int]) -> None:
        self._table, self._lines = table, lines
        self._removed: set[SettingPath] = set()
        self._indexes: dict[SettingPath, list[int]] = {}

    def take_out(self, faults: Sequence[Fault]) -> bool:
        """Take out each wrong setting, or give it the name that was meant. Return whether any of them was there."""
        # The last elements of a list go first, so that the others stay where they are until it is their turn.
        by_place = sorted({self.there(fault.path): fault for fault in faults}.items(), key=itemgetter(0), reverse=True)
        for place, fault in by_place:
            if not place or self.there(place) != place:
                continue
            *above, name = self.as_written(place)
            parent: Any = reduce(getitem, place[:-1], self._table)  # type: ignore[arg-type]
            if isinstance(parent, list):
                indexes = self._indexes.setdefault(tuple(above), list(range(len(parent))))
                del indexes[place[-1]]  # type: ignore[arg-type]  # of a list it is the index
            value = parent.pop(place[-1])
            self._removed.add((*above, name))
            is_unknown = fault.code == "unknown_setting" and isinstance(fault.remedy, Nearest)
            nearest = nearest_name(*fault.remedy) if is_unknown else None
            if nearest and nearest not in parent:
                parent[nearest] = value
                old_path = tuple(map(str, (*above, name)))
                for line_path in [path for path in self._lines if path[: len(old_path)] == old_path]:
                    self._lines[(*old_path[:-1], nearest, *line_path[len(old_path) :])] = self._lines[line_path]
        return any(place for place, _ in by_place)

    def as_written(self, path: SettingPath) -> SettingPath:
        """Return the place in the file of the setting that is at `path` now."""
        file_path: SettingPath = ()
        for part in path:
            file_path = (*file_path, self._indexes[file_path][part] if file_path in self._indexes else part)  # type: ignore[index]
        return file_path

    def line(self, path: SettingPath) -> float:
        """Return the line of the setting at `path` now, or of the table in which it is missing: 0 if the whole file
        lacks it, infinity if the line is not known.
        """
        place = self.there(path)
        return self._lines.get(tuple(map(str, self.as_written(place))), inf) if place else 0

    def follows(self, path: SettingPath) -> bool:
        """Return whether the fault at `path`, as written, can be due only to settings that were taken out."""
        dependency = FOLLOWS.get(str(path[0])) if path else None
        return (dependency,) in self._removed or any(removed[: len(path)] == path for removed in self._removed)

    def there(self, path: SettingPath) -> SettingPath:
        """Return the longest part of `path` that is in the table."""
        value: Any = self._table
        for length, part in enumerate(path):
            names = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            if part not in names:
                return path[:length]
            value = value[part]
        return path


def _faults(error: ValidationError) -> list[Fault]:
    """Return the faults of an error of pydantic, each with the path in what was validated."""
    return [_fault(item["type"], item["loc"], item.get("ctx", {}), item["msg"]) for item in error.errors(**QUIET)]


def _fault(code: str, path: SettingPath, context: Mapping[str, Any], message: str) -> Fault:
    if code == "bad_name":
        path, code = path[:-1], "bad_setting"  # pydantic adds `[key]`
    if code == "missing" and not context:
        return Fault(path, f"`{path[-1]}` is missing", "add it", "missing")
    return Fault(path, context.get("detail", message), context.get("remedy", "correct it"), code)


def _problem(fault: Fault, path: SettingPath, prefix: str = "") -> Problem:
    pointer = prefix + "".join(f"/{str(part)[:80]}" for part in path)
    return Problem(pointer, fault.code, fault.detail, str(fault.remedy))


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
        problem = error.problems[0]
        pointer = f"{at}/{name or problem.pointer.rpartition('/')[2]}"
        raise invalid_setting(pointer, "bad_setting", problem.detail, problem.remedy) from None


def setting_lines(text: str) -> dict[LinePath, int]:
    """Return, by path, the line on which each table, setting and list element of a settings file starts."""
    lines: dict[LinePath, int] = {}
    last_indexes: dict[LinePath, int] = {}
    table: LinePath = ()
    statement, previous_end, parsed_chars = "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line}\n"
        parsed_chars += len(statement)
        if parsed_chars > MAX_READ_CHARS:
            break
        complete = _parse_statement(statement)
        content = _parse_statement(f"{statement}]") if complete is None else complete  # within a list of several lines
        if content is None:
            continue
        if statement.lstrip().startswith("["):
            table = _table_path(content, last_indexes, appends=statement.lstrip().startswith("[["))
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
        else:
            for path in _setting_paths(content):
                lines.setdefault((*table, *path), previous_end + 1)
        previous_end, statement = number, statement if complete is None else ""
    return lines


def _parse_statement(statement: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(statement)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _table_path(header: Any, last_indexes: dict[LinePath, int], *, appends: bool) -> LinePath:
    """Return the path of the table that a header opens. `last_indexes` has the last index of each list of tables; with
    `appends`, another table is added to its list.
    """
    path: LinePath = ()
    while header:
        name = next(iter(header))
        header = header[name][0] if isinstance(header[name], list) else header[name]
        path = (*path, name)
        if appends and not header:
            last_indexes[path] = last_indexes.get(path, -1) + 1
        if path in last_indexes:
            path = (*path, str(last_indexes[path]))
    return path


def _setting_paths(value: Any, prefix: LinePath = ()) -> Iterator[LinePath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield (*prefix, str(key))
        yield from _setting_paths(child, (*prefix, str(key)))
