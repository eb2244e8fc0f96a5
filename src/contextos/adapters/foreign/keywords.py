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

_SIMPLE: Final = frozenset({
    "dependentRequired", "maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems",
    "minLength", "minProperties", "multipleOf", "required", "uniqueItems",
})  # fmt: skip
_BOUNDS: Final = {"maximum": 1, "exclusiveMaximum": 1, "minimum": -1, "exclusiveMinimum": -1}
_SINGLE: Final = ("contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems")
_OPENING: Final = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties"))
_IN_PLACE: Final = (*IN_PLACE_LISTS, "$ref", "dependentSchemas", "if")
_EXACT_FROM: Final = 1e21
"""From here on the canonical form of a number has an exponent (`1e+21`), so no reader rounds it as an integer."""
_CONSTRAINTS: Final = frozenset(
    (
        *_SIMPLE,
        *_BOUNDS,
        *_SINGLE,
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
_NO_CHECK: Final = frozenset({"binary", "password"})
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
            return self._node(schema, side)
        except Inconvertible as error:
            if self._exact:
                raise
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
            referred = self._refer(reference, side)
            # In version 3.0 the members beside a `$ref` do not count.
            return referred if self._is_3_0 else referred | self._default(schema, side)
        inner: Side = side if side == "output" or in_parts.is_alternative(schema) else "open"
        made: dict[str, Any] = {}
        self._type(schema, side, made)
        ahead = self._values(schema, side, made)
        self._inside(schema, "open" if self._exact else "closed" if side != "output" else side, made)
        for keyword in IN_PLACE_LISTS:
            if keyword in schema:
                # Branches of sloppy documents overlap, so an answer has to fit at least one and not exactly one.
                loose = keyword == "oneOf" and side == "output" and "anyOf" not in schema and not self._exact
                said = "anyOf" if loose else keyword
                made[said] = self._branches(schema, keyword, inner)
        if isinstance(reference, str):
            made["allOf"] = [*made.get("allOf", ()), self._refer(reference, inner)]
        if ahead:
            made["allOf"] = [*made.get("allOf", ()), *ahead]
        self._conditions(schema, "output" if side == "output" else "open", made)
        if side == "output" and schema.get("nullable") is True and "type" not in made and made:
            made = {"anyOf": [{"type": "null"}, made]}
        if side == "closed":
            self._close(schema, made, inner)
        return made

    def _default(self, schema: Mapping[str, Any], side: Side) -> dict[str, Any]:
        """Return the `default` of an argument as a schema, or {}. The runtime fills the default in."""
        stated = schema.get("default", MISSING)
        is_none = stated is MISSING or (stated is None and not self._sends_null)
        return {} if side == "output" or is_none else {"default": stated}

    def _conditions(self, schema: Mapping[str, Any], side: Side, made: dict[str, Any]) -> None:
        for keyword in ("if", "not"):
            if keyword in schema:
                made[keyword] = self._exactly(schema[keyword], side)
        for keyword in ("then", "else"):
            if keyword in schema:
                made[keyword] = self.converted(schema[keyword], side)
        if isinstance(schema.get("dependentSchemas"), dict):
            made["dependentSchemas"] = {
                name: self.converted(one, side) for name, one in schema["dependentSchemas"].items()
            }

    def _exactly(self, schema: Any, side: Side) -> dict[str, Any]:
        """Convert a schema below `not` or `if`, where one that accepts less would make the whole accept more.

        Raises:
            Inconvertible: a part of the schema cannot be expressed exactly.
        """
        self._exact += 1
        try:
            return self._node(schema, side)
        finally:
            self._exact -= 1

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
        if side != "output" and (described := plain_text(schema.get("description"), MAX_DESCRIBED_CHARS)):
            made["description"] = described
        self._format(schema.get("format"), side, made)

    def _format(self, stated: Any, side: Side, made: dict[str, Any]) -> None:
        if not isinstance(stated, str):
            return
        if self._exact and (stated in FORMATS or stated == "int32"):
            raise Inconvertible("a `format` below `not` or `if` is not supported")
        if side == "output":
            return
        if stated in FORMATS:
            made["format"] = stated
        elif stated == "int32":
            made |= {"minimum": -(2**31), "maximum": 2**31 - 1}
        elif made.get("type") not in ("integer", "number") and stated not in _NO_CHECK:
            self._note(f"the format `{plain_text(stated, 40)}` is not checked")

    def _values(self, schema: Mapping[str, Any], side: Side, made: dict[str, Any]) -> list[dict[str, Any]]:
        """Convert the keywords that constrain the value itself. Return the schemas of its pattern's look-aheads."""
        made |= {keyword: schema[keyword] for keyword in _SIMPLE & schema.keys()} | self._default(schema, side)
        for keyword in [one for one in made.keys() & _SIMPLE if _is_number(made[one]) and abs(made[one]) > MAX_INT]:
            # No JSON value has so many parts.
            del made[keyword]
            self._refuse_turned()
            if keyword not in _UPPER_COUNTS and side != "output":
                raise Inconvertible(f"`{keyword}` is beyond what JSON carries")
        if "required" in made and not isinstance(made["required"], list):
            # Drafts before 4 wrote `required` at the property.
            del made["required"]
            if side != "output":
                raise Inconvertible("`required` is no list")
        if "required" in made:
            made["required"] = list(dict.fromkeys(map(str, made["required"])))
        for keyword, sign in _BOUNDS.items():
            bound: Any = schema.get(keyword)
            if bound is True and keyword.startswith("exclusive"):
                # In drafts before 6 `exclusiveMaximum: true` says that `maximum` is exclusive.
                bound = schema.get(keyword[9:].lower())
            if bound is False and keyword.startswith("exclusive"):
                continue
            if _is_number(bound):
                if abs(bound) <= MAX_INT or (isinstance(bound, float) and abs(bound) >= _EXACT_FROM):
                    made[keyword] = bound
                elif (bound > 0) != (sign > 0):
                    raise Inconvertible(f"`{keyword}` is beyond what JSON carries")
                elif self._exact:
                    self._refuse_turned()
                elif side != "output":
                    # JSON carries no number between `MAX_INT` and the bound, so `MAX_INT` accepts the same numbers.
                    plain = "maximum" if sign > 0 else "minimum"
                    made[plain] = sign * min(sign * made.get(plain, bound), MAX_INT)
            elif bound is not None:
                raise Inconvertible(f"`{keyword}` is no number")
        # An exclusive bound that was `true` became a number above. It replaces the plain bound, which is there too.
        for plain in ("maximum", "minimum"):
            if schema.get(exclusive := f"exclusive{plain.capitalize()}") is True and exclusive in made:
                made.pop(plain, None)
        if "enum" in schema or "const" in schema:
            stated = schema["enum"] if "enum" in schema else [schema["const"]]
            if not isinstance(stated, list):
                raise Inconvertible("`enum` is no list")
            values = [one for one in stated if not (_is_number(one) and abs(one) > MAX_INT)]
            if len(values) < len(stated):
                self._refuse_turned()
                self._note("a number beyond 2^53-1 in `enum` cannot be sent")
            if "enum" in schema and "const" in schema:
                only = schema["const"]
                values = [one for one in values if one == only and isinstance(one, bool) == isinstance(only, bool)]
            nullable = side == "output" and schema.get("nullable") is True and None not in values
            made["enum"] = [*values, None] if nullable else values
        if "pattern" not in schema:
            return []
        said = self._patterns.written_out(schema["pattern"])
        if said is not None:
            made["pattern"], ahead = said
            return ahead
        why = self._patterns.fault(schema["pattern"]) or NOT_LINEAR
        if side != "output" or self._exact:
            raise Inconvertible(why)
        self._note(why)
        return []

    def _refuse_turned(self) -> None:
        """Raise `Inconvertible` below `not` or `if`: a number that is cut there would make the whole accept more."""
        if self._exact:
            raise Inconvertible("a number beyond 2^53-1 below `not` or `if` is not supported")

    def _inside(self, schema: Mapping[str, Any], side: Side, made: dict[str, Any]) -> None:
        """Convert the schemas of the properties and the items of the value."""
        properties = schema.get("properties")
        if isinstance(properties, dict):
            kept = {
                name: one
                for name, one in properties.items()
                if side == "output" or self._exact or not (isinstance(one, dict) and one.get("readOnly") is True)
            }
            made["properties"] = {name: self.converted(one, side) for name, one in kept.items()}
            # An open object takes properties that it does not name, but never one that only the server sets.
            if side != "output" and (_OPENING & schema.keys()) and schema.get("additionalProperties") is not False:
                made["properties"] |= {name: dict(NOTHING) for name in properties.keys() - kept.keys()}
            left_out = {
                name
                for name, one in properties.items()
                if isinstance(one, dict) and one.get("writeOnly" if side == "output" else "readOnly") is True
            }
            if left_out and "required" in made and not self._exact:
                made["required"] = [name for name in made["required"] if name not in left_out]
        elif properties is not None:
            raise Inconvertible("`properties` is no object")
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            if fault := next(filter(None, map(self._patterns.fault, patterns)), None):
                raise Inconvertible(fault)
            made["patternProperties"] = {name: self.converted(one, side) for name, one in patterns.items()}
        for keyword in ("contains", "items", "propertyNames", "unevaluatedItems"):
            if keyword in schema:
                if keyword == "contains" and "maxContains" in schema:
                    made[keyword] = self._exactly(schema[keyword], "open" if side != "output" else side)
                else:
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
        if side == "output" or self._exact or keyword == "allOf" or not isinstance(name, str):
            return made
        mapping = chosen_by.get("mapping") if isinstance(chosen_by, dict) else None
        return [
            self._chosen(name, mapping if isinstance(mapping, dict) else {}, branch, one)
            for branch, one in zip(branches, made, strict=True)
        ]

    def _chosen(self, name: str, mapping: Mapping[str, Any], branch: Any, made: dict[str, Any]) -> dict[str, Any]:
        """Return a branch that also requires the discriminator's property, with a value that chooses this branch."""
        reference = branch.get("$ref") if isinstance(branch, dict) else None
        if not isinstance(reference, str):
            return made
        last = reference.rpartition("/")[2]
        named = [value for value, to in mapping.items() if to in (reference, last)]
        own = self._look_up(reference)
        properties = own.get("properties") if isinstance(own, dict) else None
        stated = properties.get(name) if isinstance(properties, dict) else None
        says = isinstance(stated, dict) and ("enum" in stated or "const" in stated)
        value = {} if says else {"enum": named or [last]}
        return {"allOf": [made, {"type": "object", "properties": {name: value}, "required": [name]}]}

    def _close(self, schema: Mapping[str, Any], made: dict[str, Any], inner: Side) -> None:
        """Refuse unnamed properties, unless the document says something about them."""
        if "additionalProperties" in schema or "unevaluatedProperties" in schema:
            return
        has_parts = any(one in schema for one in _IN_PLACE)
        if has_parts and inner == "open":
            parts = [*in_place(schema, self._look_up)]
            if not any("properties" in one or "patternProperties" in one for one in parts):
                return
            made["unevaluatedProperties"] = False
        elif "properties" in made or "patternProperties" in made:
            parts = [schema]
            made["additionalProperties"] = False
        else:
            return
        # A property that is required and nowhere described can have any value.
        if beyond := always_required(parts) - properties_of(parts).keys():
            made["properties"] = {**made.get("properties", {}), **{name: {} for name in sorted(beyond)}}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _constrains(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema has a keyword that constrains a value, apart from `$ref`."""
    return not _CONSTRAINTS.isdisjoint(schema)
