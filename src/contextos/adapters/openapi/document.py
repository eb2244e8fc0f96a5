"""Reads the bytes of an OpenAPI document, JSON or YAML, within limits, and follows references inside of it.

YAML is restricted to JSON's data model, as version 1.2 of YAML reads it: no tags, no merge keys, no duplicate keys. An
alias counts as many values as it means, because a few lines of them can expand to gigabytes. A reference leads to a
place in the same document and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.errors import InvalidInput, MalformedJson, Problem

MAX_OPENAPI_BYTES: Final = 33_554_432
MAX_OPENAPI_DEPTH: Final = 100
MAX_OPENAPI_NODES: Final = 1_500_000
MAX_REFERENCE_STEPS: Final = 32
"""The most references that lead from one to the next."""

_VERSION: Final = re.compile(r"3\.[01]\.[0-9]{1,3}")
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,20}")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]{1,60}|[0-9]{1,60}(?:\.[0-9]{0,60})?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""YAML 1.2, core schema. `no`, `on` and dates are texts there."""


class OpenApiDocument:
    """An OpenAPI document. `root` is its JSON value, and `is_3_0` whether its schemas are those of version 3.0."""

    def __init__(self, raw: bytes) -> None:
        """Read a document.

        Raises:
            MalformedJson: the bytes are neither JSON nor YAML, or exceed a limit.
            InvalidInput: it is no OpenAPI document of version 3.0 or 3.1.
        """
        root = read_openapi(raw)
        version = root.get("openapi") if isinstance(root, dict) else None
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            detail = "the document is not OpenAPI 3.0 or 3.1"
            raise InvalidInput(Problem("/openapi", "not_openapi", detail, "convert it to OpenAPI 3.1"))
        self.root: dict[str, Any] = root
        self.is_3_0 = version.startswith("3.0")

    def at(self, reference: str) -> Any:
        """Return the value that a reference leads to.

        Raises:
            InvalidInput: it leads out of the document, to nothing, or in a circle.
        """
        if not reference.startswith("#"):
            detail = f"`{reference[:80]!a}` leads out of the document"
            raise InvalidInput(Problem("", "remote_reference", detail, "put what it means into the document"))
        found = resolve_pointer(self.root, unquote(reference[1:]))
        if found is MISSING:
            detail = f"`{reference[:80]!a}` leads to nothing"
            raise InvalidInput(Problem("", "dangling_reference", detail, "correct the reference"))
        return found

    def whole(self, value: Any) -> Mapping[str, Any]:
        """Return the object that `value` is or refers to, for all but schemas, whose references can come back.

        Raises:
            InvalidInput: as `at`, or there is no object.
        """
        for _ in range(MAX_REFERENCE_STEPS):
            if not isinstance(value, dict):
                raise InvalidInput(Problem("", "no_object", "an object is missing in the document", "correct it"))
            if not isinstance(value.get("$ref"), str):
                return value
            value = self.at(value["$ref"])
        raise InvalidInput(Problem("", "reference_cycle", "a reference comes back to itself", "correct the reference"))


def read_openapi(raw: bytes) -> Any:
    """Return the JSON value of a document. If it begins with a brace it is JSON, otherwise YAML.

    Raises:
        MalformedJson: the bytes are neither JSON nor YAML, or exceed a limit.
    """
    if len(raw) > MAX_OPENAPI_BYTES:
        raise _malformed("too_large", f"the document is larger than {MAX_OPENAPI_BYTES} bytes", "send a part of it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _malformed("not_utf8", f"byte {error.start} is not UTF-8", "encode the text as UTF-8") from None
    value = _read_json(text) if text.lstrip()[:1] in ("{", "[") else _read_yaml(text)
    _check_depth(value)
    return value


def _read_json(text: str) -> Any:
    if text.count(",") + text.count("{") + text.count("[") > MAX_OPENAPI_NODES:
        raise _too_many()
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed("syntax", f"the document is no JSON at line {error.lineno}", "correct it") from None
    except RecursionError:
        raise _too_deep() from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _malformed("duplicate_key", "an object of the document has a key twice", "keep one of them")
    return value


def _integer(literal: str) -> int | float:
    # A number of thousands of digits takes long to read, and nothing in a schema needs it.
    return int(literal) if len(literal) <= 40 else float("inf")


def _no_constant(_literal: str) -> Any:
    raise _malformed("number_not_finite", "the document has a number that is not finite", "correct it")


_JSON: Final = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_int=_integer, parse_constant=_no_constant)


