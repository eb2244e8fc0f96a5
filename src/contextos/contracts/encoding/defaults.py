"""The one form of the arguments of a call: defaults of the tool's input schema are filled in before anything reads it.

Rules, questions, bindings, sums, idempotency keys and the tool itself get the arguments in this form. The schema is
pinned with the definition of the tool, so a replay fills in the same. An argument without a default stays absent.
Source: JSON Schema 2020-12, "default"; docs/adr/0059-arguments-have-one-form.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.encoding.jcs import canonical, same_json
from contextos.contracts.encoding.pointer import MISSING, pointer, resolve_pointer
from contextos.errors import InvalidInput, Problem

_LEAVES: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None)})

MAX_FILLED_BYTES: Final = 262_144
"""The most bytes of JSON that the defaults of one call can add; a list of empty objects could add any amount."""


def with_defaults(schema: Mapping[str, Any], args: Mapping[str, Any], later: Collection[str] = ()) -> dict[str, Any]:
    """Return `args` with the defaults of `schema`, an input schema, at every depth. `later` names arguments whose value
    is not known yet.

    If a value can have one of several alternatives, the defaults of the one that fits are filled in; none if two fit.

    >>> with_defaults({"properties": {"amount": {"default": 500}, "note": {}}}, {})
    {'amount': 500}

    Raises:
        InvalidInput: the defaults are larger than `MAX_FILLED_BYTES`.
    """
    if not _has_defaults(schema):
        return {
            name: value if type(value) in _LEAVES or name in later else deepcopy(value) for name, value in args.items()
        }
    filled: dict[str, Any] = _Filler(schema).filled(schema, dict(args), (), frozenset(later))
    return filled


def without_defaults(schema: Mapping[str, Any], args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments without those that have the value of their default."""
    if not _has_defaults(schema):
        return args
    return {name: value for name, value in args.items() if not is_default(schema, name, value)}


def is_default(schema: Mapping[str, Any], name: str, value: Any) -> bool:
    """Return whether `value` is the default of the argument `name`."""
    default = _argument_default(orjson.dumps(schema), name) if _has_defaults(schema) else MISSING
    return default is not MISSING and same_json(default, value)


def _has_defaults(schema: Mapping[str, Any]) -> bool:
    try:
        return b'"default"' in orjson.dumps(schema)
    except TypeError:  # it is not JSON, and refused where the tool is registered
        return True


@lru_cache(1024)
def _argument_default(schema: bytes, name: str) -> Any:
    root = orjson.loads(schema)
    return _Filler(root).default(root.get("properties", {}).get(name, {}))


