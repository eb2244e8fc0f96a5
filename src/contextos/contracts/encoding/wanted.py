"""Says in words, for the author of a document, what a model accepts at a place: derived from the model's JSON Schema.

No text here repeats a value of the document. Names of its members occur, as they do in pointers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from contextos.contracts.encoding.pointer import MISSING, pointer, resolve_pointer
from contextos.contracts.encoding.safe_patterns import pattern_example, safe_pattern

MAX_NAMES_SHOWN: Final = 24
MAX_PATTERN_SHOWN_CHARS: Final = 40
_KINDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_BOUNDS: Final = {
    "minimum": "from",
    "maximum": "to",
    "exclusiveMinimum": "above",
    "exclusiveMaximum": "below",
    "minLength": "of at least",
    "maxLength": "of at most",
}
_THREE_NUMBERS: Final = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$"
_CHARACTERS: Final = re.compile(r"\^(?:\(\?:)?\[(?P<each>[^]\\^]+)\]\{(?P<least>[0-9]+),(?P<most>[0-9]+)\}\)?\$")
_CLASSES: Final = {"A-Za-z": "letters", "A-Z": "capital letters", "a-z": "small letters", "0-9": "digits"}
_LARGEST: Final = 10**9
_LONGEST: Final = 512
"""Bounds from these values on only protect the reader, so an author does not see them."""


def explained(model: type[BaseModel], path: Sequence[str | int], kind: str, document: Any) -> tuple[str, str] | None:
    """Return what is wrong at the path `path` of `document`, and the remedy; None for a fault of another kind.

    `kind` is pydantic's name of the fault. If the first text is empty, pydantic's own words describe the fault.
    """
    if kind == "extra_forbidden":
        names = list(dict.fromkeys(name for one in schemas_at(model, path[:-1]) for name in _written(one)))
        if not names:
            return None
        given = resolve_pointer(document, pointer(path[:-1]))
        near = _nearest(
            str(path[-1])[:200], [one for one in names if not isinstance(given, Mapping) or one not in given]
        )
        listed = ", ".join(f"`{one}`" for one in names[:MAX_NAMES_SHOWN]) + ", …" * (len(names) > MAX_NAMES_SHOWN)
        remedy = f"did you mean `{near}`?" if near else f"remove it; the names here are {listed}"
        return f"there is no `{str(path[-1])[:80]}` here", remedy
    schemas = schemas_at(model, path)
    wanted = words_for(schemas, _schema(model))
    if kind == "missing":
        return f"`{path[-1]}` is missing", f"add it: {wanted}" if wanted else "add it"
    value = resolve_pointer(document, pointer(path))
    if not wanted or value is MISSING:
        return None
    if kind == "string_pattern_mismatch":
        return "it does not have the form that is wanted", f"write {wanted}"
    if kind in ("literal_error", "enum"):
        allowed = [one for schema in schemas for one in _allowed(schema) if isinstance(one, str)]
        near = _nearest(value, allowed) if isinstance(value, str) else None
        return "it is not one of the allowed values", f"did you mean `{near}`?" if near else f"write {wanted}"
    if kind in ("too_short", "too_long") and isinstance(value, list | dict):
        return f"it has {len(value)} items, which is too {'few' if kind == 'too_short' else 'many'}", f"write {wanted}"
    if kind.endswith("_type") or kind == "int_from_float":
        forms = (one for one in schemas if (form := safe_pattern(one.get("pattern", ""))) and form.search(str(value)))
        quoted = isinstance(value, bool | int | float) and any(one.get("type") == "string" for one in forms)
        return f"it is {name_of(value)}", f"write {wanted}" + (", in quotes" if quoted else "")
    return None if kind in ("value_error", "assertion_error", "sealing") else ("", f"write {wanted}")


def _nearest(name: str, known: Sequence[str]) -> str | None:
    return next(iter(get_close_matches(name[:200], known, n=1)), None)


def name_of(value: Any) -> str:
    """Return the type of a JSON value in words, such as `a list`."""
    if isinstance(value, bool):
        return "a truth value (true or false)"
    found = {str: "string", int: "number", float: "number", list: "array", dict: "object", type(None): "null"}
    return _KINDS[found.get(type(value), "object")]


def words_for(schemas: Sequence[Mapping[str, Any]], root: Any) -> str:
    """Return what schemas accept, such as ``a text like `1.0.0` ``; empty if anything. References are into `root`."""
    every = dict.fromkeys(text for one in schemas if (text := _words(one, root)))
    plain = [one for one in every if one != "null" and not (one == "a whole number" and "a number" in every)]
    return " or ".join(plain or every)


def _words(schema: Mapping[str, Any], root: Any) -> str:
    if allowed := _allowed(schema):
        return "one of " * (len(allowed) > 1) + ", ".join(f"`{one}`" for one in allowed[:MAX_NAMES_SHOWN])
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        return ""
    made = _KINDS[kind]
    pattern = schema["pattern"] if isinstance(schema.get("pattern"), str) else ""
    if pattern == _THREE_NUMBERS:
        return f"{made} of three numbers and two dots, such as `1.0.0`"
    if of := _CHARACTERS.fullmatch(pattern):
        each = (_CLASSES.get(one, f"`{one}`") for one in re.findall("A-Za-z|.-.|.", of["each"]))
        return f"{made} of {of['least']} to {of['most']} characters: {', '.join(each)}"
    if example := pattern_example(pattern):
        shown = f" (pattern `{schema['pattern']}`)" if len(schema["pattern"]) <= MAX_PATTERN_SHOWN_CHARS else ""
        return f"{made} like `{example}`{shown}"
    if kind == "array":
        made += _entries([*branches_of(root, schema.get("items"))])
    made += ' (`{"name": "value"}`)' * (kind == "object" and not _written(schema))
    most = {one: _LONGEST if one.endswith("Length") else _LARGEST for one in _BOUNDS}
    bounds = {one: schema[one] for one in _BOUNDS if one in schema and abs(schema[one]) < most[one]}
    made += "".join(f" {_BOUNDS[one]} {bound}" for one, bound in bounds.items() if one != "minLength" or bound > 1)
    made += " characters" * any(one.endswith("Length") and bounds[one] > 1 for one in bounds)
    return made + _members(schema) * (kind == "object")


def _entries(items: Sequence[Mapping[str, Any]]) -> str:
    """Return in words the type of the items of a list; empty if they are not texts, numbers or objects."""
    kinds = {one.get("type") for one in items}
    if kinds == {"object"}:
        return f" of objects{_members(items[0]) if len(items) == 1 else ''}"
    return ' (`["a", "b"]`)' if "string" in kinds else " (`[1, 2]`)" if kinds & {"integer", "number"} else ""


def _members(schema: Mapping[str, Any]) -> str:
    """Return in words the members that an author has to write, or the optional members if none is required."""
    written = _written(schema)
    names = [one for one in written if one in schema.get("required", ())] or written
    return f" with {', '.join(f'`{one}`' for one in names[:MAX_NAMES_SHOWN])}" if names else ""


def _written(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the members that an author can write: those that are not `readOnly`."""
    return [name for name, one in schema.get("properties", {}).items() if not one.get("readOnly")]


