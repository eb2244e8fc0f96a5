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
_VERSION_PATTERN: Final = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$"
_CHARACTERS_PATTERN: Final = re.compile(
    r"\^(?:\(\?:)?\[(?P<members>[^]\\^]+)\]\{(?P<min>[0-9]+),(?P<max>[0-9]+)\}\)?\$"
)
_CLASSES: Final = {"A-Za-z": "letters", "A-Z": "capital letters", "a-z": "small letters", "0-9": "digits"}
_UNSHOWN_NUMBER: Final = 10**9
_UNSHOWN_LENGTH: Final = 512
"""A bound of this size or larger only protects the reader of the document, so its author is not told the bound."""


def explained(model: type[BaseModel], path: Sequence[str | int], kind: str, document: Any) -> tuple[str, str] | None:
    """Return what is wrong at `path` in `document`, and the remedy; None if only pydantic's own texts describe it.

    `kind` is the type of the pydantic error. If the first text is empty, pydantic's message says what is wrong.
    """
    if kind == "extra_forbidden":
        names = list(dict.fromkeys(name for schema in schemas_at(model, path[:-1]) for name in _writable_names(schema)))
        if not names:
            return None
        parent = resolve_pointer(document, pointer(path[:-1]))
        unused = [name for name in names if not isinstance(parent, Mapping) or name not in parent]
        suggestion = _nearest_name(str(path[-1])[:200], unused)
        listing = ", ".join(f"`{name}`" for name in names[:MAX_NAMES_SHOWN]) + ", …" * (len(names) > MAX_NAMES_SHOWN)
        remedy = f"did you mean `{suggestion}`?" if suggestion else f"remove it; the names here are {listing}"
        return f"there is no `{str(path[-1])[:80]}` here", remedy
    schemas = schemas_at(model, path)
    accepted = words_for(schemas, _json_schema(model))
    if kind == "missing":
        return f"`{path[-1]}` is missing", f"add it: {accepted}" if accepted else "add it"
    value = resolve_pointer(document, pointer(path))
    if not accepted or value is MISSING:
        return None
    if kind == "string_pattern_mismatch":
        return "it does not have the form that is wanted", f"write {accepted}"
    if kind in ("literal_error", "enum"):
        texts = [item for schema in schemas for item in _enum_values(schema) if isinstance(item, str)]
        suggestion = _nearest_name(value, texts) if isinstance(value, str) else None
        remedy = f"did you mean `{suggestion}`?" if suggestion else f"write {accepted}"
        return "it is not one of the allowed values", remedy
    if kind in ("too_short", "too_long") and isinstance(value, list | dict):
        fault = f"it has {len(value)} items, which is too {'few' if kind == 'too_short' else 'many'}"
        return fault, f"write {accepted}"
    if kind.endswith("_type") or kind == "int_from_float":
        patterns = ((schema, safe_pattern(schema.get("pattern", ""))) for schema in schemas)
        matching = (schema for schema, pattern in patterns if pattern and pattern.search(str(value)))
        needs_quotes = isinstance(value, bool | int | float) and any(
            schema.get("type") == "string" for schema in matching
        )
        return f"it is {name_of(value)}", f"write {accepted}" + (", in quotes" if needs_quotes else "")
    return None if kind in ("value_error", "assertion_error", "sealing") else ("", f"write {accepted}")


def _nearest_name(name: str, known_names: Sequence[str]) -> str | None:
    return next(iter(get_close_matches(name[:200], known_names, n=1)), None)


def name_of(value: Any) -> str:
    """Return the type of a JSON value in words, such as `a list`."""
    if isinstance(value, bool):
        return "a truth value (true or false)"
    types = {str: "string", int: "number", float: "number", list: "array", dict: "object", type(None): "null"}
    return _KINDS[types.get(type(value), "object")]


def words_for(schemas: Sequence[Mapping[str, Any]], root: Any) -> str:
    """Return in words what the schemas accept, such as `a whole number from 1 to 9`; empty if they accept anything.

    `root` is the schema in which their references are resolved.
    """
    texts = dict.fromkeys(text for schema in schemas if (text := _describe_schema(schema, root)))
    plain = [text for text in texts if text != "null" and not (text == "a whole number" and "a number" in texts)]
    return " or ".join(plain or texts)


