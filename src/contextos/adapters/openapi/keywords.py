"""One schema of an OpenAPI document in the profile of JSON Schema that the runtime checks, keyword by keyword.

On the side of the arguments nothing is loosened: what cannot be converted becomes a schema that refuses every value,
and an object accepts only the properties that are named, unless the document says otherwise. On the side of the answers
what cannot be converted becomes a schema that accepts every value. Both leave a note that says so.

A `format` is checked in arguments only: OpenAPI says that tools can ignore it, and servers do.
Source: OpenAPI 3.0.4 and 3.1.1, "Schema Object"; docs/design/standards.md, "JSON Schema".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import jsonschema_rs

from contextos.action.schema_profile import FORMATS
from contextos.contracts.encoding.display_escape import BIDI, BLANK, INVISIBLE, TAGS
from contextos.contracts.encoding.jcs import MAX_INT

Side = Literal["closed", "open", "output"]
"""Arguments that accept named properties only; a part of such a schema, which its whole closes; an answer."""

Refer = Callable[[str, Side], dict[str, Any]]
"""(reference, side) -> the schema that is used in its place."""

NOTHING: Final[Mapping[str, Any]] = {"not": {}}
"""The schema that refuses every value."""
MAX_DESCRIBED_CHARS: Final = 300

_SIMPLE: Final = frozenset({
    "dependentRequired", "maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems",
    "minLength", "minProperties", "multipleOf", "required", "uniqueItems",
})  # fmt: skip
_BOUNDS: Final = {"maximum": 1, "exclusiveMaximum": 1, "minimum": -1, "exclusiveMinimum": -1}
_SINGLE: Final = ("contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems")
_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_CONSTRAINTS: Final = frozenset(
    (
        *_SIMPLE,
        *_BOUNDS,
        *_SINGLE,
        *_IN_PLACE_LISTS,
        "additionalProperties",
        "const",
        "enum",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "type",
        "unevaluatedProperties",
    )
)
_NOT_CONVERTED: Final = ("$dynamicRef", "$id", "$recursiveRef", "dependencies", "dependentSchemas")
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_HIDDEN: Final = re.compile(rf"[\x00-\x1f\x7f-\x9f\ud800-\udfff{BIDI}{TAGS}{INVISIBLE}{BLANK}]+")


class Inconvertible(Exception):
    """A schema has a part that the profile cannot express; the text says which."""


class Keywords:
    """Converts the schemas of one document. `is_3_0` says that they are those of OpenAPI 3.0.

    `refer` takes the place of references, `look_up` finds the schema of one, and `note` takes each reason why a part
    was not converted.
    """

    def __init__(
        self, refer: Refer, look_up: Callable[[str], Any], note: Callable[[str], None], *, is_3_0: bool
    ) -> None:
        self._refer, self._look_up, self._note, self._is_3_0 = refer, look_up, note, is_3_0

    def converted(self, schema: Any, side: Side) -> dict[str, Any]:
        """Return a schema in the profile. It shares nothing with `schema` that is changed later."""
        try:
            return self._node(schema, side)
        except Inconvertible as error:
            self._note(str(error))
            return {} if side == "output" else dict(NOTHING)

    def _node(self, schema: Any, side: Side) -> dict[str, Any]:
        if isinstance(schema, bool):
            return {} if schema else dict(NOTHING)
        if not isinstance(schema, dict):
            raise Inconvertible("a schema is no object")
        for keyword in _NOT_CONVERTED:
            if keyword in schema:
                raise Inconvertible(f"`{keyword}` is not supported")
        reference = schema.get("$ref")
        if isinstance(reference, str) and (self._is_3_0 or not _constrains(schema)):
            referred = self._refer(reference, side)
            # In version 3.0 nothing beside a reference counts.
            return referred if self._is_3_0 else referred | _default(schema, side)
        inner: Side = side if side == "output" or _is_alternative(schema) else "open"
        made: dict[str, Any] = {}
        self._type(schema, side, made)
        self._values(schema, side, made)
        self._inside(schema, "closed" if side != "output" else side, made)
        for keyword in _IN_PLACE_LISTS:
            if keyword in schema:
                # Branches of sloppy documents overlap, so an answer has to fit at least one and not exactly one.
                said = "anyOf" if keyword == "oneOf" and side == "output" and "anyOf" not in schema else keyword
                made[said] = self._branches(schema, keyword, inner)
        if isinstance(reference, str):
            made["allOf"] = [*made.get("allOf", ()), self._refer(reference, inner)]
        for keyword in ("if", "then", "else", "not"):
            if keyword in schema:
                made[keyword] = self.converted(schema[keyword], "open" if side != "output" else side)
        if side == "output" and schema.get("nullable") is True and "type" not in made and made:
            made = {"anyOf": [{"type": "null"}, made]}
        if side == "closed":
            self._close(schema, made, inner)
        return made

    def _type(self, schema: Mapping[str, Any], side: Side, made: dict[str, Any]) -> None:
        stated = schema.get("type")
        types = [stated] if isinstance(stated, str) else stated
        if types is not None:
            if not isinstance(types, list) or not types or not _TYPES.issuperset(map(str, types)):
                raise Inconvertible(f"the type `{str(stated)[:40]}` is not one of JSON")
            if schema.get("nullable") is True and "null" not in types:
                types = [*types, "null"]
            made["type"] = types[0] if len(types) == 1 else list(types)
        elif side == "closed" and "properties" in schema:
            made["type"] = "object"
        if side != "output":
            if (described := plain_text(schema.get("description"), MAX_DESCRIBED_CHARS)) != "":
                made["description"] = described
            stated = schema.get("format")
            if stated in FORMATS:
                made["format"] = stated
            elif stated == "int32":
                made |= {"minimum": -(2**31), "maximum": 2**31 - 1}

    def _values(self, schema: Mapping[str, Any], side: Side, made: dict[str, Any]) -> None:
        made |= {keyword: schema[keyword] for keyword in _SIMPLE & schema.keys()} | _default(schema, side)
        if "required" in made and not isinstance(made["required"], list):
            # Drafts before 4 wrote `required` at the property.
            del made["required"]
            if side != "output":
                raise Inconvertible("`required` is no list")
        if "required" in made:
            made["required"] = list(dict.fromkeys(map(str, made["required"])))
        for keyword, sign in _BOUNDS.items():
            bound: Any = schema.get(keyword)
            if isinstance(bound, bool):
                plain = keyword[9:].lower()
                if bound and _is_number(schema.get(plain)):
                    made.pop(plain, None)
                    made[keyword] = schema[plain]
            elif _is_number(bound):
                if -MAX_INT <= bound <= MAX_INT:
                    made[keyword] = bound
                elif (bound > 0) != (sign > 0):
                    raise Inconvertible(f"`{keyword}` is beyond what JSON carries")
            elif bound is not None:
                raise Inconvertible(f"`{keyword}` is no number")
        # An exclusive bound that is a boolean takes the place of the other one, which was written meanwhile.
        for plain in ("maximum", "minimum"):
            if schema.get(f"exclusive{plain.capitalize()}") is True:
                made.pop(plain, None)
        if "enum" in schema or "const" in schema:
            stated = schema["enum"] if "enum" in schema else [schema["const"]]
            if not isinstance(stated, list):
                raise Inconvertible("`enum` is no list")
            values = [one for one in stated if not (_is_number(one) and abs(one) > MAX_INT)]
            nullable = side == "output" and schema.get("nullable") is True and None not in values
            made["enum"] = [*values, None] if nullable else values
        if "pattern" in schema:
            self._pattern(schema["pattern"], side, made)

    def _pattern(self, pattern: Any, side: Side, made: dict[str, Any]) -> None:
        if is_linear(pattern):
            made["pattern"] = pattern
        elif side == "output":
            self._note("a pattern cannot be checked in linear time")
        else:
            raise Inconvertible("a pattern cannot be checked in linear time")

    def _inside(self, schema: Mapping[str, Any], side: Side, made: dict[str, Any]) -> None:
        """Convert what is below: properties and items, which are values of their own."""
        properties = schema.get("properties")
        if isinstance(properties, dict):
            kept = {
                name: one
                for name, one in properties.items()
                if side == "output" or not (isinstance(one, dict) and one.get("readOnly") is True)
            }
            made["properties"] = {name: self.converted(one, side) for name, one in kept.items()}
            left_out = {
                name
                for name, one in properties.items()
                if isinstance(one, dict) and one.get("writeOnly" if side == "output" else "readOnly") is True
            }
            if left_out and "required" in made:
                made["required"] = [name for name in made["required"] if name not in left_out]
        elif properties is not None:
            raise Inconvertible("`properties` is no object")
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            if not all(map(is_linear, patterns)):
                raise Inconvertible("a pattern cannot be checked in linear time")
            made["patternProperties"] = {name: self.converted(one, side) for name, one in patterns.items()}
        for keyword in ("contains", "items", "propertyNames", "unevaluatedItems"):
            if keyword in schema:
                made[keyword] = self.converted(schema[keyword], side)
        if isinstance(schema.get("prefixItems"), list):
            made["prefixItems"] = [self.converted(one, side) for one in schema["prefixItems"]]
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            stated = schema.get(keyword)
            if stated is not None:
                made[keyword] = stated if isinstance(stated, bool) else self.converted(stated, side)

    def _branches(self, schema: Mapping[str, Any], keyword: str, side: Side) -> list[dict[str, Any]]:
        branches = schema[keyword]
        if not isinstance(branches, list) or not branches:
            raise Inconvertible(f"`{keyword}` is no list of schemas")
        made = [self.converted(one, side) for one in branches]
        chosen_by = schema.get("discriminator")
        name = chosen_by.get("propertyName") if isinstance(chosen_by, dict) else None
        if side == "output" or keyword == "allOf" or not isinstance(name, str):
            return made
        mapping = chosen_by.get("mapping") if isinstance(chosen_by, dict) else None
        return [
            self._chosen(name, mapping if isinstance(mapping, dict) else {}, branch, one)
            for branch, one in zip(branches, made, strict=True)
        ]

    def _chosen(self, name: str, mapping: Mapping[str, Any], branch: Any, made: dict[str, Any]) -> dict[str, Any]:
        """A branch that the discriminator chooses: its property has to be there, with one of the branch's values."""
        reference = branch.get("$ref") if isinstance(branch, dict) else None
        if not isinstance(reference, str):
            return made
        last = reference.rpartition("/")[2]
        named = [value for value, to in mapping.items() if to in (reference, last)]
        own = self._look_up(reference)
        stated = own.get("properties", {}).get(name) if isinstance(own, dict) else None
        says = isinstance(stated, dict) and ("enum" in stated or "const" in stated)
        value = {} if says else {"enum": named or [last]}
        return {"allOf": [made, {"type": "object", "properties": {name: value}, "required": [name]}]}

    def _close(self, schema: Mapping[str, Any], made: dict[str, Any], inner: Side) -> None:
        """Refuse unnamed properties, unless the document says something about them."""
        if "additionalProperties" in schema or "unevaluatedProperties" in schema:
            return
        in_place = any(one in schema for one in (*_IN_PLACE_LISTS, "$ref", "if"))
        if in_place and inner == "open":
            if self.names_properties(schema, 0):
                made["unevaluatedProperties"] = False
        elif "properties" in made or "patternProperties" in made:
            made["additionalProperties"] = False

    def names_properties(self, schema: Any, steps: int) -> bool:
        """Return whether a schema or a part of it in place names properties. After 16 references: yes, to be closed."""
        if not isinstance(schema, dict):
            return False
        if steps > 16 or "properties" in schema or "patternProperties" in schema:
            return True
        reference = schema.get("$ref")
        if isinstance(reference, str) and self.names_properties(self._look_up(reference), steps + 1):
            return True
        parts = [one for keyword in _IN_PLACE_LISTS if isinstance(schema.get(keyword), list) for one in schema[keyword]]
        return any(self.names_properties(one, steps + 1) for one in parts)


