"""Makes the JSON Schemas of tools: pydantic derives them from types, references are inlined, objects closed, and every
size bounded.

A text, list, map or number that the author did not bound gets the bound of `ARGUMENT_BOUNDS` or `OUTPUT_BOUNDS`.
Refuses a schema that accepts any value or properties without a name, that contains itself, or that cannot be enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from pydantic import PydanticUserError, TypeAdapter
from pydantic_core import PydanticOmit

from contextos.action.schema_profile import MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.model import MAX_COUNT
from contextos.errors import InvalidTool, Problem
from contextos.trust.redact import scan_unsafe

MAX_KEY_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class SchemaBounds:
    """The bounds for types to which the author gave none: characters of a text, elements of a list, keys of a map.

    A number is from -(2^53-1) to 2^53-1, which every JSON reader keeps exact.
    """

    max_text_chars: int
    max_items: int
    max_keys: int


ARGUMENT_BOUNDS: Final = SchemaBounds(max_text_chars=1_000, max_items=100, max_keys=100)
OUTPUT_BOUNDS: Final = SchemaBounds(max_text_chars=10_000, max_items=1_000, max_keys=1_000)

_YEAR: Final = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]0{2}|[1-9]0{3})"
_FRACTION: Final = r"(\.([0-9]{5}[1-9]|[0-9]{4}[1-9]0|[0-9]{3}[1-9]0{2}|[0-9]{2}[1-9]0{3}|[0-9][1-9]0{4}|[1-9]0{5}))?"
_OFFSET: Final = "(Z|[+-](0[1-9]|1[0-9]|2[0-3]):[0-5][0-9]|[+-]00:(0[1-9]|[1-5][0-9]))"
_TIME: Final = f"[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}{_FRACTION}{_OFFSET}$"
ONE_FORM: Final[Mapping[str, str]] = {
    "date": f"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$",
    "date-time": f"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}",
    "time": f"^{_TIME}",
    "uuid": "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
}
"""By format, the pattern that allows only one text for each value, so that no other spelling evades a rule on texts.