def without_null_defaults(schema: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that are null by default: limits and evidence treat them as left out."""
    return {name: value for name, value in args.items() if value is not None or not is_default(schema, name, value)}


@dataclass(frozen=True, slots=True)
class Shape:
    """The features that tell an alternative apart: whether it accepts objects and lists (`kinds`), its `required`
    members, the names of members if it accepts no others (`closed`), and the listed values of members (`stated`).
    """

    kinds: frozenset[str]
    required: frozenset[str]
    closed: tuple[frozenset[str], ...]
    stated: Mapping[str, list[Any]]

    def apart(self, other: Shape) -> bool:
        """Return whether no object and no list fits both."""
        if (common := self.kinds & other.kinds) != {"object"}:
            return not common
        if not all(self.required <= names for names in other.closed):
            return True
        if not all(other.required <= names for names in self.closed):
            return True
        return any(
            not any(same_json(value, other_value) for value in self.stated[name] for other_value in other.stated[name])
            for name in (self.required | other.required) & self.stated.keys() & other.stated.keys()
        )


def shape_of(root: Mapping[str, Any], alternative: Any) -> Shape:
    """Return the shape of an alternative of the schema `root`."""
    return _Filler(root).shape(alternative)


@dataclass(slots=True)
class _Filler:
    """Fills in one value. `root` is the whole schema, in which references are resolved."""

    root: Mapping[str, Any]
    added: int = 0

    def filled(self, schema: Any, value: Any, path: tuple[str | int, ...], later: Collection[str] = ()) -> Any:
        if isinstance(value, dict):
            return self._fill_object(schema, value, path, later)
        if isinstance(value, list):
            value = deepcopy(value)
            for branch in self._branches(schema, value):
                prefix_items = branch.get("prefixItems", ())
                items = branch.get("items", True)
                value = [
                    self.filled(prefix_items[index] if index < len(prefix_items) else items, item, (*path, index))
                    for index, item in enumerate(value)
                ]
        return value

    def _fill_object(
        self, schema: Any, value: dict[str, Any], path: tuple[str | int, ...], later: Collection[str]
    ) -> dict[str, Any]:
        members = dict(value)
        for branch in self._branches(schema, value):
            properties, additional = branch.get("properties", {}), branch.get("additionalProperties", True)
            required = branch.get("required", ())
            for name, child in properties.items():
                if name not in members and name not in later and name not in required:
                    default = self.default(child)
                    if default is not MISSING:
                        members[name] = self._copy_default(default, (*path, name))
            members = {
                name: member if name in later else self.filled(properties.get(name, additional), member, (*path, name))
                for name, member in members.items()
            }
        return members

    def default(self, schema: Any) -> Any:
        """Return the default that a schema, or a schema that it refers to, states; else `MISSING`."""
        return next((branch["default"] for branch in self._branches(schema, MISSING) if "default" in branch), MISSING)

    def _copy_default(self, default: Any, path: tuple[str | int, ...]) -> Any:
        self.added += len(canonical(default))
        if self.added > MAX_FILLED_BYTES:
            detail = f"the defaults of these arguments are larger than {MAX_FILLED_BYTES} bytes"
            raise InvalidInput(Problem(pointer(path), "too_large", detail, "send fewer values"))
        return own_copy(default)

    def _branches(self, schema: Any, value: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the schemas that describe a value: `schema`, those it refers to, and the only alternative that fits."""
        if not isinstance(schema, dict):
            return
        yield schema
        if isinstance(schema.get("$ref"), str):
            yield from self._branches(resolve_pointer(self.root, schema["$ref"].removeprefix("#")), value)
        for child in schema.get("allOf", ()):
            yield from self._branches(child, value)
        if value is MISSING:
            return
        for keyword in ("anyOf", "oneOf"):
            fitting = [option for option in schema.get(keyword, ()) if self._fits(option, value)]
            if len(fitting) == 1:
                yield from self._branches(fitting[0], value)

    def shape(self, schema: Any) -> Shape:
        """Return the shape of a schema: the features at which `_fits` looks."""
        kinds, required = {"object", "array"}, set[str]()
        closed, enums = list[frozenset[str]](), dict[str, list[Any]]()
        for branch in self._branches(schema, MISSING):
            if types := branch.get("type"):
                kinds &= {types} if isinstance(types, str) else set(types)
            if "enum" in branch or "const" in branch:
                kinds &= {
                    "object" if isinstance(value, dict) else "array"
                    for value in _enum_values(branch)
                    if isinstance(value, dict | list)
                }
            required |= set(branch.get("required", ()))
            properties = branch.get("properties", {})
            if branch.get("additionalProperties") is False:
                closed.append(frozenset(properties))
            for name, child in properties.items():
                options = (part for part in self._branches(child, MISSING) if "enum" in part or "const" in part)
                values = next(map(_enum_values, options), None)
                if values is not None:
                    enums.setdefault(name, values)
        return Shape(frozenset(kinds), frozenset(required), tuple(closed), enums)

    def _fits(self, schema: Any, value: Any) -> bool:
        """Return whether a value fits an alternative by its type, its names, and its members with listed values."""
        for branch in self._branches(schema, MISSING):
            types = branch.get("type", ())
            if types and ("object" if isinstance(value, dict) else "array") not in (
                [types] if isinstance(types, str) else types
            ):
                return False
            has_values = "enum" in branch or "const" in branch
            if has_values and not any(same_json(item, value) for item in _enum_values(branch)):
                return False
            if isinstance(value, dict):
                properties = branch.get("properties", {})
                if branch.get("additionalProperties") is False and not value.keys() <= properties.keys():
                    return False
                if not value.keys() >= set(branch.get("required", ())):
                    return False
                for name in value.keys() & properties.keys():
                    if not self._is_allowed(properties[name], value[name]):
                        return False
        return True

    def _is_allowed(self, schema: Any, value: Any) -> bool:
        """Return whether a member has one of the values that its schema lists, if it lists any."""
        for branch in self._branches(schema, MISSING):
            if "enum" in branch or "const" in branch:
                return any(same_json(item, value) for item in _enum_values(branch))
        return True


def _enum_values(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values that a schema lists."""
    values: list[Any] = schema.get("enum", [schema.get("const")])
    return values
