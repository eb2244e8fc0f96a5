"""The profile of JSON Schema (2020-12) for capabilities: every keyword is enforced, and the work of a check is bounded.

Refuses a keyword or `format` that the validator does not enforce, a schema of arguments that accepts unnamed
properties, references that leave the schema or come back, and schemas beyond the size limits.
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
"""The most subschemas, where each reference counts as a copy of what it refers to."""

FORMATS: Final = frozenset({
    "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri",
    "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference",
    "uri-template", "uuid",
})  # fmt: skip
"""The formats that are asserted."""

_IN_MAPS: Final = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
_IN_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE: Final = frozenset({
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems",
    "unevaluatedProperties",
})  # fmt: skip
_PLAIN: Final = frozenset({
    "$comment", "$ref", "const", "default", "dependentRequired", "deprecated", "description", "enum", "examples",
    "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems", "maxLength", "maxProperties",
    "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern",
    "readOnly", "required", "title", "type", "uniqueItems", "writeOnly",
})  # fmt: skip
_FILLED: Final = _IN_LISTS | {"additionalProperties", "items", "properties"}
"""The keywords below which `with_defaults` fills in values."""

_KEYWORDS: Final = _IN_MAPS | _IN_LISTS | _SINGLE | _PLAIN
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TOO_LARGE: Final = (
    f"is larger than depth {MAX_SCHEMA_DEPTH} or {MAX_SUBSCHEMAS} subschemas, with its references written out"
)

_Path = tuple[str | int, ...]


def profile(schema: Mapping[str, Any], name: str, *, answers: bool = False) -> None:
    """Check a schema: an object without unnamed properties at its root, and otherwise as this module says.

    The schema of `answers` can say that they have more: a call that was made is not undone by what its server adds.

    Raises:
        InvalidArtifact: the schema violates the profile; `name` says which schema.
    """

    def refuse(code: str, at: _Path, detail: str, remedy: str) -> NoReturn:
        where = f" at `{pointer(at)[:200]}`" if at else ""
        raise InvalidArtifact(Problem("", code, f"`{name}` {detail}{where}", remedy))

    if schema.get("type") != "object":
        refuse("schema_root", (), "is not an object at its root", "set `type` to `object`")
    more = schema.get("additionalProperties"), schema.get("unevaluatedProperties")
    if False not in more and (not answers or more == (None, None)):
        either = ", or to true for answers that have more" if answers else ""
        refuse("schema_open", (), "accepts unnamed properties", f"set `additionalProperties` to false{either}")
    if schema.get("$schema", _DIALECT) != _DIALECT:
        refuse("schema_keyword", (), "is written in another dialect", f"write it in `{_DIALECT}`")
    below: dict[str, list[str]] = {}
    references: list[tuple[str, str]] = []
    stack: list[tuple[Mapping[str, Any], _Path, int]] = [(schema, (), 1)]
    while stack:
        node, path, depth = stack.pop()
        if depth > MAX_SCHEMA_DEPTH or len(below) == MAX_SUBSCHEMAS:
            refuse("schema_bounds", (), _TOO_LARGE, "make it smaller")
        unknown = sorted(node.keys() - _KEYWORDS - ({"$schema"} if not path else set()))
        if unknown:
            refuse("schema_keyword", path, f"has `{unknown[0][:80]}`, which nothing enforces", "remove or correct it")
        if "format" in node and node["format"] not in FORMATS:
            refuse("schema_keyword", path, "has a `format` that nothing enforces", f"use one of {sorted(FORMATS)}")
        children = [(child, (*path, *steps), depth + 1) for steps, child in _children(node)]
        below[pointer(path)] = [pointer(one) for _, one, _ in children]
        stack += children
        if "$ref" in node:
            references.append((pointer(path), str(node["$ref"])))
    for place, reference in references:
        if not reference.startswith("#") or reference[1:] not in below:
            refuse("schema_remote", (), f"refers to `{reference[:80]}`, which is no part of it", "inline what it means")
        below[place].append(reference[1:])
    sizes: dict[str, int] = {}
    try:
        for place in TopologicalSorter(below).static_order():
            sizes[place] = 1 + sum(sizes[one] for one in below[place])
    except CycleError:
        refuse("schema_recursive", (), "refers to itself, so a check of it is not bounded", "write the levels out")
    if sizes[""] > MAX_SUBSCHEMAS:
        refuse("schema_bounds", (), _TOO_LARGE, "make it smaller")


def misfit_default(schema: Mapping[str, Any]) -> str | None:
    """Return the pointer of the first default that its own subschema refuses, or None."""
    found = _misfit(schema)
    return None if found is None else pointer(found[0])


def _misfit(schema: Mapping[str, Any]) -> tuple[_Path, Any] | None:
    """The path of the first misfit, and the object schema whose property it is, if it is one."""
    stack: list[tuple[Mapping[str, Any], _Path, Any]] = [(schema, (), None)]
    while stack:
        node, path, owner = stack.pop()
        if path and "default" in node:
            # `check_drafted` refuses every other value of `$defs`.
            named = [one for one in (schema.get("$defs"), node.get("$defs")) if isinstance(one, dict)]
            whole = {**node, "$defs": {name: child for one in named for name, child in one.items()}}
            try:
                check = jsonschema_rs.Draft202012Validator(
                    whole, retriever=_no_document, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=True
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
    """Refuse a schema of arguments with a default that `with_defaults` never fills in, so that only the tool would know
    it, and one with alternatives that have defaults and that nothing tells apart.

    Raises:
        InvalidArtifact: `name` says which tool.
    """
    for unfilled in (one for one in _defaults(schema) if not one.is_filled_in):
        _refuse_unfilled(unfilled, f"`{name}`")


def _refuse_unfilled(unfilled: _Default, name: str) -> NoReturn:
    detail = f"{name} has a default at `{pointer(unfilled.path)[:200]}` that nothing can fill in before the call"
    remedy = "state a default at the property itself, and let a required member tell alternatives apart"
    raise InvalidArtifact(Problem("", "bad_default", detail, remedy))


@dataclass(frozen=True, slots=True)
class _Default:
    """The schema that has a default, and the object schema and the name of the property that it is for."""

    path: _Path
    node: Any
    owner: Any
    name: str
    is_filled_in: bool
    is_void: bool
    """Nothing can use it, because its property is required."""


def _defaults(schema: Mapping[str, Any]) -> Iterator[_Default]:
    """Every default, once for each property that it is for."""
    seen: set[tuple[int, int, str, bool, bool, bool]] = set()
    apart: dict[int, bool] = {}
    # A node, its path, the object schema and name of its property, whether it is the property itself, and whether
    # values there are filled in: not where alternatives are not apart, because a value that lacks it could be another
    # alternative here and this one at the server. The last says whether the property is required.
    stack: list[tuple[Any, _Path, Any, str, bool, bool, bool]] = [(schema, (), None, "", False, True, False)]
    while stack:
        node, path, owner, name, named, reached, void = stack.pop()
        key = id(node), id(owner), name, named, reached, void
        if not isinstance(node, dict) or key in seen:
            continue
        seen.add(key)
        if "default" in node:
            yield _Default(path, node, owner if reached else None, name, named and reached, void)
        if isinstance(node.get("$ref"), str):
            stack.append((_referred(schema, node), path, owner, name, named, reached, void))
        for steps, child in _children(node):
            if (keyword := steps[0]) == "$defs":
                continue
            below = reached and keyword in _FILLED
            if keyword in ("anyOf", "oneOf"):
                if below and id(node[keyword]) not in apart:
                    apart[id(node[keyword])] = _apart(schema, node[keyword])
                below = below and apart[id(node[keyword])]
            of = (node, str(steps[1]), True) if keyword == "properties" else (owner, name, named and keyword == "allOf")
            has_it = steps[1] in node.get("required", ()) if keyword == "properties" else void
            stack.append((child, (*path, *steps), *of, below, has_it))


def _apart(schema: Mapping[str, Any], alternatives: Any) -> bool:
    """Whether no value fits two alternatives of which one has defaults."""
    with_default = [_has_default(schema, one) for one in alternatives]
    if not any(with_default):
        return True
    shapes = [(shape_of(schema, one), has) for one, has in zip(alternatives, with_default, strict=True)]
    return all(
        one.apart(other) or not (in_one or in_other) for (one, in_one), (other, in_other) in combinations(shapes, 2)
    )


def _has_default(schema: Mapping[str, Any], node: Any) -> bool:
    seen: set[int] = set()
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, dict) and id(one) not in seen:
            seen.add(id(one))
            if "default" in one:
                return True
            stack += [_referred(schema, one), *(child for _, child in _children(one))]
    return False


def _referred(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Any:
    return resolve_pointer(schema, str(node["$ref"]).removeprefix("#")) if "$ref" in node else None


def _no_document(uri: str) -> NoReturn:
    raise ValueError(f"`{uri}` is not in the schema")


def without_unused_defaults(schema: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a schema of a foreign server without the defaults that it refuses itself or that nothing fills in before
    the call, and their pointers. Such a property is required, because the server could use its default all the same.

    Raises:
        InvalidArtifact: the default is not that of a property, so nothing can be required in its place.
    """
    made = own_copy(schema)
    dropped = dict[str, None]()
    while True:
        defaults = [*_defaults(made)]
        unfilled = [one for one in defaults if not one.is_filled_in]
        if not unfilled:
            break
        unused = {id(one.node) for one in unfilled} - {
            id(one.node) for one in defaults if one.owner is None and not one.is_void
        }
        if not unused:
            _refuse_unfilled(unfilled[0], "it")
        # A default that several properties share goes for all of them, also for those that it could be used for.
        for one in (one for one in defaults if id(one.node) in unused):
            one.node.pop("default", None)
            if not one.is_void:
                _require(one.owner, one.name)
                dropped[pointer(one.path)] = None
    while (found := _misfit(made)) is not None:
        path, owner = found
        if owner is None:
            detail = f"it has a default at `{pointer(path)[:200]}` that its own schema refuses"
            raise InvalidArtifact(Problem("", "bad_default", detail, "correct the default, or remove it"))
        del owner["properties"][path[-1]]["default"]
        _require(owner, str(path[-1]))
        dropped[pointer(path)] = None
    return made, tuple(dropped)


def _require(owner: dict[str, Any], name: str) -> None:
    owner["required"] = [*dict.fromkeys([*owner.get("required", ()), name])]


def _children(node: Mapping[str, Any]) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """The subschemas directly below `node`, each with its steps. A boolean has nothing to check."""
    for keyword, value in node.items():
        inside: list[tuple[_Path, Any]] = [((keyword,), value)] if keyword in _SINGLE else []
        if keyword in _IN_MAPS and isinstance(value, dict):
            inside = [((keyword, str(name)), child) for name, child in value.items()]
        elif keyword in _IN_LISTS and isinstance(value, list):
            inside = [((keyword, index), child) for index, child in enumerate(value)]
        yield from ((steps, child) for steps, child in inside if isinstance(child, dict))