A time has no fraction or a fraction of six digits, and `Z` if it has no offset. The year 0000, which JSON Schema allows
and Python does not, does not match.
"""

_APPLICATORS: Final = ("anyOf", "oneOf", "allOf")
_TYPE_KEYWORDS: Final = frozenset({"type", "enum", "const", *_APPLICATORS})
_UNBOUNDED_FORMATS: Final = {"binary": "a text", "base64url": "a text", "password": "a text"}


def refuse_tool(name: str, code: str, at: tuple[str | int, ...], detail: str, remedy: str) -> NoReturn:
    """Raise `InvalidTool` for the tool `name`; `at` is the path of the fault in it."""
    raise InvalidTool(Problem(pointer((name[:80], *at)), code, f"`{name[:80]}`: {detail}", remedy))


def schema_of(
    adapter: TypeAdapter[Any],
    mode: Literal["validation", "serialization"],
    bounds: SchemaBounds,
    *,
    tool: str,
    at: tuple[str, ...],
) -> dict[str, Any]:
    """Return the closed and bounded JSON Schema of a type. `tool` and `at` name it in errors.

    Raises:
        InvalidTool: the type has no JSON form that can be enforced.
    """
    try:
        raw = adapter.json_schema(mode=mode)
    except (PydanticUserError, PydanticOmit) as error:
        reason = str(error).partition("\n")[0][:200]
        refuse_tool(
            tool, "no_json_form", at, f"{at[-1]} has no JSON form: {reason}", "use JSON types, or a model of them"
        )
    return closed_schema(raw, bounds, tool=tool, at=at)


def closed_schema(raw: Mapping[str, Any], bounds: SchemaBounds, *, tool: str, at: tuple[str, ...]) -> dict[str, Any]:
    """Return a JSON Schema closed and bounded, with its `$defs` written out. `tool` and `at` name it in errors.

    Raises:
        InvalidTool: it accepts any value, or it cannot be enforced.
    """
    node = dict(raw)
    return _SchemaReader(node.pop("$defs", {}), bounds, tool).closed(node, at, ())


class _SchemaReader:
    """Closes one schema. `definitions` holds the schemas to which its references point."""

    def __init__(self, definitions: Mapping[str, Any], bounds: SchemaBounds, tool: str) -> None:
        self.definitions, self.bounds, self.tool = definitions, bounds, tool
        self.count = 0

    def closed(self, node: dict[str, Any], at: tuple[str | int, ...], inside: tuple[str, ...]) -> dict[str, Any]:
        """Return `node` closed. `inside` holds the references that lead here."""
        self.count += 1
        if self.count > MAX_SUBSCHEMAS or len(at) > MAX_SCHEMA_DEPTH:
            self.refuse("too_large", at[:8], "it is nested too deeply, or too large", "flatten it")
        node = dict(node)
        if "$ref" in node:
            name = str(node.pop("$ref")).removeprefix("#/$defs/")
            if name in inside or name not in self.definitions:
                self.refuse("recursive", at, f"`{name}` contains itself", "write the levels out as models of their own")
            node = {**self.definitions[name], **node}
            return self.closed(node, at, (*inside, name))
        node.pop("title", None)
        discriminator = node.pop("discriminator", None)
        if not node.keys() & _TYPE_KEYWORDS:
            self.refuse("any_value", at, "it accepts any value", "give it a type other than `Any` and `object`")
        if unsafe := scan_unsafe(node.get("description", ""), declared_text=True):
            self.refuse("unsafe_text", at, f"its description has {unsafe[0].detail}", "remove it from the description")
        for keyword in _APPLICATORS:
            if keyword in node:
                node[keyword] = [
                    self.closed(branch, (*at, keyword, index), inside) for index, branch in enumerate(node[keyword])
                ]
        if isinstance(discriminator, Mapping):
            # The closed objects in `oneOf` repeat everything else that this schema says.
            for branch in node.get("oneOf", ()):
                _require_member(branch, discriminator.get("propertyName"))
        if "enum" not in node and "const" not in node:
            node = self._bound_node(node, at, inside)
        return node

    def _bound_node(self, node: dict[str, Any], at: tuple[str | int, ...], inside: tuple[str, ...]) -> dict[str, Any]:
        kind = node.get("type")
        if kind == "string":
            if node.get("format") in _UNBOUNDED_FORMATS:
                self.refuse(
                    "no_json_form",
                    at,
                    f"nothing enforces the format `{node['format']}`",
                    "use `str`, or `SecretStr` alone for a secret argument",
                )
            if self.bounds is ARGUMENT_BOUNDS and node.get("format") in ONE_FORM:
                node.setdefault("pattern", ONE_FORM[node["format"]])
            node.setdefault("maxLength", self.bounds.max_text_chars)
        elif kind in ("integer", "number"):
            # A bound beyond the exact integers would allow values that no call can have.
            for lower in [key for key in ("minimum", "exclusiveMinimum") if node.get(key, 0) < -MAX_COUNT]:
                del node[lower]
            for upper in [key for key in ("maximum", "exclusiveMaximum") if node.get(key, 0) > MAX_COUNT]:
                del node[upper]
            if "minimum" not in node and "exclusiveMinimum" not in node:
                node["minimum"] = -MAX_COUNT
            if "maximum" not in node and "exclusiveMaximum" not in node:
                node["maximum"] = MAX_COUNT
        elif kind == "array":
            self._close_list(node, at, inside)
        elif kind == "object":
            self._close_object(node, at, inside)
        return node

    def _close_list(self, node: dict[str, Any], at: tuple[str | int, ...], inside: tuple[str, ...]) -> None:
        if "prefixItems" in node:
            node["prefixItems"] = [
                self.closed(item, (*at, index), inside) for index, item in enumerate(node["prefixItems"])
            ]
        if "items" in node:
            node["items"] = self.closed(node["items"], (*at, "items"), inside)
        elif "prefixItems" not in node and node.get("maxItems") != 0:
            self.refuse("any_value", at, "a list of anything", "name the type of its elements, such as `list[str]`")
        if node.get("uniqueItems") and self.bounds is OUTPUT_BOUNDS:
            self.refuse("no_order", at, "a set has no order, so equal results would differ", "return a list or a tuple")
        node.setdefault("maxItems", self.bounds.max_items)

    def _close_object(self, node: dict[str, Any], at: tuple[str | int, ...], inside: tuple[str, ...]) -> None:
        properties = node.get("properties", {})
        if properties:
            node["properties"] = {name: self.closed(sub, (*at, name), inside) for name, sub in properties.items()}
        for pattern, sub in node.get("patternProperties", {}).items():
            node["patternProperties"] = {**node["patternProperties"], pattern: self.closed(sub, (*at, pattern), inside)}
        extra = node.get("additionalProperties", False)
        if extra is True or extra == {}:
            remedy = "name its values, such as `dict[str, int]`, or set `extra` to `forbid`"
            self.refuse("open_object", at, "an object of anything", remedy)
        node["additionalProperties"] = extra and self.closed(extra, (*at, "*"), inside)
        if extra or "patternProperties" in node:
            node.setdefault("maxProperties", self.bounds.max_keys)
            if "$ref" in node.get("propertyNames", ()):
                node["propertyNames"] = self.closed(node["propertyNames"], (*at, "*"), inside)
            node.setdefault("propertyNames", {"maxLength": MAX_KEY_CHARS})

    def refuse(self, code: str, at: tuple[str | int, ...], detail: str, remedy: str) -> NoReturn:
        refuse_tool(self.tool, code, at, f"{'.'.join(map(str, at))}: {detail}", remedy)


def _require_member(alternative: dict[str, Any], name: Any) -> None:
    """Require the member by which one of several alternatives is chosen: a type never fills in its default."""
    if name in alternative.get("properties", {}):
        prop = {keyword: value for keyword, value in alternative["properties"][name].items() if keyword != "default"}
        alternative["properties"] = {**alternative["properties"], name: prop}
        alternative["required"] = [*alternative.get("required", ()), *({name} - set(alternative.get("required", ())))]
