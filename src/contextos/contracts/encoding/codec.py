"""The strict JSON loader, and `parse` from bytes to a contract. Every input from outside passes through it.

It accepts UTF-8 without a byte order mark, within limits on bytes, depth and nodes that are checked before parsing. It
refuses duplicate keys, NaN, Infinity, integers that another reader could round, and lone surrogates. Whatever `loads`
returns, `canonical` can write and `loads` can read again.
Source: docs/design/contracts.md, "Wire and hashing"; RFC 7493 (I-JSON); RFC 8785 (JCS); RFC 6901 (pointers).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate, islice
from math import inf
from typing import Any, Final, NamedTuple, Never, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from contextos.contracts.encoding.jcs import MAX_INT, canonical
from contextos.contracts.encoding.pointer import MISSING, pointer, resolve_pointer
from contextos.contracts.encoding.wanted import explained
from contextos.errors import InvalidEnvelope, MalformedJson, Problem

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "JsonValue", "loads", "own_copy", "parse", "problems_of"]

MAX_BYTES: Final = 1_048_576
MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
MAX_PROBLEMS: Final = 50
MAX_NUMBER_CHARS: Final = 128

JsonValue: TypeAlias = Any
"""A nested dict, list, str, int, float, bool or None. It is `Any` because readers validate it with a contract."""

ModelT = TypeVar("ModelT", bound=BaseModel)

# The closing quote is optional, so that an unterminated text costs one pass and not one per quote.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_CHANGES: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_QUOTED: Final = re.compile(r"'[^']{81,}'|`[^`]{81,}`")


class _RefusedValue(Exception):
    """A value in the text is refused. `code` is the reason; `_find_problems` finds the place afterwards."""

    def __init__(self, code: str) -> None:
        self.code = code


_REASONS: Final = {
    "integer_too_large": ("is above 2^53-1", "carry it as a string"),
    "number_out_of_range": ("does not fit a double", "carry it as a string"),
    "number_not_finite": ("is not JSON", "send null or a string"),
}


def loads(
    raw: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, max_nodes: int = MAX_NODES
) -> JsonValue:
    """Parse JSON from outside.

    Refuses before parsing: more than `max_bytes`, nesting deeper than `max_depth`, more than `max_nodes` values.
    Refuses with a pointer: duplicate keys, integers above 2^53-1, numbers that overflow, lone surrogates.

    Raises:
        MalformedJson: the input is refused; has at most 50 problems.
    """
    data = _encode_utf8(raw, max_bytes)
    check_size(data, max_depth, max_nodes)
    try:
        return _decode(data.decode(), _SURROGATE_ESCAPE.search(data) is not None)
    except UnicodeDecodeError as error:
        raise _malformed("not_utf8", f"byte {error.start} is not UTF-8", "encode the text as UTF-8") from None
    except json.JSONDecodeError as error:
        raise _malformed("syntax", _syntax_detail(error), "correct the JSON there") from None
    except RecursionError:
        raise _malformed("too_deep", "nesting is deeper than this reader goes", "flatten the value") from None


def _decode(text: str, has_surrogate_escape: bool) -> JsonValue:
    """Parse once, and a second time only if the text has, or could have, a refused value."""
    try:
        value = _DECODER.decode(text)
    except _RefusedValue:
        raise MalformedJson(*_find_problems(text)) from None
    if has_surrogate_escape and (problems := _find_problems(text)):
        raise MalformedJson(*problems)
    return value


def own_copy(value: Any) -> Any:
    """Return a deep copy of a JSON value, to be passed to foreign code that could change its argument.

    Raises:
        MalformedJson: `value` is not I-JSON.
    """
    return orjson.loads(canonical(value))


def _encode_utf8(raw: bytes | str, max_bytes: int) -> bytes:
    if len(raw) > max_bytes:
        raise _malformed("too_large", f"the input is larger than {max_bytes} bytes", "send less")
    if isinstance(raw, str):
        try:
            raw = raw.encode()
        except UnicodeEncodeError as error:
            detail = f"character {error.start} is half a character"
            raise _malformed("lone_surrogate", detail, "send whole characters") from None
        if len(raw) > max_bytes:
            raise _malformed("too_large", f"the input is larger than {max_bytes} bytes", "send less")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise _malformed("byte_order_mark", "the input begins with a byte order mark", "send UTF-8 without it")
    return raw


def check_size(data: bytes, max_depth: int, max_nodes: int) -> None:
    """Check depth and node count of JSON without parsing it. Raises `MalformedJson`."""
    # Counts over all bytes are upper bounds and mostly suffice.
    containers = data.count(b"[") + data.count(b"{")
    if containers <= max_depth and containers + data.count(b",") < max_nodes:
        return
    structure = _STRING.sub(b"0", data).translate(None, b" \t\r\n")
    nonempty = structure.count(b"[") + structure.count(b"{") - structure.count(b"[]") - structure.count(b"{}")
    if nonempty + structure.count(b",") >= max_nodes:
        raise _malformed("too_many_nodes", f"the input holds more than {max_nodes} values", "send less at a time")
    brackets = structure.translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_DEPTH_CHANGES.__getitem__, brackets)), default=0) > max_depth:
        raise _malformed("too_deep", f"nesting is deeper than {max_depth}", "flatten the value")


def _read_int(literal: str) -> int:
    if len(literal) > 17:  # a sign and the 16 digits of 2^53-1
        raise _RefusedValue("integer_too_large")
    number = int(literal)
    if not -MAX_INT <= number <= MAX_INT:
        raise _RefusedValue("integer_too_large")
    return number


def _read_float(literal: str) -> float:
    number = float(literal) if len(literal) <= MAX_NUMBER_CHARS else inf
    if -MAX_INT <= number <= MAX_INT or 1e21 <= abs(number) < inf:
        return number
    # From 2^53 to 1e21 the canonical form is an integer, which `loads` would refuse.
    raise _RefusedValue("number_out_of_range" if abs(number) == inf else "integer_too_large")


def _read_constant(_literal: str) -> Never:
    raise _RefusedValue("number_not_finite")


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _RefusedValue("duplicate_key")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_read_object, parse_int=_read_int, parse_float=_read_float, parse_constant=_read_constant
)


class _Number(NamedTuple):
    """The literal of a number, and the function that checks and converts it. Only `_LITERAL_DECODER` makes it."""

    literal: str
    read: Callable[[str], Any]


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, with repeated keys. Only `_LITERAL_DECODER` makes it."""


