"""Makes the schemas of a capability: each is within the profile, and has the schemas that it refers to under `$defs`.

The profile bounds the size of a schema with its references written out, and refuses a schema that refers to itself. In
such a schema as many references are followed as fit. Deeper values are refused in arguments and unchecked in answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from typing import Any, Final

import jsonschema_rs

from contextos.action.schema_profile import MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS, without_unused_defaults
from contextos.adapters.foreign.keywords import NOTHING, Inconvertible, Keywords, Side
from contextos.adapters.foreign.parts import all_below
from contextos.adapters.foreign.schema_document import SchemaDocument
from contextos.adapters.foreign.texts import MANY_PATTERNS, Patterns, plain_text
from contextos.contracts.encoding.defaults import shape_of
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidArtifact, InvalidInput

FOLLOWED: Final = (24, 12, 8, 6, 4, 3, 2, 1, 0)
"""The lengths of a chain of references that are tried in order. The first with which a schema fits is used."""
UNBOUNDED: Final = 1_000_000
"""The height of a schema that refers to itself, and the size of a schema that is larger than any limit."""

Build = Callable[["Convert"], dict[str, Any]]
"""Makes the whole schema of one side from the schemas of the document."""

Convert = Callable[[Any, Side], dict[str, Any]]


@dataclass
class _Definition:
    schema: dict[str, Any] = field(default_factory=dict)
    needs: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)
    size: int = 0
    depth: int = 0


@dataclass(frozen=True)
class MadeSchema:
    """A schema within the profile, with notes on the parts that were cut or left out to make it."""

    schema: dict[str, Any]
    notes: tuple[str, ...]


class Schemas:
    """Makes the schemas of the capabilities of one document. A schema that several of them share is converted once."""

    def __init__(self, document: SchemaDocument, patterns: Patterns | None = None) -> None:
        """`patterns` counts the patterns of a draft that has several documents; None: of this document alone."""
        self._document, self._patterns = document, patterns or Patterns()
        self._names: dict[str, str] = {}
        self.definitions: dict[str, _Definition] = {}
        self._heights: dict[str, int] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._children: dict[str, tuple[int, list[str]]] = {}

    def made(self, side: Side, sources: list[Any], build: Build) -> MadeSchema:
        """Return the schema that `build` makes, with as many references followed as fit.

        `sources` are the schemas of the document that `build` converts.

        Raises:
            Inconvertible: the schema does not fit the profile, is not valid, or refuses all arguments.
        """
        too_large = False
        for followed in FOLLOWED:
            if sum(self._schema_size(source, followed) for source in sources) > MAX_SUBSCHEMAS:
                too_large = True
                continue
            conversion = _Conversion(self, followed)
            root = build(conversion.convert)
            names = conversion.closure()
            schema = {**root, "$defs": {name: self.definitions[name].schema for name in sorted(names)}}
            if not names:
                del schema["$defs"]
            if not self._fits(root, names):
                too_large = True
                continue
            notes = set(conversion.notes)
            self._count_patterns(schema)
            try:
                if side != "output":
                    schema, places = without_unused_defaults(schema)
                    notes |= {
                        f"the default at `{place[:100]}` cannot be used, so a value is required" for place in places
                    }
                _check_schema(schema)
            except InvalidArtifact as error:
                raise Inconvertible(error.problems[0].detail) from None
            except (InvalidInput, ValueError) as error:
                raise Inconvertible(f"the schema is not valid: {str(error).splitlines()[0][:200]}") from None
            if side != "output" and (reason := _Refusals(schema.get("$defs", {})).reason(schema)):
                raise Inconvertible(_unusable_reason(reason, sorted(conversion.notes), too_large=too_large))
            if side != "output" and _overlaps(schema):
                notes.add("a value that fits one alternative of a `oneOf` can fit two at the server, which refuses it")
            return MadeSchema(schema, tuple(sorted(notes)))
        raise Inconvertible("its schema is larger than the profile")

    def _fits(self, root: Mapping[str, Any], names: set[str]) -> bool:
        """Return whether a schema is within the sizes of the profile, which counts what is under `$defs` as well.

        Each definition is measured once; `profile` itself measures all of them for each operation.
        """
        size, references, depth = _count_subschemas(root)
        sizes = sum(self._defined_size(_local_name(ref)) for ref in references) + sum(map(self._defined_size, names))
        depths = [depth, *(1 + self.definitions[name].depth for name in names)]
        return size + sizes <= MAX_SUBSCHEMAS and max(depths) <= MAX_SCHEMA_DEPTH

    def _count_patterns(self, schema: Mapping[str, Any]) -> None:
        """Count the patterns of a schema. The check of the schema compiles them, and again for each default.

        Raises:
            Inconvertible: a pattern cannot be checked, or the patterns of the draft are too large together.
        """
        subs = [sub for root in (schema, *schema.get("$defs", {}).values()) for sub, _ in all_below(root)]
        patterns = [name for sub in subs for name in (*sub.get("patternProperties", ()), sub.get("pattern")) if name]
        # A root has its patterns as keys also where their schemas cannot be used.
        if fault := next(filter(None, map(self._patterns.fault, patterns)), None):
            raise Inconvertible(fault)
        if not self._patterns.take(patterns, 1 + sum("default" in sub for sub in subs)):
            raise Inconvertible(MANY_PATTERNS)

    def _defined_size(self, name: str) -> int:
        definition = self.definitions[name]
        if not definition.size:
            size, references, definition.depth = _count_subschemas(definition.schema)
            definition.size = min(size + sum(self._defined_size(_local_name(ref)) for ref in references), UNBOUNDED)
        return definition.size

    def look_up(self, reference: str) -> Any:
        """Return the schema that a reference leads to. Raises `Inconvertible` if it leads nowhere."""
        try:
            return self._document.at(reference)
        except InvalidInput as error:
            raise Inconvertible(error.problems[0].detail) from None

    def keywords(self, refer: Callable[[str, Side], dict[str, Any]], note: Callable[[str], None]) -> Keywords:
        return Keywords(refer, self.look_up, note, self._document, self._patterns)

    def name(self, reference: str) -> str:
        """Return the name of a reference under `$defs`: its last segment in plain letters, made unique."""
        if reference not in self._names:
            plain = re.sub(r"[^A-Za-z0-9_]+", "_", reference.rpartition("/")[2])[:60] or "schema"
            names = set(self._names.values())
            self._names[reference] = next(
                name for number in count(1) if (name := plain if number == 1 else f"{plain}_{number}") not in names
            )
        return self._names[reference]

    def variant(self, reference: str, side: Side, followed: int) -> str:
        """Return the name of the schema of a reference, in which a chain of `followed` references is followed."""
        suffix = "" if self.height(reference) <= followed else f".{followed}"
        return f"{self.name(reference)}{'' if side == 'output' else '.' + side}{suffix}"

    def define(self, reference: str, side: Side, followed: int) -> None:
        """Convert the schema of a reference, and the schemas that it needs, down a chain of `followed` references."""
        name = self.variant(reference, side, followed)
        waiting = [(name, reference, side, followed)]
        while waiting:
            variant, source, its_side, steps = waiting.pop()
            if variant in self.definitions:
                continue
            entry = self.definitions[variant] = _Definition()
            conversion = _Conversion(self, steps, into=entry)
            entry.schema = self.keywords(conversion.refer, entry.notes.add).converted(self.look_up(source), its_side)
            waiting += conversion.waiting

    def height(self, reference: str, steps: int = 0) -> int:
        """Return the length of the longest chain of references below this one, or `UNBOUNDED` if it is a circle."""
        if reference not in self._heights:
            if steps > 60:
                return UNBOUNDED
            self._heights[reference] = UNBOUNDED
            _, children = self._direct_references(reference)
            self._heights[reference] = min(
                1 + max((self.height(child, steps + 1) for child in children), default=-1), UNBOUNDED
            )
        return self._heights[reference]

    def _direct_references(self, reference: str) -> tuple[int, list[str]]:
        if reference not in self._children:
            try:
                schema = self.look_up(reference)
            except Inconvertible:
                schema = {}
            size, references, _ = _count_subschemas(schema)
            self._children[reference] = size, references
        return self._children[reference]

    def _schema_size(self, schema: Any, followed: int) -> int:
        size, references, _ = _count_subschemas(schema)
        return min(size + sum(self._reference_size(ref, followed - 1) for ref in references), UNBOUNDED)

    def _reference_size(self, reference: str, followed: int) -> int:
        if followed < 0:
            return 1
        if (reference, followed) not in self._sizes:
            size, references = self._direct_references(reference)
            nested = sum(self._reference_size(ref, followed - 1) for ref in references)
            self._sizes[reference, followed] = min(1 + size + nested, UNBOUNDED)
        return self._sizes[reference, followed]


class _Conversion:
    """One conversion of a schema: how many more references it follows, and the definitions that it needs."""

    def __init__(self, schemas: Schemas, followed: int, *, into: _Definition | None = None) -> None:
        self._schemas, self._followed = schemas, followed
        self._definition = into or _Definition()
        self._is_nested = into is not None
        self.waiting: list[tuple[str, str, Side, int]] = []
        self.notes = self._definition.notes

    def convert(self, schema: Any, side: Side) -> dict[str, Any]:
        return self._schemas.keywords(self.refer, self.notes.add).converted(schema, side)

    def refer(self, reference: str, side: Side) -> dict[str, Any]:
        self._schemas.look_up(reference)
        if self._followed <= 0:
            deeper = "refused" if side != "output" else "not checked"
            self.notes.add(f"`{self._schemas.name(reference)}` is {deeper} where it is nested deeper")
            return {} if side == "output" else dict(NOTHING)
        remaining = self._followed - 1
        name = self._schemas.variant(reference, side, remaining)
        self._definition.needs.add(name)
        if self._is_nested:
            self.waiting.append((name, reference, side, remaining))
        else:
            self._schemas.define(reference, side, remaining)
        return {"$ref": f"#/$defs/{name}"}

    def closure(self) -> set[str]:
        """Return the names of all definitions that the schema needs, also indirectly, and add their notes."""
        names: set[str] = set()
        waiting = list(self._definition.needs)
        while waiting:
            name = waiting.pop()
            if name not in names:
                names.add(name)
                definition = self._schemas.definitions[name]
                waiting += definition.needs
                self.notes.update(definition.notes)
        return names


def _count_subschemas(schema: Any) -> tuple[int, list[str], int]:
    """Return the number of subschemas of a schema, its references (a repeated one repeatedly), and its depth."""
    number, references, deepest = 0, [], 0
    for subschema, depth in all_below(schema):
        number, deepest = number + 1, max(deepest, depth)
        if isinstance(subschema.get("$ref"), str):
            references.append(subschema["$ref"])
    return number, references, deepest


def _local_name(reference: str) -> str:
    return reference.removeprefix("#/$defs/")


def _unusable_reason(reason: str, notes: list[str], *, too_large: bool) -> str:
    """Return the reason why no arguments satisfy a schema: the parts that were cut (`notes`), or else `reason`."""
    text = "; ".join(notes[:3]) or f"no arguments satisfy its schema: {reason}"
    return f"its schema is larger than the profile: {text}" if notes and too_large else text


def _overlaps(schema: Mapping[str, Any]) -> bool:
    """Return whether two alternatives of a `oneOf` could accept the same value if the runtime had not closed them."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            branches = node.get("oneOf")
            if isinstance(branches, list):
                shapes = [replace(shape_of(schema, branch), closed=()) for branch in branches]
                if not all(first.apart(other) for first, other in combinations(shapes, 2)):
                    return True
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return False


