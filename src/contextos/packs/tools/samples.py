"""Makes up a value that fits a JSON Schema, so that a tool without a written answer has one in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.encoding.safe_patterns import pattern_example

MAX_SAMPLE_DEPTH: Final = 8
MAX_SAMPLE_ITEMS: Final = 16
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "email": "somebody@example.com",
    "time": "00:00:00Z",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample_value(schema: Mapping[str, Any], like: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Return a value that most likely fits a schema: the first stated choice, else the smallest value. A property of
    `like` is copied where the schema has a property of this name and type. None below `MAX_SAMPLE_DEPTH`.

    >>> sample_value({"type": "object", "properties": {"id": {"type": "string"}, "ok": {"const": 1}}}, {"id": "a"})
    {'id': 'a', 'ok': 1}
    """
    for name in ("examples", "enum", "oneOf", "anyOf"):
        if isinstance(choices := schema.get(name), list) and choices:
            return sample_value(choices[0], like, depth + 1) if name.endswith("Of") else choices[0]
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    if depth > MAX_SAMPLE_DEPTH or not isinstance(kind, str) or kind not in _SAMPLES:
        return None
    return _SAMPLES[kind](schema, like or {}, depth)


def _object(schema: Mapping[str, Any], like: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties, sample = schema.get("properties", {}), dict[str, Any]()
    for name, member in [*properties.items()][: MAX_SAMPLE_ITEMS * MAX_SAMPLE_ITEMS]:
        if isinstance(member, Mapping):
            copied = like.get(name)
            fits = isinstance(copied, _TYPES.get(str(member.get("type")), ()))
            sample[name] = copied if fits else sample_value(member, like, depth + 1)
    return sample


def _array(schema: Mapping[str, Any], like: Mapping[str, Any], depth: int) -> list[Any]:
    items, least = schema.get("items"), schema.get("minItems", 0)
    count = min(least, MAX_SAMPLE_ITEMS) if isinstance(least, int) else 0
    return [sample_value(items, like, depth + 1) for _ in range(count)] if isinstance(items, Mapping) else []


def _string(schema: Mapping[str, Any], _like: Mapping[str, Any], _depth: int) -> str:
    if isinstance(pattern := schema.get("pattern"), str):
        return pattern_example(pattern) or ""
    least = schema.get("minLength", 0)
    return _FORMATS.get(
        str(schema.get("format")), "sample".ljust(min(least, 256) if isinstance(least, int) else 0, "_")
    )


def _number(schema: Mapping[str, Any], _like: Mapping[str, Any], _depth: int) -> Any:
    if isinstance(above := schema.get("exclusiveMinimum"), int | float):
        return above + 1
    lowest, highest = (schema.get(name, 1) for name in ("minimum", "maximum"))
    return max(lowest, min(1, highest))


_TYPES: Final[dict[str, Any]] = {"string": str, "integer": int, "number": int | float, "boolean": bool}
_SAMPLES: Final[Mapping[str, Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": lambda *_: True,
}