_LITERAL_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_int=lambda literal: _Number(literal, _read_int),
    parse_float=lambda literal: _Number(literal, _read_float),
    parse_constant=lambda literal: _Number(literal, _read_constant),
)


def _find_problems(text: str) -> list[Problem]:
    """Return a problem for each refused value of a JSON text, with its place; at most `MAX_PROBLEMS`."""
    return list(islice(_value_problems(_LITERAL_DECODER.decode(text), ()), MAX_PROBLEMS))


def _value_problems(value: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
    if isinstance(value, _Number):
        yield from _number_problems(value, path)
    elif isinstance(value, str):
        yield from _text_problems(value, path)
    elif isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, child in value:
            if key in seen:
                place = pointer((*path, _replace_surrogates(key)))
                yield Problem(place, "duplicate_key", "the object has this key twice", "keep one of them")
            seen.add(key)
            yield from _text_problems(key, path)
            yield from _value_problems(child, (*path, _replace_surrogates(key)))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _value_problems(child, (*path, index))


def _number_problems(number: _Number, path: tuple[str | int, ...]) -> Iterator[Problem]:
    try:
        number.read(number.literal)
    except _RefusedValue as error:
        literal = number.literal if len(number.literal) <= 24 else number.literal[:24] + "..."
        detail, remedy = _REASONS[error.code]
        yield Problem(pointer(path), error.code, f"`{literal}` {detail}", remedy)


def _text_problems(value: str, path: tuple[str | int, ...]) -> Iterator[Problem]:
    if value != _replace_surrogates(value):
        yield Problem(pointer(path), "lone_surrogate", "the text holds half a character", "send whole characters")


def _replace_surrogates(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


def _syntax_detail(error: json.JSONDecodeError) -> str:
    return f"{error.msg[:1].lower()}{error.msg[1:]} at line {error.lineno} column {error.colno}"


def _malformed(code: str, detail: str, remedy: str) -> MalformedJson:
    return MalformedJson(Problem("", code, detail, remedy))


def parse(
    model: type[ModelT],
    raw: bytes | str | dict[str, Any],
    *,
    max_bytes: int = MAX_BYTES,
    max_nodes: int = MAX_NODES,
    at: str = "",
) -> ModelT:
    """Validate bytes, text or an object that `loads` returned as an instance of `model`. `at` is the pointer of `raw`
    in the document that it is a part of.

    Raises:
        MalformedJson: the bytes are not I-JSON within the limits.
        InvalidEnvelope: the JSON does not fit `model`; one problem per error, at most 50.
    """
    if isinstance(raw, bytes | str):
        raw = loads(raw, max_bytes=max_bytes, max_nodes=max_nodes)
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problems = problems_of(error, raw, model)
        raise InvalidEnvelope(*(replace(problem, pointer=at + problem.pointer) for problem in problems)) from None


_REMEDIES: Final = {
    "missing": "add it",
    "extra_forbidden": "remove it",
    "string_type": "send a JSON string",
    "int_type": "send a JSON integer",
    "bool_type": "send true or false",
    "literal_error": "send one of these",
    "model_type": "send one with the members of the schema",
}


def problems_of(error: ValidationError, value: Any = MISSING, model: type[BaseModel] | None = None) -> list[Problem]:
    """Convert a pydantic error to problems (pointer, code, message), at most 50. No problem contains a value of the
    input.

    With `value`, the input that was validated, each pointer names a place in that input, without pydantic's union
    tags. With `value` and `model`, a problem also says which values the model accepts there.
    """
    problems: dict[tuple[str, str], Problem] = {}
    for item in error.errors(include_url=False, include_input=False)[:MAX_PROBLEMS]:
        kind, detail = item["type"], item["msg"]
        for prefix in ("Value error, ", "Assertion failed, "):
            detail = detail.removeprefix(prefix)
        detail = _QUOTED.sub("`...`", detail[:1].lower() + detail[1:])
        if kind in ("model_type", "dataclass_type", "model_attributes_type"):
            detail = "this is not a JSON object"
        remedy = str(item.get("ctx", {}).get("remedy", "")) or _REMEDIES.get(kind, "send what the schema says")
        path = item["loc"] if value is MISSING else _path_in_value(item["loc"], value, kind)
        if model is not None and value is not MISSING:
            cause, better_remedy = explained(model, path, kind, value) or ("", "")
            detail, remedy = cause or detail, str(item.get("ctx", {}).get("remedy", "")) or better_remedy or remedy
        # A value that fits no branch of a union has the same problem in each of them.
        problems.setdefault((pointer(path), detail), Problem(pointer(path), kind, detail, remedy))
    return list(problems.values())


def _path_in_value(loc: tuple[str | int, ...], value: Any, kind: str) -> tuple[str | int, ...]:
    path: list[str | int] = []
    for step in loc:
        child = resolve_pointer(value, pointer([step]))
        if child is not MISSING:
            path.append(step)
            value = child
        elif kind == "missing" and step == loc[-1]:
            path.append(step)
    return tuple(path)
