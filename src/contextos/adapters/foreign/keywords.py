"""Converts one schema of a foreign server, keyword by keyword, to the profile of JSON Schema that the runtime checks.

The schema is of OpenAPI 3.0 or 3.1, or of JSON Schema from draft 4 to 2020-12.

For arguments nothing is loosened: a part that cannot be converted becomes a schema that refuses every value, and an
object accepts only the properties that are named, unless the document says otherwise. For answers a part that cannot be
converted becomes a schema that accepts every value. Both leave a note that says so.

A `format` is checked in arguments only. An unknown format is an annotation: OpenAPI and JSON Schema say that tools can
ignore it, and servers do.
Source: OpenAPI 3.0.4 and 3.1.1, "Schema Object"; JSON Schema 2020-12; docs/design/standards.md, "JSON Schema".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from contextos.action.schema_profile import FORMATS
from contextos.adapters.foreign import parts as in_parts
from contextos.adapters.foreign.dialects import ANNOTATIONS, in_2020_12
from contextos.adapters.foreign.parts import IN_PLACE_LISTS, always_required, in_place, properties_of
from contextos.adapters.foreign.schema_document import SchemaDocument
from contextos.adapters.foreign.texts import NOT_LINEAR, Patterns, plain_text
from contextos.contracts.encoding.jcs import MAX_INT
from contextos.contracts.encoding.pointer import MISSING

Side = Literal["closed", "open", "output"]
"""`closed`: arguments that accept named properties only. `open`: a part of a closed schema. `output`: an answer."""

Refer = Callable[[str, Side], dict[str, Any]]
"""(reference, side) -> the schema that is used in its place."""

LookUp = Callable[[str], Any]
Note = Callable[[str], None]

NOTHING: Final[Mapping[str, Any]] = {"not": {}}
"""The schema that refuses every value."""
MAX_DESCRIBED_CHARS: Final = 1_000

_COPIED: Final = frozenset({
    "dependentRequired", "maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems",
    "minLength", "minProperties", "multipleOf", "required", "uniqueItems",
})  # fmt: skip
_BOUNDS: Final = {"maximum": 1, "exclusiveMaximum": 1, "minimum": -1, "exclusiveMinimum": -1}
_SINGLE_SCHEMAS: Final = ("contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems")
_OPENING: Final = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties"))
_IN_PLACE: Final = (*IN_PLACE_LISTS, "$ref", "dependentSchemas", "if")
_EXACT_FROM: Final = 1e21
"""From here on the canonical form of a number has an exponent (`1e+21`), so no reader rounds it as an integer."""
_CONSTRAINTS: Final = frozenset(
    (
        *_COPIED,
        *_BOUNDS,
        *_SINGLE_SCHEMAS,
        *IN_PLACE_LISTS,
        "additionalProperties",
        "const",
        "dependentSchemas",
        "enum",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "type",
        "unevaluatedProperties",
    )
)
_UPPER_COUNTS: Final = frozenset({"maxContains", "maxItems", "maxLength", "maxProperties"})
_NOT_CONVERTED: Final = ("$dynamicRef", "$recursiveRef")
_UNCHECKED_FORMATS: Final = frozenset({"binary", "password"})
"""Formats that do not constrain a value."""
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class Inconvertible(Exception):
    """A schema has a part that the profile cannot express; the text says which."""


class Keywords:
    """Converts the schemas of one document.

    `refer` returns the schema that replaces a reference. `look_up` returns the schema that a reference leads to. `note`
    takes each reason why a part was not converted. `patterns` counts the patterns of the draft.
    """

    def __init__(self, refer: Refer, look_up: LookUp, note: Note, document: SchemaDocument, patterns: Patterns) -> None:
        self._refer, self._look_up, self._note, self._patterns = refer, look_up, note, patterns
        self._is_3_0, self._sends_null = document.is_3_0, document.sends_null
        self._exact = 0

    def converted(self, schema: Any, side: Side) -> dict[str, Any]:
        """Return a schema in the profile, which shares nothing with `schema` that is changed later. Raises
        `Inconvertible` for a part below `not` or `if` that cannot be converted.
        """
        try:
            return self._convert_node(schema, side)
        except Inconvertible as error:
            if self._exact:
                raise
            self._note(str(error))
            return {} if side == "output" else dict(NOTHING)

    def _convert_node(self, schema: Any, side: Side) -> dict[str, Any]:
        if isinstance(schema, bool):
            return {} if schema else dict(NOTHING)
        if not isinstance(schema, dict):
            raise Inconvertible("a schema is not an object")
        for keyword in _NOT_CONVERTED:
            if keyword in schema:
                raise Inconvertible(f"`{keyword}` is not supported")
        if not self._is_3_0 and (base := in_parts.base_of(schema)):
            raise Inconvertible(f"references below `{base}` are not supported")
        schema = in_2020_12(schema)
        for keyword in sorted(schema.keys() - _CONSTRAINTS - ANNOTATIONS - {"$id", "$ref"}):
            if not keyword.startswith("x-"):
                self._note(f"`{plain_text(keyword, 40)}` is not checked")
        reference = schema.get("$ref")
        if self._exact and reference is not None:
            raise Inconvertible("a reference below `not` or `if` is not supported")
        if isinstance(reference, str) and (self._is_3_0 or not _constrains(schema)):
            replacement = self._refer(reference, side)
            # In version 3.0 the members beside a `$ref` do not count.
            return replacement if self._is_3_0 else replacement | self._default(schema, side)
        inner: Side = side if side == "output" or in_parts.is_alternative(schema) else "open"
        result: dict[str, Any] = {}
        self._convert_type(schema, side, result)
        look_aheads = self._convert_values(schema, side, result)
        self._convert_parts(schema, "open" if self._exact else "closed" if side != "output" else side, result)
        for keyword in IN_PLACE_LISTS:
            if keyword in schema:
                # Branches of sloppy documents overlap, so an answer has to fit at least one and not exactly one.
                loose = keyword == "oneOf" and side == "output" and "anyOf" not in schema and not self._exact
                target = "anyOf" if loose else keyword
                result[target] = self._convert_branches(schema, keyword, inner)
        if isinstance(reference, str):
            result["allOf"] = [*result.get("allOf", ()), self._refer(reference, inner)]
        if look_aheads:
            result["allOf"] = [*result.get("allOf", ()), *look_aheads]
        self._convert_conditions(schema, "output" if side == "output" else "open", result)
        if side == "output" and schema.get("nullable") is True and "type" not in result and result:
            result = {"anyOf": [{"type": "null"}, result]}
        if side == "closed":
            self._close_object(schema, result, inner)
        return result

    def _default(self, schema: Mapping[str, Any], side: Side) -> dict[str, Any]:
        """Return the `default` of an argument as a schema, or {}. The runtime fills the default in."""
        value = schema.get("default", MISSING)
        is_none = value is MISSING or (value is None and not self._sends_null)
        return {} if side == "output" or is_none else {"default": value}

    def _convert_conditions(self, schema: Mapping[str, Any], side: Side, result: dict[str, Any]) -> None:
        for keyword in ("if", "not"):
            if keyword in schema:
                result[keyword] = self._convert_exactly(schema[keyword], side)
        for keyword in ("then", "else"):
            if keyword in schema:
                result[keyword] = self.converted(schema[keyword], side)
        if isinstance(schema.get("dependentSchemas"), dict):
            result["dependentSchemas"] = {
                name: self.converted(dependent, side) for name, dependent in schema["dependentSchemas"].items()
            }

    def _convert_exactly(self, schema: Any, side: Side) -> dict[str, Any]:
        """Convert a schema below `not` or `if` exactly. If it accepted less there, the whole schema would accept more.

        Raises:
            Inconvertible: a part of the schema cannot be expressed exactly.
        """
        self._exact += 1
        try:
            return self._convert_node(schema, side)
        finally:
            self._exact -= 1

    def _convert_type(self, schema: Mapping[str, Any], side: Side, result: dict[str, Any]) -> None:
        value = schema.get("type")
        types = [value] if isinstance(value, str) else value
        if types is not None:
            if not isinstance(types, list) or not types or not _TYPES.issuperset(map(str, types)):
                raise Inconvertible(f"the type `{str(value)[:40]}` is not one of JSON")
            if schema.get("nullable") is True and "null" not in types:
                types = [*types, "null"]
            result["type"] = types[0] if len(types) == 1 else list(types)
        elif side == "closed" and "properties" in schema:
            result["type"] = "object"
        if side != "output" and (description := plain_text(schema.get("description"), MAX_DESCRIBED_CHARS)):
            result["description"] = description
        self._convert_format(schema.get("format"), side, result)

    def _convert_format(self, name: Any, side: Side, result: dict[str, Any]) -> None:
        if not isinstance(name, str):
            return
        if self._exact and (name in FORMATS or name == "int32"):
            raise Inconvertible("a `format` below `not` or `if` is not supported")
        if side == "output":
            return
        if name in FORMATS:
            result["format"] = name
        elif name == "int32":
            result |= {"minimum": -(2**31), "maximum": 2**31 - 1}
        elif result.get("type") not in ("integer", "number") and name not in _UNCHECKED_FORMATS:
            self._note(f"the format `{plain_text(name, 40)}` is not checked")

    def _convert_values(self, schema: Mapping[str, Any], side: Side, result: dict[str, Any]) -> list[dict[str, Any]]:
        """Convert the keywords that constrain the value itself. Return the schemas of its pattern's look-aheads."""
        result |= {keyword: schema[keyword] for keyword in _COPIED & schema.keys()} | self._default(schema, side)
        for keyword in [
            key for key in result.keys() & _COPIED if _is_number(result[key]) and abs(result[key]) > MAX_INT
        ]:
            # No JSON value has so many parts.
            del result[keyword]
            self._refuse_inexact()
            if keyword not in _UPPER_COUNTS and side != "output":
                raise Inconvertible(f"`{keyword}` is beyond what JSON carries")
        if "required" in result and not isinstance(result["required"], list):
            # Drafts before 4 wrote `required` at the property.
            del result["required"]
            if side != "output":
                raise Inconvertible("`required` is not a list")
        if "required" in result:
            result["required"] = list(dict.fromkeys(map(str, result["required"])))
        for keyword, sign in _BOUNDS.items():
            bound: Any = schema.get(keyword)
            if bound is True and keyword.startswith("exclusive"):
                # In drafts before 6 `exclusiveMaximum: true` says that `maximum` is exclusive.
                bound = schema.get(keyword[9:].lower())
            if bound is False and keyword.startswith("exclusive"):
                continue
            if _is_number(bound):
                if abs(bound) <= MAX_INT or (isinstance(bound, float) and abs(bound) >= _EXACT_FROM):
                    result[keyword] = bound
                elif (bound > 0) != (sign > 0):
                    raise Inconvertible(f"`{keyword}` is beyond what JSON carries")
                elif self._exact:
                    self._refuse_inexact()
                elif side != "output":
                    # JSON carries no number between `MAX_INT` and the bound, so `MAX_INT` accepts the same numbers.
                    plain = "maximum" if sign > 0 else "minimum"
                    result[plain] = sign * min(sign * result.get(plain, bound), MAX_INT)
            elif bound is not None:
                raise Inconvertible(f"`{keyword}` is not a number")
        # An exclusive bound that was `true` became a number above. It replaces the plain bound, which is there too.
        for plain in ("maximum", "minimum"):
            if schema.get(exclusive := f"exclusive{plain.capitalize()}") is True and exclusive in result:
                result.pop(plain, None)
        if "enum" in schema or "const" in schema:
            enum = schema["enum"] if "enum" in schema else [schema["const"]]
            if not isinstance(enum, list):
                raise Inconvertible("`enum` is not a list")
            values = [value for value in enum if not (_is_number(value) and abs(value) > MAX_INT)]
            if len(values) < len(enum):
                self._refuse_inexact()
                self._note("a number beyond 2^53-1 in `enum` cannot be sent")
            if "enum" in schema and "const" in schema:
                only = schema["const"]
                values = [item for item in values if item == only and isinstance(item, bool) == isinstance(only, bool)]
            nullable = side == "output" and schema.get("nullable") is True and None not in values
            result["enum"] = [*values, None] if nullable else values
        if "pattern" not in schema:
            return []
        pattern_parts = self._patterns.written_out(schema["pattern"])
        if pattern_parts is not None:
            result["pattern"], ahead = pattern_parts
            return ahead
        reason = self._patterns.fault(schema["pattern"]) or NOT_LINEAR
        if side != "output" or self._exact:
            raise Inconvertible(reason)
        self._note(reason)
        return []

    def _refuse_inexact(self) -> None:
        """Raise `Inconvertible` below `not` or `if`: a number that is cut there would make the whole accept more."""
        if self._exact:
            raise Inconvertible("a number beyond 2^53-1 below `not` or `if` is not supported")

    def _convert_parts(self, schema: Mapping[str, Any], side: Side, result: dict[str, Any]) -> None:
        """Convert the schemas of the properties and the items of the value."""
        properties = schema.get("properties")
        if isinstance(properties, dict):
            visible = {
                name: prop
                for name, prop in properties.items()
                if side == "output" or self._exact or not (isinstance(prop, dict) and prop.get("readOnly") is True)
            }
            result["properties"] = {name: self.converted(prop, side) for name, prop in visible.items()}
            # An open object takes properties that it does not name, but never one that only the server sets.
            if side != "output" and (_OPENING & schema.keys()) and schema.get("additionalProperties") is not False:
                result["properties"] |= {name: dict(NOTHING) for name in properties.keys() - visible.keys()}
            hidden = {
                name
                for name, prop in properties.items()
                if isinstance(prop, dict) and prop.get("writeOnly" if side == "output" else "readOnly") is True
            }
            if hidden and "required" in result and not self._exact:
                result["required"] = [name for name in result["required"] if name not in hidden]
        elif properties is not None:
            raise Inconvertible("`properties` is not an object")
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            if fault := next(filter(None, map(self._patterns.fault, patterns)), None):
                raise Inconvertible(fault)
            result["patternProperties"] = {name: self.converted(part, side) for name, part in patterns.items()}
        for keyword in ("contains", "items", "propertyNames", "unevaluatedItems"):
            if keyword in schema:
                if keyword == "contains" and "maxContains" in schema:
                    result[keyword] = self._convert_exactly(schema[keyword], "open" if side != "output" else side)
                else:
                    result[keyword] = self.converted(schema[keyword], side)
        if isinstance(schema.get("prefixItems"), list):
            result["prefixItems"] = [self.converted(item, side) for item in schema["prefixItems"]]
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            value = schema.get(keyword)
            if value is not None:
                result[keyword] = value if isinstance(value, bool) else self.converted(value, side)

    def _convert_branches(self, schema: Mapping[str, Any], keyword: str, side: Side) -> list[dict[str, Any]]:
        branches = schema[keyword]
        if not isinstance(branches, list) or not branches:
            raise Inconvertible(f"`{keyword}` is not a list of schemas")
        results = [self.converted(branch, side) for branch in branches]
        discriminator = schema.get("discriminator")
        name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
        if side == "output" or self._exact or keyword == "allOf" or not isinstance(name, str):
            return results
        mapping = discriminator.get("mapping") if isinstance(discriminator, dict) else None
        return [
            self._tag_branch(name, mapping if isinstance(mapping, dict) else {}, branch, result)
            for branch, result in zip(branches, results, strict=True)
        ]

    def _tag_branch(self, name: str, mapping: Mapping[str, Any], branch: Any, result: dict[str, Any]) -> dict[str, Any]:
        """Return a branch that also requires the discriminator's property, with a value that chooses this branch."""
        reference = branch.get("$ref") if isinstance(branch, dict) else None
        if not isinstance(reference, str):
            return result
        last = reference.rpartition("/")[2]
        values = [value for value, target in mapping.items() if target in (reference, last)]
        target_schema = self._look_up(reference)
        properties = target_schema.get("properties") if isinstance(target_schema, dict) else None
        prop = properties.get(name) if isinstance(properties, dict) else None
        has_values = isinstance(prop, dict) and ("enum" in prop or "const" in prop)
        value = {} if has_values else {"enum": values or [last]}
        return {"allOf": [result, {"type": "object", "properties": {name: value}, "required": [name]}]}

    def _close_object(self, schema: Mapping[str, Any], result: dict[str, Any], inner: Side) -> None:
        """Refuse unnamed properties, unless the document says something about them."""
        if "additionalProperties" in schema or "unevaluatedProperties" in schema:
            return
        has_parts = any(keyword in schema for keyword in _IN_PLACE)
        if has_parts and inner == "open":
            parts = [*in_place(schema, self._look_up)]
            if not any("properties" in part or "patternProperties" in part for part in parts):
                return
            result["unevaluatedProperties"] = False
        elif "properties" in result or "patternProperties" in result:
            parts = [schema]
            result["additionalProperties"] = False
        else:
            return
        # A property that is required and nowhere described can have any value.
        if beyond := always_required(parts) - properties_of(parts).keys():
            result["properties"] = {**result.get("properties", {}), **{name: {} for name in sorted(beyond)}}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _constrains(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema has a keyword that constrains a value, apart from `$ref`."""
    return not _CONSTRAINTS.isdisjoint(schema)
