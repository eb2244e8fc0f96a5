"""Reads the bytes of an Open Agent Spec document as a JSON value: JSON, or YAML as pyagentspec writes it.

YAML is restricted to JSON's data model: no aliases (a few lines of them can expand to gigabytes), no tags, no keys that
are not strings, no duplicate keys, no dates, no longer numbers than in JSON. The result passes the same size limits and
checks as JSON. The C parser of PyYAML reads in time proportional to the size, which its Python parser does not.
"""

from __future__ import annotations

import json
from typing import Any, Final

from contextos.contracts.encoding.codec import MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_NUMBER_CHARS, JsonValue, loads
from contextos.errors import MalformedJson, Problem


def read_document(raw: bytes) -> JsonValue:
    """Read the bytes of an agent document. If they begin with a brace or a bracket they are JSON, otherwise YAML.

    Raises:
        MalformedJson: the bytes are neither JSON nor YAML, or exceed a size limit.
    """
    if raw.lstrip()[:1] in (b"{", b"["):
        return loads(raw)
    return loads(_as_json(raw))


def exceeded_size_limit(value: Any) -> Problem | None:
    """Return a problem for the first size limit that `value` exceeds, or None. A value that contains itself exceeds
    one.
    """
    waiting, count = [(value, 1)], 0
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH + 1:
            return Problem("", "too_deep", f"the document is nested deeper than {MAX_DEPTH} levels", "flatten it")
        if count > MAX_NODES:
            return Problem("", "too_many_nodes", f"the document has more than {MAX_NODES} values", "send less")
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += [(below, depth + 1) for below in inside]
    return None


def _as_json(raw: bytes) -> str:
    import yaml

    if len(raw) > MAX_BYTES:
        raise _malformed("too_large", f"the document is larger than {MAX_BYTES} bytes", "send less")
    try:
        text = raw.decode()
        _check_events(text)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        return json.dumps(_value(root, yaml.SafeLoader("")))
    except UnicodeDecodeError as error:
        raise _malformed("not_utf8", f"byte {error.start} is not UTF-8", "encode the text as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1} column {mark.column + 1}" if mark is not None else ""
        raise _malformed("syntax", f"the document is neither JSON nor YAML{where}", "send one document") from None


def _check_events(text: str) -> None:
    """Refuse excessive depth or size, aliases and tags, before any value is built."""
    import yaml

    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _at(event, "alias", "aliases are not allowed", "write the value out")
        if getattr(event, "tag", None) is not None:
            raise _at(event, "tag", "tags are not allowed", "remove the tag")
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _at(event, "too_deep", f"the document is nested deeper than {MAX_DEPTH} levels", "flatten it")
        if nodes > MAX_NODES:
            raise _malformed("too_many_nodes", f"the document has more than {MAX_NODES} values", "send less")


_JSON_TAGS: Final = {"tag:yaml.org,2002:" + name for name in ("str", "int", "float", "bool", "null")}
_NUMBER_TAGS: Final = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


def _value(node: Any, loader: Any) -> Any:
    """Convert a composed node to JSON. Scalars are read as `safe_load` reads them."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise _at(key, "not_text", "the key is not a string", "put it in quotes")
            if key.value in result:
                raise _at(key, "duplicate_key", "the key occurs twice", "keep one of them")
            result[key.value] = _value(value, loader)
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_value(one, loader) for one in node.value]
    if node is None:
        return None
    if node.tag not in _JSON_TAGS:
        raise _at(node, "not_json", "the value has no JSON type (for example, it is a date)", "put it in quotes")
    if len(node.value) > MAX_NUMBER_CHARS and node.tag in _NUMBER_TAGS:
        detail = f"the number has more than {MAX_NUMBER_CHARS} characters"
        raise _at(node, "number_too_long", detail, "put it in quotes")
    try:
        return loader.construct_object(node)
    except ValueError:
        raise _at(node, "not_json", "the number cannot be read", "put it in quotes") from None


def _at(marked: Any, code: str, detail: str, remedy: str) -> MalformedJson:
    return _malformed(code, f"{detail}: line {marked.start_mark.line + 1}", remedy)


def _malformed(code: str, detail: str, remedy: str) -> MalformedJson:
    return MalformedJson(Problem("", code, detail, remedy))
