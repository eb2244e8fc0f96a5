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
    """Check a schema by the rules of this module. Its root must be an object without unnamed properties.

    The schema of `answers` can state that it accepts unnamed properties: a server that adds one does not undo a call.

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
            detail = f"refers to `{reference[:80]}`, which is not a part of it"
            refuse("schema_remote", (), detail, "inline what it means")
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
    """Return the path of the first subschema that refuses its own default, and the object schema whose property it is,
    or None if it is not a property. Return None if every default fits.
    """
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
    """Refuse a schema of arguments that has a default which `with_defaults` never fills in, so that only the tool would
    use it. This includes a default in alternatives that cannot be distinguished.

    Raises:
        InvalidArtifact: there is such a default; `name` says in which tool.
    """
    for unfilled in (one for one in _defaults(schema) if not one.is_filled_in):
        _refuse_unfilled(unfilled, f"`{name}`")


def _refuse_unfilled(unfilled: _Default, name: str) -> NoReturn:
    detail = f"{name} has a default at `{pointer(unfilled.path)[:200]}` that nothing can fill in before the call"
    remedy = "state a default at the property itself, and let a required member tell alternatives apart"
    raise InvalidArtifact(Problem("", "bad_default", detail, remedy))


@dataclass(frozen=True, slots=True)
class _Default:
    """A subschema with a default (`node`, at `path`), and the property that it is for: its name, in `owner`."""

    path: _Path
    node: Any
    owner: Any
    name: str
    is_filled_in: bool
    is_void: bool
    """The default can never be used, because its property is required."""


def _defaults(schema: Mapping[str, Any]) -> Iterator[_Default]:
    """Yield every default in a schema, once for each property that it is for."""
    seen: set[tuple[int, int, str, bool, bool, bool]] = set()
    apart: dict[int, bool] = {}
    # node, path, object schema of the property, name of the property, whether the node is the property itself, whether
    # defaults there are filled in, whether the property is required. Defaults are not filled in where alternatives are
    # not apart: a value without the member could fit one alternative here and another at the server.
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
    """Return whether no value can fit two of these alternatives, for each pair in which one has a default."""
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
    """Return a foreign server's schema without the defaults that cannot be used, and the pointers of these defaults. A
    default cannot be used if its own schema refuses it, or if it is not filled in before the call. Its property becomes
    required, because the server could still use the default.

    Raises:
        InvalidArtifact: such a default does not belong to a property, so no property can be required.
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
        # A default that several properties share is removed for all of them, also where it could be used.
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
    """Yield the subschemas directly below `node`, each with the path to it. Boolean schemas are left out."""
    for keyword, value in node.items():
        inside: list[tuple[_Path, Any]] = [((keyword,), value)] if keyword in _SINGLE else []
        if keyword in _IN_MAPS and isinstance(value, dict):
            inside = [((keyword, str(name)), child) for name, child in value.items()]
        elif keyword in _IN_LISTS and isinstance(value, list):
            inside = [((keyword, index), child) for index, child in enumerate(value)]
        yield from ((steps, child) for steps, child in inside if isinstance(child, dict))
