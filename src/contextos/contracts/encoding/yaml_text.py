"""The one reader of YAML: version 1.2, core schema, restricted to JSON's data model, and the writer that it reads back.

No tags, no merge keys, no duplicate keys, one document. What an author writes is refused where YAML 1.1 reads another
value, such as `010`, `1_000`, `1:30`, `no`, the value `y` and a date: nobody can say which was meant. A document of a
foreign server is read as version 1.2 says; one that names another version is refused. The C parser of
PyYAML reads in time proportional to the size.
Source: YAML 1.2.2, section 10.3; docs/adr/0059-arguments-have-one-form.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from operator import itemgetter
from typing import Any, Final

from contextos.contracts.encoding.codec import MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_NUMBER_CHARS, JsonValue, loads
from contextos.errors import InvalidInput, MalformedJson, Problem

MAX_FAULTS: Final = 50
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_CONSTANTS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_BOOLEAN_LETTERS: Final = ("y", "Y", "n", "N")
"""Truth values in the specification of version 1.1; some of its readers take them as texts."""

_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_JSON_TAGS: Final = frozenset("tag:yaml.org,2002:" + name for name in ("str", "int", "float", "bool", "null"))


def read_document(raw: bytes) -> JsonValue:
    """Return the JSON value of an author's document: JSON if it begins with a brace or a bracket, otherwise YAML. YAML
    passes the limits and the checks of JSON.

    Raises:
        MalformedJson: the bytes are neither JSON nor YAML, or exceed a limit.
    """
    if raw.lstrip()[:1] in (b"{", b"["):
        return loads(raw)
    if len(raw) > MAX_BYTES:
        raise malformed("too_large", f"the document is larger than {MAX_BYTES} bytes", "send less")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed("not_utf8", f"byte {error.start} is not UTF-8", "encode the text as UTF-8") from None
    return loads(json.dumps(read_yaml(text, max_depth=MAX_DEPTH, max_nodes=MAX_NODES)))


def read_yaml(text: str, *, max_depth: int, max_nodes: int, foreign: bool = False) -> Any:
    """Return the JSON value of a document; None for an empty one.

    `foreign`: the document cannot be changed by its reader, so aliases and keys that are not texts are accepted, and a
    scalar is read as version 1.2 says. An alias counts as many values as the value it refers to.

    Raises:
        MalformedJson: it is not YAML of this kind, or exceeds a limit; names line and column, and each value that could
            be read in two ways.
    """
    import yaml

    builder = _Builder(max_depth, max_nodes, foreign)
    try:
        value = builder.built(text)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text) from None
    if builder.faults:
        raise MalformedJson(*builder.faults[:MAX_FAULTS])
    return value


def _syntax_error(error: Any, text: str) -> MalformedJson:
    mark, problem = getattr(error, "problem_mark", None), str(getattr(error, "problem", None) or "")
    if mark is None:
        *earlier, last = text.encode()[: error.position].decode().split("\n")
        position = f"line {len(earlier) + 1}, column {len(last) + 1}"
        return malformed("syntax", f"{position}: U+{error.character:04X} is a control character", "remove it")
    lines, position = text.splitlines()[mark.line : mark.line + 1], f"line {mark.line + 1}, column {mark.column + 1}"
    remedy = "correct the indentation and the punctuation there"
    if lines and "\t" in lines[0][: len(lines[0]) - len(lines[0].lstrip())]:
        problem, remedy = "the line is indented with a tab", "indent it with spaces"
    elif "mapping values are not allowed" in problem:
        problem, remedy = "a value has `: ` in it", "put the whole value in quotes, or correct the indentation"
    elif context := getattr(error, "context", None):
        context_mark = getattr(error, "context_mark", mark)
        problem = f"{problem}, {context} which begins at line {context_mark.line + 1}"
        remedy = "close what begins there, or put a text with `: ` or quotes in it in quotes"
    return malformed("syntax", f"the document is neither JSON nor YAML: {position}: {problem}", remedy)


def in_lines(problems: Iterable[Problem], raw: bytes) -> tuple[Problem, ...]:
    """Return problems of a document that was read, each with line and column of its place, in the document's order."""
    import yaml

    unplaced = tuple(problems)
    if not any(problem.pointer for problem in unplaced):
        return unplaced
    try:
        root = yaml.compose(raw.decode(), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError):
        return unplaced
    # The content of an envelope is encoded, so its lines are not visible.
    if isinstance(root, yaml.MappingNode) and any(key.value == "payloadType" for key, _ in root.value):
        return unplaced
    placed = []
    for problem in unplaced:
        mark = _find_mark(root, problem.pointer.split("/")[1:]) if problem.pointer else None
        position = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        detail = f"line {position[0]}, column {position[1]}: {problem.detail}" if mark is not None else problem.detail
        placed.append((position, replace(problem, detail=detail)))
    return tuple(problem for _, problem in sorted(placed, key=itemgetter(0)))