def _allowed(schema: Mapping[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def schemas_at(model: type[BaseModel], path: Sequence[str | int]) -> list[Mapping[str, Any]]:
    """Return the schemas that a model has for the place `path`, with references and unions resolved; empty if open."""
    root = _schema(model)
    found = list(branches_of(root, root))
    for step in path:
        found = [child for one in found for below in _below(one, step) for child in branches_of(root, below)]
    return found


@lru_cache(64)
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema()
    except (PydanticUserError, AssertionError):  # a model with a reader of its own has no schema
        return {}


def branches_of(root: Any, node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of which `node` consists: the schema it refers to, and the branches of its unions."""
    waiting, seen = [node], set[int]()
    for one in waiting:  # grows while it is walked
        if not isinstance(one, Mapping) or id(one) in seen:
            continue
        seen.add(id(one))
        if "$ref" in one:
            waiting.append(resolve_pointer(root, str(one["$ref"])[1:]))
        branches = [branch for keyword in ("anyOf", "oneOf", "allOf") for branch in one.get(keyword, ())]
        waiting += branches
        if "$ref" not in one and not branches:
            yield one


def _below(schema: Mapping[str, Any], step: str | int) -> Iterator[Any]:
    if isinstance(step, str):
        named = schema.get("properties", {})
        yield named[step] if step in named else schema.get("additionalProperties")
    else:
        yield schema.get("items")
