"""Check that a capability's JSON Schema (2020-12) fits the profile: each keyword is enforced, and checks are bounded.

The profile refuses a keyword or `format` that the validator does not enforce, a schema of arguments that accepts
unnamed properties, references that leave the schema or are circular, and schemas beyond the size limits.
Source: docs/design/standards.md, "JSON Schema".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import Any, Final, NoReturn

import jsonschema_rs

from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.encoding.defaults import shape_of
from contextos.contracts.encoding.pointer import pointer, resolve_pointer
from contextos.errors import InvalidArtifact, Problem

MAX_SCHEMA_DEPTH: Final = 32
MAX_SUBSCHEMAS: Final = 2_000
"""The most subschemas in a schema. Each reference counts as a copy of the subschema that it refers to."""

FORMATS: Final = frozenset({
    "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri",
    "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference",
    "uri-template", "uuid",
})  # fmt: skip
"""The values of `format` that the validator enforces."""

_MAP_KEYWORDS: Final = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
_LIST_KEYWORDS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_KEYWORDS: Final = frozenset({
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems",
    "unevaluatedProperties",
})  # fmt: skip
_VALUE_KEYWORDS: Final = frozenset({
    "$comment", "$ref", "const", "default", "dependentRequired", "deprecated", "description", "enum", "examples",
    "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems", "maxLength", "maxProperties",
    "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern",
    "readOnly", "required", "title", "type", "uniqueItems", "writeOnly",
})  # fmt: skip
_FILLED_KEYWORDS: Final = _LIST_KEYWORDS | {"additionalProperties", "items", "properties"}
"""The keywords below which `with_defaults` fills in values."""

_KEYWORDS: Final = _MAP_KEYWORDS | _LIST_KEYWORDS | _SCHEMA_KEYWORDS | _VALUE_KEYWORDS
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TOO_LARGE: Final = (
    f"is larger than depth {MAX_SCHEMA_DEPTH} or {MAX_SUBSCHEMAS} subschemas, with its references written out"
)

_Path = tuple[str | int, ...]


def profile(schema: Mapping[str, Any], name: str, *, answers: bool = False) -> None:
    """Check a schema by the rules of this module. Its root must be an object without unnamed properties.

    The schema of `answers` can state that it accepts unnamed properties: a server that adds one does not undo a call.

    Raises:
        InvalidArtifact: the schema violates the profile; `name` says which schema.
    """

    def refuse(code: str, path: _Path, detail: str, remedy: str) -> NoReturn:
        suffix = f" at `{pointer(path)[:200]}`" if path else ""
        raise InvalidArtifact(Problem("", code, f"`{name}` {detail}{suffix}", remedy))

    if schema.get("type") != "object":
        refuse("schema_root", (), "is not an object at its root", "set `type` to `object`")
    openness = schema.get("additionalProperties"), schema.get("unevaluatedProperties")
    if False not in openness and (not answers or openness == (None, None)):
        alternative = ", or to true for answers that have more" if answers else ""
        refuse("schema_open", (), "accepts unnamed properties", f"set `additionalProperties` to false{alternative}")
    if schema.get("$schema", _DIALECT) != _DIALECT:
        refuse("schema_keyword", (), "is written in another dialect", f"write it in `{_DIALECT}`")
    children_of: dict[str, list[str]] = {}
    references: list[tuple[str, str]] = []
    stack: list[tuple[Mapping[str, Any], _Path, int]] = [(schema, (), 1)]
    while stack:
        node, path, depth = stack.pop()
        if depth > MAX_SCHEMA_DEPTH or len(children_of) == MAX_SUBSCHEMAS:
            refuse("schema_bounds", (), _TOO_LARGE, "make it smaller")
        unknown = sorted(node.keys() - _KEYWORDS - ({"$schema"} if not path else set()))
        if unknown:
            refuse("schema_keyword", path, f"has `{unknown[0][:80]}`, which nothing enforces", "remove or correct it")
        if "format" in node and node["format"] not in FORMATS:
            refuse("schema_keyword", path, "has a `format` that nothing enforces", f"use one of {sorted(FORMATS)}")
        children = [(child, (*path, *steps), depth + 1) for steps, child in _children(node)]
        children_of[pointer(path)] = [pointer(child_path) for _, child_path, _ in children]
        stack += children
        if "$ref" in node:
            references.append((pointer(path), str(node["$ref"])))
    for place, reference in references:
        if not reference.startswith("#") or reference[1:] not in children_of:
            detail = f"refers to `{reference[:80]}`, which is not a part of it"
            refuse("schema_remote", (), detail, "inline what it means")
        children_of[place].append(reference[1:])
    sizes: dict[str, int] = {}
    try:
        for place in TopologicalSorter(children_of).static_order():
            sizes[place] = 1 + sum(sizes[child] for child in children_of[place])
    except CycleError:
        refuse("schema_recursive", (), "refers to itself, so a check of it is not bounded", "write the levels out")
    if sizes[""] > MAX_SUBSCHEMAS:
        refuse("schema_bounds", (), _TOO_LARGE, "make it smaller")


def misfit_default(schema: Mapping[str, Any]) -> str | None:
    """Return the pointer of the first default that its own subschema refuses, or None."""
    misfit = _find_misfit(schema)
    return None if misfit is None else pointer(misfit[0])


def _find_misfit(schema: Mapping[str, Any]) -> tuple[_Path, Any] | None:
    """Return (path of the first subschema that refuses its own default, the object schema whose property it is or
    None). Return None if every default fits.
    """
    stack: list[tuple[Mapping[str, Any], _Path, Any]] = [(schema, (), None)]
    while stack:
        node, path, owner = stack.pop()
        if path and "default" in node:
            # `check_drafted` refuses every other value of `$defs`.
            maps = [defs for defs in (schema.get("$defs"), node.get("$defs")) if isinstance(defs, dict)]
            root = {**node, "$defs": {name: child for defs in maps for name, child in defs.items()}}
            try:
                check = jsonschema_rs.Draft202012Validator(
                    root, retriever=refuse_remote, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=True
                )
                fits = check.is_valid(node["default"])
            except ValueError:
                fits = False
            if not fits:
                return path, owner
        stack += [
            (child, (*path, *steps), node if steps[0] == "properties" else None) for steps, child in _children(node)
        ]
    return None


def refuse_unfilled_defaults(schema: Mapping[str, Any], name: str) -> None:
    """Refuse a schema of arguments that has a default which `with_defaults` never fills in, so that only the tool would
    use it. This includes a default in alternatives that cannot be distinguished.

    Raises:
        InvalidArtifact: there is such a default; `name` says in which tool.
    """
    for unfilled in (default for default in _defaults(schema) if not default.is_filled_in):
        _refuse_unfilled(unfilled, f"`{name}`")


def _refuse_unfilled(unfilled: _Default, name: str) -> NoReturn:
    detail = f"{name} has a default at `{pointer(unfilled.path)[:200]}` that nothing can fill in before the call"
    remedy = "state a default at the property itself, and let a required member tell alternatives apart"
    raise InvalidArtifact(Problem("", "bad_default", detail, remedy))


@dataclass(frozen=True, slots=True)
class _Default:
    """A subschema (`node`, at `path`) with a default, and the property with this default: `name` of `owner`."""

    path: _Path
    node: Any
    owner: Any
    name: str
    is_filled_in: bool
    is_void: bool
    """The default can never be used, because its property is required."""


def _defaults(schema: Mapping[str, Any]) -> Iterator[_Default]:
    """Yield every default in a schema, once for each property that has this default."""
    visited: set[tuple[int, int, str, bool, bool, bool]] = set()
    are_apart: dict[int, bool] = {}
    # node, path, object schema of the property, name of the property, whether the node is the property itself, whether
    # defaults there are filled in, whether the property is required. Defaults are not filled in where alternatives are
    # not apart: a value without the member could fit one alternative here and another at the server.
    stack: list[tuple[Any, _Path, Any, str, bool, bool, bool]] = [(schema, (), None, "", False, True, False)]
    while stack:
        node, path, owner, name, is_property, can_fill, is_required = stack.pop()
        key = id(node), id(owner), name, is_property, can_fill, is_required
        if not isinstance(node, dict) or key in visited:
            continue
        visited.add(key)
        if "default" in node:
            yield _Default(path, node, owner if can_fill else None, name, is_property and can_fill, is_required)
        if isinstance(node.get("$ref"), str):
            stack.append((_resolve_reference(schema, node), path, owner, name, is_property, can_fill, is_required))
        for steps, child in _children(node):
            if (keyword := steps[0]) == "$defs":
                continue
            can_fill_below = can_fill and keyword in _FILLED_KEYWORDS
            if keyword in ("anyOf", "oneOf"):
                if can_fill_below and id(node[keyword]) not in are_apart:
                    are_apart[id(node[keyword])] = _are_apart(schema, node[keyword])
                can_fill_below = can_fill_below and are_apart[id(node[keyword])]
            position: tuple[Any, str, bool, bool, bool]
            if keyword == "properties":
                position = (node, str(steps[1]), True, can_fill_below, steps[1] in node.get("required", ()))
            else:
                position = (owner, name, is_property and keyword == "allOf", can_fill_below, is_required)
            stack.append((child, (*path, *steps), *position))


def _are_apart(schema: Mapping[str, Any], alternatives: Any) -> bool:
    """Return whether no value can fit two of these alternatives, for each pair in which one has a default."""
    with_default = [_has_default(schema, alternative) for alternative in alternatives]
    if not any(with_default):
        return True
    shapes = zip((shape_of(schema, alternative) for alternative in alternatives), with_default, strict=True)
    pairs = combinations(shapes, 2)
    return all(first.apart(second) or not (in_first or in_second) for (first, in_first), (second, in_second) in pairs)


def _has_default(schema: Mapping[str, Any], node: Any) -> bool:
    visited: set[int] = set()
    stack = [node]
    while stack:
        subschema = stack.pop()
        if isinstance(subschema, dict) and id(subschema) not in visited:
            visited.add(id(subschema))
            if "default" in subschema:
                return True
            stack += [_resolve_reference(schema, subschema), *(child for _, child in _children(subschema))]
    return False


def _resolve_reference(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Any:
    return resolve_pointer(schema, str(node["$ref"]).removeprefix("#")) if "$ref" in node else None


def refuse_remote(uri: str) -> NoReturn:
    """Refuse to load a document that a schema refers to: the `retriever` of every validator."""
    raise ValueError(f"`{uri}` is not in the schema; inline it")


def without_unused_defaults(schema: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a foreign server's schema without the defaults that cannot be used, and the pointers of these defaults. A
    default cannot be used if its own schema refuses it, or if it is not filled in before the call. Its property becomes
    required, because the server could still use the default.

    Raises:
        InvalidArtifact: such a default does not belong to a property, so no property can be required.
    """
    copied = own_copy(schema)
    dropped = dict[str, None]()
    while True:
        defaults = [*_defaults(copied)]
        unfilled = [default for default in defaults if not default.is_filled_in]
        if not unfilled:
            break
        unused = {id(default.node) for default in unfilled} - {
            id(default.node) for default in defaults if default.owner is None and not default.is_void
        }
        if not unused:
            _refuse_unfilled(unfilled[0], "it")
        # A default that several properties share is removed for all of them, also where it could be used.
        for default in (default for default in defaults if id(default.node) in unused):
            default.node.pop("default", None)
            if not default.is_void:
                _require(default.owner, default.name)
                dropped[pointer(default.path)] = None
    while (misfit := _find_misfit(copied)) is not None:
        path, owner = misfit
        if owner is None:
            detail = f"it has a default at `{pointer(path)[:200]}` that its own schema refuses"
            raise InvalidArtifact(Problem("", "bad_default", detail, "correct the default, or remove it"))
        del owner["properties"][path[-1]]["default"]
        _require(owner, str(path[-1]))
        dropped[pointer(path)] = None
    return copied, tuple(dropped)


def _require(owner: dict[str, Any], name: str) -> None:
    owner["required"] = [*dict.fromkeys([*owner.get("required", ()), name])]


def _children(node: Mapping[str, Any]) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """Yield the subschemas directly below `node`, each with the path to it. Boolean schemas are left out."""
    for keyword, value in node.items():
        subschemas: list[tuple[_Path, Any]] = [((keyword,), value)] if keyword in _SCHEMA_KEYWORDS else []
        if keyword in _MAP_KEYWORDS and isinstance(value, dict):
            subschemas = [((keyword, str(name)), child) for name, child in value.items()]
        elif keyword in _LIST_KEYWORDS and isinstance(value, list):
            subschemas = [((keyword, index), child) for index, child in enumerate(value)]
        yield from ((steps, child) for steps, child in subschemas if isinstance(child, dict))
