"""The parts of a schema that are about the same value as the whole, and the properties that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONAL: Final = ("if", "then", "else")


def in_place(schema: Any, look_up: Callable[[str], Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every part of it that is about the same value, also through references."""
    waiting, seen = [schema], set[str]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict):
            continue
        yield one
        reference = one.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            waiting.append(look_up(reference))
        waiting += [one[keyword] for keyword in _CONDITIONAL if keyword in one]
        for keyword in IN_PLACE_LISTS:
            waiting += one[keyword] if isinstance(one.get(keyword), list) else ()
        for keyword in ("dependentSchemas", "dependencies"):
            waiting += one[keyword].values() if isinstance(one.get(keyword), dict) else ()


def properties_of(parts: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Return the properties that parts of a schema name, and whether each can be sent."""
    found: dict[str, bool] = {}
    for part in parts:
        properties = part.get("properties")
        for name, one in properties.items() if isinstance(properties, dict) else ():
            found[name] = found.get(name, True) and not (isinstance(one, dict) and one.get("readOnly") is True)
    return found


def always_required(parts: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the properties that parts of a schema require, but for those that are conditions."""
    parts = [*parts]
    conditions = {id(part[keyword]) for part in parts for keyword in _CONDITIONAL if keyword in part}
    lists = [part.get("required") for part in parts if id(part) not in conditions]
    return {str(name) for names in lists if isinstance(names, list) for name in names}