class _Refusals:
    """Finds out why parts of a schema refuse every value. Each part is looked at once. No reason is found for a part
    that leads back to itself or is deeper than 64 steps.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._reasons: dict[int, str] = {}

    def reason(self, schema: Any, steps: int = 0) -> str:
        """Return an evident reason why no value satisfies a schema, or "" if there is none."""
        if not isinstance(schema, Mapping) or steps > 64:
            return ""
        if id(schema) not in self._reasons:
            self._reasons[id(schema)] = ""
            self._reasons[id(schema)] = self._find_reason(schema, steps + 1)
        return self._reasons[id(schema)]

    def _find_reason(self, schema: Mapping[str, Any], steps: int) -> str:
        if schema.get("not") == {}:
            return "it refuses every value"
        target = self._definitions.get(schema["$ref"].removeprefix("#/$defs/")) if "$ref" in schema else None
        reasons = [self.reason(part, steps) for part in (target, *schema.get("allOf", ()))]
        for keyword in ("anyOf", "oneOf"):
            branches = [self.reason(branch, steps) for branch in schema.get(keyword, ())]
            reasons += branches[:1] if all(branches) else []
        if schema.get("type") == "array" and schema.get("minItems", 0):
            reasons.append(self.reason(schema.get("items"), steps))
        if schema.get("type") == "object":
            reasons += self._property_reasons(schema, steps)
        return next(filter(None, reasons), "")

    def _property_reasons(self, schema: Mapping[str, Any], steps: int) -> Iterator[str]:
        properties = schema.get("properties", {})
        is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        for name in schema.get("required", ()):
            if name in properties:
                yield self.reason(properties[name], steps)
            elif is_closed:
                yield f"it requires `{plain_text(name, 80)}`, and allows no such property"


def _check_schema(schema: dict[str, Any]) -> None:
    """Check a schema as the registry does. Raises `MalformedJson`, or `ValueError` if the schema does not compile."""
    canonical(schema)
    jsonschema_rs.Draft202012Validator(
        schema, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=True, ignore_unknown_formats=False
    )