@contextmanager
def lines_in(raw: bytes) -> Iterator[None]:
    """Return a context that adds line and column to the problems of an `InvalidInput` about the document `raw`."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)(*in_lines(error.problems, raw)) from None


def _find_mark(node: Any, steps: Sequence[str]) -> Any:
    """Return where the value at a pointer, or its name, begins; for a missing value where its parent does; or None."""
    import yaml

    mark = node.start_mark if node is not None else None
    for index, step in enumerate(steps):
        entry = None
        if isinstance(node, yaml.MappingNode):
            name = step.replace("~1", "/").replace("~0", "~")
            entry = next(((key, value) for key, value in reversed(node.value) if key.value == name), None)
        elif isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
            entry = (node.value[int(step)],) * 2
        if entry is None:
            return mark if index == len(steps) - 1 else None
        mark, node = entry[0].start_mark, entry[1]
    return mark


def write_yaml(value: Any, *, width: int = 120) -> str:
    """Return a JSON value as YAML. A text that a reader could take for a value of another type is in quotes."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    numbers = re.compile(f"^(?:{_INTEGER.pattern}|{_OTHER_BASE.pattern}|{_FLOAT.pattern}|[yYnN])$")
    Dumper.add_implicit_resolver("tag:contextos,2026:number", numbers, list("+-.0123456789yYnN"))
    Dumper.add_representer(int, lambda dumper, number: dumper.represent_scalar("tag:yaml.org,2002:int", str(number)))
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, width=width)
    return text


