"""Converts the schemas that a tool itself states, as tools of MCP servers do, to the profile.

Arguments are one object whose root names every property that any part of it names. So a root that only has alternatives
keeps their meaning, and accepts no unnamed property. An answer stays as open as its schema is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contextos.adapters.foreign.keywords import Inconvertible, Side
from contextos.adapters.foreign.parts import always_required, in_place, properties_of
from contextos.adapters.foreign.schema_document import SchemaDocument
from contextos.adapters.foreign.schemas import Build, Convert, MadeSchema, Schemas
from contextos.adapters.foreign.texts import Patterns
from contextos.errors import InvalidInput, Problem

_ABOUT_THE_ROOT: Final = ("$id", "$schema", "id")
"""Keywords of a root that do not constrain a value."""


def tool_arguments(schema: Any, patterns: Patterns | None = None) -> MadeSchema:
    """Return the schema of the arguments of a tool: a closed object that accepts nothing that `schema` refuses.
    `patterns` counts the patterns of the draft.

    Raises:
        InvalidInput: the profile cannot express the schema; the detail says why.
    """
    root, schemas = _read_root(schema, patterns)
    if not root:
        raise _unusable("its schema says nothing of the arguments")
    extra: list[str] = []

    def build(convert: Convert) -> dict[str, Any]:
        extra.clear()
        converted = convert(root, "open")
        if "object" not in (types := converted.get("type", "object")) or (isinstance(types, str) and types != "object"):
            raise Inconvertible("the arguments are not an object")
        return _close_root(converted, [*in_place(root, schemas.look_up)], extra)

    result = _make_schema(schemas, "closed", root, build)
    return MadeSchema(result.schema, (*extra, *result.notes))


def tool_answer(schema: Any, patterns: Patterns | None = None) -> MadeSchema:
    """Return the schema of the answer of a tool: an object that refuses nothing that `schema` accepts. `patterns`
    counts the patterns of the draft.

    Raises:
        InvalidInput: the profile cannot express the schema; the detail says why.
    """
    root, schemas = _read_root(schema, patterns)

    def build(convert: Convert) -> dict[str, Any]:
        answer = convert(root, "output")
        if answer.setdefault("type", "object") != "object":
            raise Inconvertible("the answer is not an object")
        # A closed schema would refuse answers of calls that were made.
        is_stated = {"additionalProperties", "unevaluatedProperties"} & answer.keys()
        return answer if is_stated else {**answer, "additionalProperties": True}

    return _make_schema(schemas, "output", root, build)


def _make_schema(schemas: Schemas, side: Side, root: Any, build: Build) -> MadeSchema:
    try:
        return schemas.made(side, [root], build)
    except Inconvertible as error:
        raise _unusable(str(error)) from None


def _read_root(schema: Any, patterns: Patterns | None) -> tuple[dict[str, Any], Schemas]:
    if not isinstance(schema, dict):
        raise _unusable("a schema is not an object")
    root = {name: value for name, value in schema.items() if name not in _ABOUT_THE_ROOT}
    return root, Schemas(SchemaDocument(schema), patterns)


def _close_root(root: dict[str, Any], parts: list[Mapping[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Return a root that accepts only the properties that its parts name. Its rules for unnamed ones still apply."""
    extra = root.pop("additionalProperties", True)
    if extra is False:
        return {**root, "type": "object", "additionalProperties": False}
    if any(part.get("additionalProperties") not in (None, False) for part in parts):
        notes.append("arguments that its schema does not name cannot be sent")
    value_schema: Any = {} if extra is True else extra
    patterns = {pattern: value_schema for part in parts for pattern in _object(part.get("patternProperties"))}
    props = properties_of(parts)
    names = [*(name for name, is_sent in props.items() if is_sent), *sorted(always_required(parts) - props.keys())]
    closing: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if "unevaluatedProperties" in root:
        # Inside `allOf` the root does not see the names beside it, so its rules apply as before.
        rest: dict[str, Any] = {"allOf": [root]}
    else:
        patterns |= root.pop("patternProperties", {})
        rest = {**root, "properties": {**dict.fromkeys(names, value_schema), **root.get("properties", {})}}
    pattern_part = {"patternProperties": patterns} if patterns else {}
    return {"properties": dict.fromkeys(names, value_schema), **rest, **closing, **pattern_part}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _unusable(reason: str) -> InvalidInput:
    return InvalidInput(Problem("", "bad_schema", reason, "leave it out"))
