"""Canonical JSON (RFC 8785, JCS), and the digests of it.

orjson's sorted output is RFC 8785 if the value has no float and no key beyond ASCII. Any other value goes through a
normaliser, which orders keys by UTF-16 code units and writes numbers as ECMAScript does.
Source: docs/design/contracts.md, "Wire and hashing"; RFC 8785; docs/design/standards.md, "Canonical JSON".
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from math import isfinite
from operator import itemgetter
from typing import Any, Final

import orjson
from pydantic_core import to_json

from contextos.contracts.encoding.pointer import pointer
from contextos.errors import MalformedJson, Problem

MAX_INT: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exact (RFC 7493)."""

MAX_CANONICAL_DEPTH: Final = 254
"""The deepest nesting that `canonical` accepts, which is orjson's own limit; `loads` has a lower limit."""

_dumps: Final = orjson.dumps
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_STRICT_OPTIONS: Final = (
    _OPTIONS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
)
# What orjson writes differently from RFC 8785 in ASCII output: whole floats, exponents, and NaN, which becomes `null`.
# Each pattern begins with fixed bytes, so the search is fast. A match inside a text only costs the slow path.
# A number has one point, so `3.0.0,` is a version inside a text.
_search_whole_float: Final = re.compile(rb"\.0(?<!\.[0-9]\.0)[,}\]]").search
_search_exponent: Final = re.compile(rb"e[-+0-9][0-9]*[,}\]]").search
_LEAVES: Final[frozenset[type]] = frozenset({str, int, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_PLAIN: Final = _LEAVES | _CONTAINERS


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value. A tuple is an array; a subclass of str or int is its plain value.

    Refuses what I-JSON cannot represent: NaN, Infinity, integers above 2^53-1, lone surrogates, keys that are not
    strings, other types, nesting beyond `MAX_CANONICAL_DEPTH`.

    >>> canonical({"b": 1.0, "a": (True, None)})
    b'{"a":[true,null],"b":1}'

    Raises:
        MalformedJson: names the pointer of the first refused value.
    """
    try:
        encoded = _dumps(value, None, _STRICT_OPTIONS)
    except TypeError:
        return _encode_exactly(value)
    if (
        type(value) in _CONTAINERS
        and encoded.isascii()
        and (b".0" not in encoded or _search_whole_float(encoded) is None)
        and _search_exponent(encoded) is None
        and (b"null" not in encoded or _is_finite(value))
    ):
        return encoded
    return encoded if _is_plain(value) else _encode_exactly(value)


def canonical_of_texts(value: Any) -> bytes:
    """Return what `canonical` returns of a JSON value, sooner if it has long texts and few other parts: its parts are
    looked at, and not its bytes. Raises as `canonical`, also for an enumeration or a UUID.

    >>> canonical_of_texts({"b": 1.0, "a": "long"})
    b'{"a":"long","b":1}'
    """
    try:
        encoded = _dumps(value, None, _STRICT_OPTIONS)
    except TypeError:
        return _encode_exactly(value)
    return encoded if _is_plain(value) else _encode_exactly(value)


def read_canonical(raw: bytes) -> Any:
    """Return the JSON value whose canonical form is exactly `raw`. So no member occurs twice, and no text, number or
    order of members has a second spelling.

    Raises:
        MalformedJson: `raw` is not the canonical form of a value.
    """
    try:
        value = orjson.loads(raw)
        try:
            rewritten = canonical(value)
        except MalformedJson as error:
            if error.problems[0].code != "integer_too_large":
                raise
            # The canonical form of a large double has neither a point nor an exponent.
            value = json.loads(raw, parse_int=_parse_int_or_double)
            rewritten = canonical(value)
    except orjson.JSONDecodeError:
        raise _refusal((), "not_canonical", "these bytes are not JSON", "write the value with `canonical`") from None
    if rewritten != raw:
        raise _refusal((), "not_canonical", "this JSON is not in canonical form", "write the value with `canonical`")
    return value


def is_canonical(raw: bytes) -> bool:
    """Return whether `raw` is the canonical form of a JSON value."""
    try:
        read_canonical(raw)
    except MalformedJson:
        return False
    return True


def same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values have the same canonical form."""
    if type(one) is type(other) and type(one) in _LEAVES:
        return bool(one == other)
    return canonical(one) == canonical(other)


def content_address(value: Any) -> str:
    """Return `sha256:` and the hex digest of the canonical form of `value`."""
    return "sha256:" + sha256(canonical(value)).hexdigest()


def digest(raw: bytes) -> str:
    """Return `sha256:` and the hex digest of `raw`."""
    return "sha256:" + sha256(raw).hexdigest()


def _parse_int_or_double(literal: str) -> int | float:
    number = int(literal) if len(literal) <= len(str(-MAX_INT)) else MAX_INT + 1
    return number if -MAX_INT <= number <= MAX_INT else float(literal)


def _is_finite(value: Any) -> bool:
    """Return whether `value` has no NaN and no Infinity. Also False if a text contains one of these words."""
    encoded = to_json(value, inf_nan_mode="constants")
    return b"NaN" not in encoded and b"Infinity" not in encoded


def _is_plain(value: Any) -> bool:
    """Return whether orjson's sorted output of `value` is canonical. Call only for a value that orjson accepted."""
    if type(value) not in _CONTAINERS:
        return type(value) in _LEAVES
    pending = [value]
    for node in pending:  # grows while it is walked
        if type(node) is dict:
            if not "".join(node).isascii():
                return False
            node = node.values()
        types = set(map(type, node))
        if not types <= _LEAVES:
            if not types <= _PLAIN:
                return False
            pending.extend([child for child in node if type(child) in _CONTAINERS])
    return True


def _encode_exactly(value: Any) -> bytes:
    try:
        return orjson.dumps(_normalize(value, (), trusted=_LEAVES), None, orjson.OPT_STRICT_INTEGER)
    except TypeError:  # orjson does not say where; without trusted types the normaliser refuses, with a pointer
        return orjson.dumps(_normalize(value, (), trusted=frozenset()), None, orjson.OPT_STRICT_INTEGER)


def _normalize(value: Any, path: tuple[str | int, ...], trusted: frozenset[type]) -> Any:
    """Return an equal value whose plain orjson output is canonical.

    Leaves of a `trusted` type are left to orjson, which refuses the same values but does not say where.
    """
    if isinstance(value, float):
        return _normalize_float(value, path)
    if isinstance(value, str):
        return _normalize_text(value, path)
    if len(path) == MAX_CANONICAL_DEPTH and isinstance(value, dict | list | tuple):
        raise _refusal(path, "too_deep", f"nesting is deeper than {MAX_CANONICAL_DEPTH}", "flatten the value")
    if isinstance(value, dict):
        return {
            name: child if type(child) in trusted else _normalize(child, (*path, name), trusted)
            for name, child in _sorted_members(value, path)
        }
    if isinstance(value, list | tuple):
        return [
            child if type(child) in trusted else _normalize(child, (*path, index), trusted)
            for index, child in enumerate(value)
        ]
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        if not -MAX_INT <= value <= MAX_INT:
            raise _refusal(path, "integer_too_large", "the integer is above 2^53-1", "carry it as a string")
        return int.__int__(value)
    raise _refusal(path, "not_json", f"a `{type(value).__name__}` is not JSON", "convert it to a JSON type first")


def _sorted_members(value: dict[Any, Any], path: tuple[str | int, ...]) -> list[tuple[str, Any]]:
    """Return the members in the order of RFC 8785: by the UTF-16 code units of their keys."""
    texts: dict[str, Any] = {}
    for key, child in value.items():
        if not isinstance(key, str):
            raise _refusal(path, "key_not_text", f"a `{type(key).__name__}` is an object key", "use a string key")
        texts[_normalize_text(key, path)] = child
    if len(texts) != len(value):
        raise _refusal(path, "duplicate_key", "two keys have the same text", "keep one of them")
    return sorted(texts.items(), key=itemgetter(0) if "".join(texts).isascii() else _utf16_key)


def _utf16_key(member: tuple[str, Any]) -> bytes:
    return member[0].encode("utf-16-be")


def _normalize_text(value: str, path: tuple[str | int, ...]) -> str:
    text = value if type(value) is str else str.__str__(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refusal(path, "lone_surrogate", "the text holds half a character", "send whole characters") from None
    return text


def _normalize_float(value: float, path: tuple[str | int, ...]) -> Any:
    if not isfinite(value):
        raise _refusal(path, "number_not_finite", "NaN and Infinity are not JSON", "send null or a string")
    if value.is_integer() and -MAX_INT <= value <= MAX_INT:
        return int(value)
    return orjson.Fragment(_ecmascript(value))


def _ecmascript(value: float) -> str:
    """Return `Number::toString` of ECMA-262. Python's repr has the same shortest digits in another notation.

    >>> _ecmascript(1e-7), _ecmascript(333333333.33333329), _ecmascript(1e21)
    ('1e-7', '333333333.3333333', '1e+21')
    """
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    integer, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (integer + fraction).lstrip("0")
    point = int(exponent or 0) + len(integer) - (len(integer + fraction) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        padded = digits.ljust(point, "0")
        return sign + padded[:point] + ("." + padded[point:] if len(padded) > point else "")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"


def _refusal(path: tuple[str | int, ...], code: str, detail: str, remedy: str) -> MalformedJson:
    return MalformedJson(Problem(pointer(path), code, detail, remedy))
