"""Finds the parts of a schema: the parts that apply to the same value as the whole, the properties that they name, and
all subschemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONAL: Final = ("if", "then", "else")
_IN_MAPS: Final = ("dependencies", "dependentSchemas", "patternProperties", "properties")
_IN_LISTS: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_SINGLE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def in_place(schema: Any, look_up: Callable[[str], Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every part of it that applies to the same value, also through references."""
    waiting, seen = [schema], set[str]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        yield part
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            waiting.append(look_up(reference))
        waiting += [part[keyword] for keyword in _CONDITIONAL if keyword in part]
        for keyword in IN_PLACE_LISTS:
            waiting += part[keyword] if isinstance(part.get(keyword), list) else ()
        for keyword in ("dependentSchemas", "dependencies"):
            waiting += part[keyword].values() if isinstance(part.get(keyword), dict) else ()


def properties_of(parts: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Return the properties that parts of a schema name, and whether each can be sent."""
    sendable: dict[str, bool] = {}
    for part in parts:
        properties = part.get("properties")
        for name, sub in properties.items() if isinstance(properties, dict) else ():
            sendable[name] = sendable.get(name, True) and not (isinstance(sub, dict) and sub.get("readOnly") is True)
    return sendable


def always_required(parts: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the properties that parts of a schema require, without the parts that are conditions."""
    parts = [*parts]
    conditions = {id(part[keyword]) for part in parts for keyword in _CONDITIONAL if keyword in part}
    lists = [part.get("required") for part in parts if id(part) not in conditions]
    return {str(name) for names in lists if isinstance(names, list) for name in names}


def all_below(schema: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield a schema and all its subschemas, each with its depth."""
    waiting = [(schema, 1)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, dict):
            yield node, depth
            waiting += [(part, depth + 1) for part in _subschemas(node)]


def _subschemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in _SINGLE:
        if keyword in schema:
            yield schema[keyword]
    for keyword in _IN_LISTS:
        if isinstance(schema.get(keyword), list):
            yield from schema[keyword]
    for keyword in _IN_MAPS:
        if isinstance(schema.get(keyword), dict):
            yield from schema[keyword].values()


def is_alternative(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema consists of alternatives only, so that each of them is closed on its own."""
    lists = [keyword for keyword in IN_PLACE_LISTS if keyword in schema]
    if not schema.keys().isdisjoint(("$ref", "dependentSchemas", "if", "patternProperties", "properties", "required")):
        return False
    if lists == ["allOf"]:
        return isinstance(schema["allOf"], list) and len(schema["allOf"]) == 1
    return len(lists) == 1


def base_of(schema: Mapping[str, Any]) -> str | None:
    """Return the keyword (`$id`, or `id` in draft 4) that changes the base of the references below a schema, or None. A
    value that is only a fragment does not change it.
    """
    keys = [key for key in ("$id", "id") if isinstance(schema.get(key), str) and not schema[key].startswith("#")]
    refers = keys and any(isinstance(part.get("$ref"), str) for part, _ in all_below(schema))
    return keys[0] if refers else None