class _Builder:
    """Builds the value while the events are read, so that a limit is found before memory is used."""

    def __init__(self, max_depth: int, max_nodes: int, foreign: bool) -> None:
        import yaml

        self.max_depth, self.max_nodes, self.foreign = max_depth, max_nodes, foreign
        self.faults: list[Problem] = []
        self.older = yaml.SafeLoader("")

    def built(self, text: str) -> Any:
        import yaml

        documents: list[Any] = []
        add: Callable[[Any, Any], None] = lambda value, _: documents.append(value)  # noqa: E731
        stack: list[tuple[Callable[[Any, Any], None], str | None, int, Any]] = []
        anchors: dict[str, tuple[Any, int]] = {}
        nodes = 0
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            kind = type(event)
            if getattr(event, "tag", None) is not None:
                raise _malformed_at(event, "tag", f"the tag `{event.tag[:80]}` is not allowed", "remove it")
            if not self.foreign and getattr(event, "anchor", None) is not None:
                mark = "*" if kind is yaml.AliasEvent else "&"
                detail = f"`{mark}{event.anchor[:80]}`: anchors and aliases are not allowed"
                raise _malformed_at(event, "alias", detail, "write the value out at each place")
            if getattr(event, "version", None) not in (None, (1, 2)):
                detail = "it says that it is not YAML 1.2"
                raise _malformed_at(event, "version", detail, "remove the line that begins with `%`")
            if kind is yaml.ScalarEvent:
                nodes += 1
                add(value := self.scalar(event), event)
                if event.anchor is not None:
                    anchors[event.anchor] = value, 1
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                nodes += 1
                container: Any = {} if kind is yaml.MappingStartEvent else []
                add(container, event)
                stack.append((add, event.anchor, nodes, container))
                add = self.adder(container) if kind is yaml.MappingStartEvent else self.appender(container)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                add, anchor, nodes_before, container = stack.pop()
                if anchor is not None:
                    anchors[anchor] = container, nodes - nodes_before + 1
            elif kind is yaml.AliasEvent:
                if event.anchor not in anchors:
                    raise _malformed_at(event, "alias", "an alias is inside of what it means", "write the value out")
                value, size = anchors[event.anchor]
                nodes += size
                add(value, event)
            if nodes > self.max_nodes:
                detail = f"the document has more than {self.max_nodes} values"
                raise malformed("too_many_nodes", detail, "send a part of it")
            if len(stack) > self.max_depth:
                detail = f"the document is nested deeper than {self.max_depth} levels"
                raise _malformed_at(event, "too_deep", detail, "flatten it")
        if len(documents) > 1:
            raise malformed("syntax", "the text is more than one document", "send one document")
        return documents[0] if documents else None

    def adder(self, members: dict[str, Any]) -> Callable[[Any, Any], None]:
        """Return the function that takes the keys and values of a mapping in turn."""
        keys: list[str] = []

        def add(value: Any, event: Any) -> None:
            if keys:
                members[keys.pop()] = self.value(value, event)
                return
            if isinstance(value, dict | list) or not (self.foreign or isinstance(value, str)):
                raise _malformed_at(event, "not_text", "the key is not a string", "put it in quotes")
            # The status codes of responses are written as numbers.
            key = value if isinstance(value, str) else json.dumps(value)
            if key == "<<":
                raise _malformed_at(event, "merge_key", "merge keys are not allowed", "write the members out")
            if key in members:
                detail = f"the key `{json.dumps(key[:80])[1:-1]}` occurs twice"
                self.faults += _malformed_at(event, "duplicate_key", detail, "keep one of them").problems
            keys.append(key)

        return add

    def appender(self, items: list[Any]) -> Callable[[Any, Any], None]:
        return lambda value, event: items.append(self.value(value, event))

    def value(self, value: Any, event: Any) -> Any:
        """Return a value that is not a key. A plain `y` or `n` is noted as a fault: version 1.1 reads a truth value."""
        if not self.foreign and value in _BOOLEAN_LETTERS and not event.style:
            detail = f"`{value}` is a text in YAML 1.2, and a truth value in version 1.1"
            remedy = f'write `"{value}"`, or `true` or `false`'
            self.faults += _malformed_at(event, "ambiguous", detail, remedy).problems
        return value

    def scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.style:
            return text
        value = self._read_core_scalar(text, event)
        if not self.foreign and text != "<<" and not self._is_same_in_1_1(text, value):
            excerpt = text[:40]
            detail = f"`{excerpt}` is `{json.dumps(value)[:40]}` in YAML 1.2, and something else in version 1.1"
            number = self._read_core_scalar(text.replace("_", ""), event)
            alternative = f", or `{json.dumps(number)}` for the number" if isinstance(number, int | float) else ""
            alternative = alternative or (", or `true` or `false`" if text.isalpha() else "")
            remedy = f'write `"{excerpt}"` for the text{alternative}'
            self.faults += _malformed_at(event, "ambiguous", detail, remedy).problems
        return value

    def _read_core_scalar(self, text: str, event: Any) -> Any:
        """Return a plain scalar as the core schema of version 1.2 reads it."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in "+-.0123456789":
            return text
        if _NOT_FINITE.fullmatch(text):
            raise _malformed_at(event, "number_not_finite", f"`{text}` is not JSON", "write null or a text in quotes")
        is_integer, is_other = _INTEGER.fullmatch(text), _OTHER_BASE.fullmatch(text)
        if not (is_integer or is_other or _FLOAT.fullmatch(text)):
            return text
        if len(text) > MAX_NUMBER_CHARS:
            detail = f"the number has more than {MAX_NUMBER_CHARS} characters"
            raise _malformed_at(event, "number_too_long", detail, "put it in quotes")
        if is_other:
            return int(text, 0)
        number = int(text) if is_integer else float(text)
        if not isfinite(number):
            raise _malformed_at(event, "number_not_finite", f"`{text}` does not fit a double", "put it in quotes")
        return number

    def _is_same_in_1_1(self, text: str, value: Any) -> bool:
        import yaml

        tag = self.older.resolve(yaml.ScalarNode, text, (True, False))
        # Version 1.1 reads digits with colons as one number, which takes hours if it is long.
        if tag not in _JSON_TAGS or (tag != _TEXT_TAG and len(text) > MAX_NUMBER_CHARS):
            return False
        try:
            older_value = self.older.construct_object(yaml.ScalarNode(tag, text))
        except (ValueError, IndexError, OverflowError):
            return False
        return type(older_value) is type(value) and bool(older_value == value)


def _malformed_at(event: Any, code: str, detail: str, remedy: str) -> MalformedJson:
    mark = event.start_mark
    return malformed(code, f"line {mark.line + 1}, column {mark.column + 1}: {detail}", remedy)


def malformed(code: str, detail: str, remedy: str) -> MalformedJson:
    """Return the error about a whole document."""
    return MalformedJson(Problem("", code, detail, remedy))