def _read_yaml(text: str) -> Any:
    import yaml

    try:
        return _from_events(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise _malformed("syntax", f"the document is neither JSON nor YAML{where}", "send one document") from None


def _from_events(text: str) -> Any:
    """Build the value while the events are read, so that a limit is found before memory is used. An alias counts as
    many values as it means.
    """
    import yaml

    read: list[Any] = []
    add: Callable[[Any], None] = read.append
    stack: list[tuple[Callable[[Any], None], str | None, int, Any]] = []
    anchors: dict[str, tuple[Any, int]] = {}
    nodes = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        kind = type(event)
        if kind is yaml.ScalarEvent:
            nodes += 1
            add(value := _scalar(event))
            if event.anchor is not None:
                anchors[event.anchor] = value, 1
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            nodes += 1
            made: Any = {} if kind is yaml.MappingStartEvent else []
            add(made)
            stack.append((add, event.anchor, nodes, made))
            add = _adder(made) if kind is yaml.MappingStartEvent else made.append
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            add, anchor, before, made = stack.pop()
            if anchor is not None:
                anchors[anchor] = made, nodes - before + 1
        elif kind is yaml.AliasEvent:
            if event.anchor not in anchors:
                raise _at(event, "alias", "an alias is inside of what it means", "write the value out")
            value, size = anchors[event.anchor]
            nodes += size
            add(value)
        if nodes > MAX_OPENAPI_NODES:
            raise _too_many()
        if len(stack) > MAX_OPENAPI_DEPTH:
            raise _too_deep()
        if getattr(event, "tag", None) is not None:
            raise _at(event, "tag", "tags are not allowed", "remove the tag")
    if len(read) != 1:
        raise _malformed("syntax", "the text is not one document", "send one document")
    return read[0]


def _adder(into: dict[str, Any]) -> Callable[[Any], None]:
    """Return the function that takes the keys and values of a mapping in turn."""
    keys: list[str] = []

    def add(value: Any) -> None:
        if keys:
            into[keys.pop()] = value
            return
        if isinstance(value, dict | list):
            raise _malformed("not_text", "a key of the document is no text", "correct it")
        # The status codes of responses are written as numbers.
        key = value if isinstance(value, str) else json.dumps(value)
        if key in into or key == "<<":
            raise _malformed("duplicate_key", f"the key `{key[:80]!a}` occurs twice, or merges", "keep one of them")
        keys.append(key)

    return add


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first in "+-.0123456789":
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def _check_depth(value: Any) -> None:
    level, depth = [value] if isinstance(value, dict | list) else [], 0
    while level:
        depth += 1
        if depth > MAX_OPENAPI_DEPTH:
            raise _too_deep()
        level = [
            below
            for one in level
            for below in (one.values() if isinstance(one, dict) else one)
            if isinstance(below, dict | list)
        ]


def _too_deep() -> MalformedJson:
    return _malformed("too_deep", f"the document is nested deeper than {MAX_OPENAPI_DEPTH} levels", "flatten it")


def _too_many() -> MalformedJson:
    return _malformed("too_many_nodes", f"the document has more than {MAX_OPENAPI_NODES} values", "send a part of it")


def _at(marked: Any, code: str, detail: str, remedy: str) -> MalformedJson:
    return _malformed(code, f"{detail}: line {marked.start_mark.line + 1}", remedy)


def _malformed(code: str, detail: str, remedy: str) -> MalformedJson:
    return MalformedJson(Problem("", code, detail, remedy))
