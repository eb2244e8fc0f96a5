"""Reads requests as the tables of OpenAPI 3.0.4 and 3.1.1 say ("Style Examples", "Encoding Object"), for tests of what
writes them. It knows nothing of the writer and imports nothing of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]
Pairs = list[tuple[str, str]]
"""Names and values of a query as they came, not decoded."""


@dataclass(frozen=True)
class Part:
    """One part of a multipart form."""

    name: str
    filename: str | None
    media_type: str | None
    content: bytes


def typed(schema: Schema, text: str) -> Any:
    """A decoded text as the value that a schema of one type asks for."""
    kind = schema.get("type", "string")
    return json.loads(text) if kind in ("integer", "number", "boolean") else text


def query_pairs(query: str) -> Pairs:
    return [(name, value) for name, _, value in (one.partition("=") for one in query.split("&") if one)]


def from_query(query: str, name: str, schema: Schema, style: str, explode: bool, others: Sequence[str] = ()) -> Any:
    """The value of a parameter of a query. `others` are the names of the other parameters."""
    pairs = query_pairs(query)
    own = [value for key, value in pairs if unquote(key) == name]
    kind = schema["type"]
    if style == "deepObject":
        found = ((re.fullmatch(re.escape(name) + r"\[([^\[\]]*)\]", unquote(key)), value) for key, value in pairs)
        return _members(schema, [(match[1], unquote(value)) for match, value in found if match])
    if kind == "array":
        if explode:
            return [typed(schema["items"], unquote(one)) for one in own]
        return [typed(schema["items"], unquote(one)) for one in _split(style, own[0])] if own else []
    if kind == "object":
        if explode:
            return _members(
                schema, [(unquote(key), unquote(value)) for key, value in pairs if unquote(key) not in others]
            )
        return _listed(schema, [unquote(one) for one in _split(style, own[0])]) if own else {}
    assert len(own) == 1, query
    return typed(schema, unquote(own[0]))


def from_path(segment: str, name: str, schema: Schema, style: str, explode: bool) -> Any:
    """The value of a parameter that is a whole segment of a path."""
    kind = schema["type"]
    if style == "label":
        assert segment[:1] == "."
        segment = segment[1:]
    if style == "matrix":
        assert segment[:1] == ";"
        parts = [one.partition("=") for one in segment[1:].split(";")]
        if explode and kind == "object":
            return _members(schema, [(unquote(key), unquote(value)) for key, _, value in parts])
        assert {unquote(key) for key, _, _ in parts} == {name}
        if explode and kind == "array":
            return [typed(schema["items"], unquote(value)) for _, _, value in parts]
        (segment,) = (value for _, _, value in parts)
    separator = "." if style == "label" and explode else ","
    if kind == "array":
        return [typed(schema["items"], unquote(one)) for one in segment.split(separator)]
    if kind == "object" and explode:
        members = [one.partition("=") for one in segment.split(separator)]
        return _members(schema, [(unquote(key), unquote(value)) for key, _, value in members])
    if kind == "object":
        return _listed(schema, [unquote(one) for one in segment.split(separator)])
    return typed(schema, unquote(segment))


def from_header(value: str, schema: Schema, explode: bool) -> Any:
    """The value of a header in the style `simple`. Nothing in it is percent-encoded (3.1.1, appendix D)."""
    kind = schema["type"]
    # RFC 9110, 5.6.1: blanks around the elements of a list mean nothing, and empty elements are left out.
    listed = [one.strip(" \t") for one in value.split(",") if one.strip(" \t")]
    if kind == "array":
        return [typed(schema["items"], one) for one in listed]
    if kind == "object" and explode:
        return _members(schema, [(key, one) for key, _, one in (each.partition("=") for each in listed)])
    return _listed(schema, listed) if kind == "object" else typed(schema, value)


def from_cookie(header: str, name: str, schema: Schema) -> Any:
    """The single value of a cookie (RFC 6265, 5.4)."""
    (found,) = (value for key, _, value in (one.partition("=") for one in header.split("; ")) if key == name)
    return typed(schema, unquote(found))


def form_of(body: bytes) -> dict[str, list[str]]:
    """The decoded values of each field of a form."""
    found: dict[str, list[str]] = {}
    for key, value in query_pairs(body.decode("ascii")):
        found.setdefault(unquote(key), []).append(unquote(value))
    return found


def multipart_of(content_type: str, body: bytes) -> list[Part]:
    """The parts of a multipart form (RFC 2046, 5.1; RFC 7578)."""
    match = re.fullmatch(r"multipart/form-data; *boundary=([A-Za-z0-9'()+_,./:=?-]{1,70})", content_type)
    assert match, content_type
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + match[1].encode())
    last = parts.pop()
    assert (first, last) == (b"", b"--\r\n")
    return [_part(one) for one in parts]


def _part(raw: bytes) -> Part:
    assert raw[:2] == b"\r\n"
    head, _, content = raw[2:].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode("utf-8").split("\r\n"))
    said = re.fullmatch(r'form-data; name="([^"]*)"(?:; filename="([^"]*)")?', headers.pop("Content-Disposition"))
    assert said, head
    media_type = headers.pop("Content-Type", None)
    assert not headers, headers
    return Part(said[1], said[2], media_type, content)


def _split(style: str, value: str) -> list[str]:
    separators = {"form": ",", "spaceDelimited": r"%20|\+", "pipeDelimited": r"%7C|%7c|\|"}
    return re.split(separators[style], value)


def _listed(schema: Schema, texts: list[str]) -> dict[str, Any]:
    assert len(texts) % 2 == 0, texts
    return _members(schema, list(zip(texts[::2], texts[1::2], strict=True)))


def _members(schema: Schema, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), pairs
    return {key: typed(schema["properties"].get(key, {}), value) for key, value in pairs}