def _describe_schema(schema: Mapping[str, Any], root: Any) -> str:
    if values := _enum_values(schema):
        return "one of " * (len(values) > 1) + ", ".join(f"`{value}`" for value in values[:MAX_NAMES_SHOWN])
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        return ""
    text = _KINDS[kind]
    pattern = schema["pattern"] if isinstance(schema.get("pattern"), str) else ""
    if pattern == _VERSION_PATTERN:
        return f"{text} of three numbers and two dots, such as `1.0.0`"
    if match := _CHARACTERS_PATTERN.fullmatch(pattern):
        classes = (_CLASSES.get(part, f"`{part}`") for part in re.findall("A-Za-z|.-.|.", match["members"]))
        return f"{text} of {match['min']} to {match['max']} characters: {', '.join(classes)}"
    if example := pattern_example(pattern):
        pattern_note = f" (pattern `{schema['pattern']}`)" if len(schema["pattern"]) <= MAX_PATTERN_SHOWN_CHARS else ""
        return f"{text} like `{example}`{pattern_note}"
    if kind == "array":
        text += _describe_items([*branches_of(root, schema.get("items"))])
    text += ' (`{"name": "value"}`)' * (kind == "object" and not _writable_names(schema))
    limits = {keyword: _UNSHOWN_LENGTH if keyword.endswith("Length") else _UNSHOWN_NUMBER for keyword in _BOUNDS}
    bounds = {name: schema[name] for name, limit in limits.items() if name in schema and abs(schema[name]) < limit}
    text += "".join(f" {_BOUNDS[name]} {bound}" for name, bound in bounds.items() if name != "minLength" or bound > 1)
    text += " characters" * any(name.endswith("Length") and bound > 1 for name, bound in bounds.items())
    return text + _describe_members(schema) * (kind == "object")


def _describe_items(schemas: Sequence[Mapping[str, Any]]) -> str:
    """Return in words the type of the items of a list; empty if they are not texts, numbers or objects."""
    types = {schema.get("type") for schema in schemas}
    if types == {"object"}:
        return f" of objects{_describe_members(schemas[0]) if len(schemas) == 1 else ''}"
    return ' (`["a", "b"]`)' if "string" in types else " (`[1, 2]`)" if types & {"integer", "number"} else ""


def _describe_members(schema: Mapping[str, Any]) -> str:
    """Return in words the members that an author has to write, or the optional members if none is required."""
    writable = _writable_names(schema)
    names = [name for name in writable if name in schema.get("required", ())] or writable
    return f" with {', '.join(f'`{name}`' for name in names[:MAX_NAMES_SHOWN])}" if names else ""


def _writable_names(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the members that an author can write: the members that are not `readOnly`."""
    return [name for name, member in schema.get("properties", {}).items() if not member.get("readOnly")]


def _enum_values(schema: Mapping[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def schemas_at(model: type[BaseModel], path: Sequence[str | int]) -> list[Mapping[str, Any]]:
    """Return the schemas of a model for the value at `path`, with references and unions resolved; empty if the model
    has no schema for that value.
    """
    root = _json_schema(model)
    schemas = list(branches_of(root, root))
    for step in path:
        children = [child for schema in schemas for child in _child_schemas(schema, step)]
        schemas = [branch for child in children for branch in branches_of(root, child)]
    return schemas


@lru_cache(64)
def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema()
    except (PydanticUserError, AssertionError):  # a model with a reader of its own has no schema
        return {}


def branches_of(root: Any, node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of which `node` consists: the schema it refers to, and the branches of its unions."""
    queue, seen = [node], set[int]()
    for schema in queue:  # grows while it is walked
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        if "$ref" in schema:
            queue.append(resolve_pointer(root, str(schema["$ref"])[1:]))
        branches = [branch for keyword in ("anyOf", "oneOf", "allOf") for branch in schema.get(keyword, ())]
        queue += branches
        if "$ref" not in schema and not branches:
            yield schema


def _child_schemas(schema: Mapping[str, Any], step: str | int) -> Iterator[Any]:
    if isinstance(step, str):
        properties = schema.get("properties", {})
        yield properties[step] if step in properties else schema.get("additionalProperties")
    else:
        yield schema.get("items")