def plain_text(text: Any, max_chars: int) -> str:
    """Return a text of a document on one line: without control and hidden characters, and cut."""
    if not isinstance(text, str):
        return ""
    seen = _HIDDEN.sub(" ", text[: max_chars * 4])
    if not seen.isascii():
        # Not assigned, or private: nobody knows what it looks like.
        seen = "".join(" " if unicodedata.category(one) in ("Cn", "Co") else one for one in seen)
    return " ".join(seen.split())[:max_chars].rstrip()


@lru_cache(4096)
def is_linear(pattern: Any) -> bool:
    """Return whether a regular expression can be checked in time proportional to the text."""
    try:
        jsonschema_rs.Draft202012Validator(
            {"type": "string", "pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, TypeError):
        return False
    return isinstance(pattern, str)


def _default(schema: Mapping[str, Any], side: Side) -> dict[str, Any]:
    """The default of an argument, which the runtime fills in. One that is null says that nothing is sent."""
    return {} if side == "output" or schema.get("default") is None else {"default": schema["default"]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _constrains(schema: Mapping[str, Any]) -> bool:
    """Whether something beside a `$ref` is more than an annotation."""
    return not _CONSTRAINTS.isdisjoint(schema)


def _is_alternative(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is nothing but its branches, so that each of them is closed on its own."""
    lists = [keyword for keyword in _IN_PLACE_LISTS if keyword in schema]
    if "properties" in schema or "patternProperties" in schema or "$ref" in schema or "if" in schema:
        return False
    if lists == ["allOf"]:
        return isinstance(schema["allOf"], list) and len(schema["allOf"]) == 1
    return len(lists) == 1
