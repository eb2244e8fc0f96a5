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
    root, schemas = _read(schema, patterns)
    if not root:
        raise _unusable("its schema says nothing of the arguments")
    extra: list[str] = []

    def build(convert: Convert) -> dict[str, Any]:
        extra.clear()
        made = convert(root, "open")
        if "object" not in (stated := made.get("type", "object")) or (isinstance(stated, str) and stated != "object"):
            raise Inconvertible("the arguments are no object")
        return _closed(made, [*in_place(root, schemas.look_up)], extra)

    made = _made(schemas, "closed", root, build)
    return MadeSchema(made.schema, (*extra, *made.notes))


def tool_answer(schema: Any, patterns: Patterns | None = None) -> MadeSchema:
    """Return the schema of the answer of a tool: an object that refuses nothing that `schema` accepts. `patterns`
    counts the patterns of the draft.

    Raises:
        InvalidInput: the profile cannot express the schema; the detail says why.
    """
    root, schemas = _read(schema, patterns)

    def build(convert: Convert) -> dict[str, Any]:
        made = convert(root, "output")
        if made.setdefault("type", "object") != "object":
            raise Inconvertible("the answer is no object")
        # A closed schema would refuse answers of calls that were made.
        is_stated = {"additionalProperties", "unevaluatedProperties"} & made.keys()
        return made if is_stated else {**made, "additionalProperties": True}

    return _made(schemas, "output", root, build)


def _made(schemas: Schemas, side: Side, root: Any, build: Build) -> MadeSchema:
    try:
        return schemas.made(side, [root], build)
    except Inconvertible as error:
        raise _unusable(str(error)) from None


def _read(schema: Any, patterns: Patterns | None) -> tuple[dict[str, Any], Schemas]:
    if not isinstance(schema, dict):
        raise _unusable("a schema is no object")
    root = {name: one for name, one in schema.items() if name not in _ABOUT_THE_ROOT}
    return root, Schemas(SchemaDocument(schema), patterns)


def _closed(made: dict[str, Any], parts: list[Mapping[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Return a root that accepts only the properties that its parts name. Its rules for unnamed ones still apply."""
    more = made.pop("additionalProperties", True)
    if more is False:
        return {**made, "type": "object", "additionalProperties": False}
    if any(one.get("additionalProperties") not in (None, False) for one in parts):
        notes.append("arguments that its schema does not name cannot be sent")
    of_each: Any = {} if more is True else more
    patterns = {one: of_each for part in parts for one in _object(part.get("patternProperties"))}
    stated = properties_of(parts)
    names = [*(name for name, is_sent in stated.items() if is_sent), *sorted(always_required(parts) - stated.keys())]
    closed: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if "unevaluatedProperties" in made:
        # Inside `allOf` the root does not see the names beside it, so its rules apply as before.
        beside: dict[str, Any] = {"allOf": [made]}
    else:
        patterns |= made.pop("patternProperties", {})
        beside = {**made, "properties": {**dict.fromkeys(names, of_each), **made.get("properties", {})}}
    kept = {"patternProperties": patterns} if patterns else {}
    return {"properties": dict.fromkeys(names, of_each), **beside, **closed, **kept}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _unusable(why: str) -> InvalidInput:
    return InvalidInput(Problem("", "bad_schema", why, "leave it out"))
