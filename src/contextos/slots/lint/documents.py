"""The bytes of an Open Agent Spec document to a JSON value: JSON, or YAML as pyagentspec writes it.

YAML is read as JSON's data model and nothing more: no aliases (a few lines of them stand for gigabytes), no tags, no
keys that are not text, no key twice, no dates. What is left passes the same caps and checks as JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

from contextos.contracts.encoding.codec import MAX_BYTES, MAX_DEPTH, MAX_NODES, JsonValue, loads
from contextos.errors import MalformedJson, Problem


def read_document(raw: bytes) -> JsonValue:
    """A document from outside. What begins with a brace is JSON, anything else YAML.

    Raises:
        MalformedJson: it is neither within the limits.
    """
    if raw.lstrip()[:1] in (b"{", b"["):
        return loads(raw)
    return loads(_as_json(raw))


def exceeded_size_limit(value: Any) -> Problem | None:
    """Which limit a value is beyond that somebody else read, or built: one that holds itself is beyond all."""
    waiting, count = [(value, 1)], 0
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH + 1:
            return Problem("", "too_deep", f"nesting is deeper than {MAX_DEPTH}", "flatten the value")
        if count > MAX_NODES:
            return Problem("", "too_many_nodes", f"the document holds more than {MAX_NODES} values", "send less")
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
        root = yaml.compose(text, Loader=_loader())
        return json.dumps(_value(root, yaml.SafeLoader("")))
    except UnicodeDecodeError as error:
        raise _malformed("not_utf8", f"byte {error.start} is not UTF-8", "encode the text as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1} column {mark.column + 1}" if mark is not None else ""
        raise _malformed("syntax", f"this is neither JSON nor YAML{where}", "send one document") from None


def _loader() -> Any:
    """The parser in C where the package has it: the one in Python takes seconds for a megabyte."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_events(text: str) -> None:
    """Depth, size and forbidden forms, before anything is built."""
    import yaml

    depth = nodes = 0
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _at(event, "alias", "an alias stands for text elsewhere", "write the value out")
        if getattr(event, "tag", None) is not None:
            raise _at(event, "tag", "a tag asks for a type of its own", "leave it out")
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _at(event, "too_deep", f"nesting is deeper than {MAX_DEPTH}", "flatten the value")
        if nodes > MAX_NODES:
            raise _malformed("too_many_nodes", f"the document holds more than {MAX_NODES} values", "send less")


_JSON_TAGS: Final = {"tag:yaml.org,2002:" + name for name in ("str", "int", "float", "bool", "null")}


def _value(node: Any, loader: Any) -> Any:
    """A composed node as JSON; scalars as `safe_load` would read them, so that both readers agree."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        made: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise _at(key, "not_text", "a key is not text", "put it in quotes")
            if key.value in made:
                raise _at(key, "duplicate_key", "the key stands here twice", "keep one of them")
            made[key.value] = _value(value, loader)
        return made
    if isinstance(node, yaml.SequenceNode):
        return [_value(one, loader) for one in node.value]
    if node is None:
        return None
    if node.tag not in _JSON_TAGS:
        raise _at(node, "not_json", "the value is none of JSON's, a date for example", "put it in quotes")
    try:
        return loader.construct_object(node)
    except ValueError:
        raise _at(node, "not_json", "the number cannot be read", "put it in quotes") from None


def _at(marked: Any, code: str, detail: str, remedy: str) -> MalformedJson:
    return _malformed(code, f"{detail}: line {marked.start_mark.line + 1}", remedy)


def _malformed(code: str, detail: str, remedy: str) -> MalformedJson:
    return MalformedJson(Problem("", code, detail, remedy))
