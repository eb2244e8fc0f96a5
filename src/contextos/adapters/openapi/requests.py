"""Builds the request of a call: every value is in its own place and cannot leave it.

A value in the path is percent-encoded, and refused if another reader could take it for more than one segment. A value
that has no exact form in its place is refused, and never written in a form that is nearly right.
Source: OpenAPI 3.0.4 and 3.1.1, "Style Values"; RFC 3986; RFC 6570; RFC 6265; RFC 9110, 5.6.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from contextos.adapters.openapi.bodies import written_body
from contextos.adapters.openapi.calls import OpenApiOperation, ParameterPlace
from contextos.adapters.openapi.secrets import ConnectionSecrets
from contextos.adapters.openapi.styles import Pairs, claimed, flat, pairs_of, quoted, unsendable, written_text
from contextos.adapters.outbound import OutboundRequest
from contextos.contracts.encoding.jcs import canonical

_TEMPLATE: Final = re.compile(r"\{([^{}]+)\}")
_LEADS_ELSEWHERE: Final = re.compile(r"[/\\\x00-\x1f\x7f]|%(?:2f|5c|2e|00|25)", re.IGNORECASE)
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,4094}[!-~])?")
_COOKIE_VALUE: Final = re.compile(r"[!#$'-+\--:<-\[\]-~]{0,4096}")
"""The value of a cookie without `%` and `&`, which a reader of a form would decode (RFC 6265 does not mention them).
"""
_RESERVED: Final = ":/?@!$'()*,"
"""The reserved characters of RFC 3986 that a query can hold and that servers do not take for delimiters of a query."""


def build_request(
    server: str,
    operation: OpenApiOperation,
    args: Mapping[str, Any],
    credentials: ConnectionSecrets,
    *,
    idempotency_key: str | None,
    trace: Mapping[str, str],
) -> OutboundRequest:
    """Return the request of a call with `args`, which satisfy the schema of the capability.

    Raises:
        InvalidInput: an argument has no exact form in its place; the pointer names the argument.
    """
    path, query = operation.path.partition("?")[0], _fixed_query(operation.path)
    fixed_names = {unquote(name) for name, _ in query} | credentials.query_names
    owners = {quoted(unquote(name)): path for name, _ in query}
    segments: dict[str, str] = {}
    headers = {**trace, "Accept": _accept_header(operation)}
    cookies: list[tuple[str, str]] = []
    for place in operation.parameters:
        if place.place == "path":
            segments[place.name] = _path_segment(place, args.get(place.argument))
        elif place.argument in args:
            value = args[place.argument]
            if place.place == "query":
                other_names = {other.name for other in operation.parameters if other is not place} | fixed_names
                safe = _RESERVED if place.allow_reserved else ""
                pairs = pairs_of(place.argument, place.name, value, place.style, place.explode, other_names, safe)
                query += claimed(owners, place.argument, place.argument, pairs)
            elif place.place == "header":
                headers[place.name] = _header_value(place, value)
            else:
                cookies.append((place.name, _cookie_value(place, value)))
    body = None
    if operation.body is not None:
        used = {place.argument for place in operation.parameters}
        members = {name: value for name, value in args.items() if name not in used}
        argument = operation.body.argument
        if argument is None or argument in args:
            body_value = members if argument is None else args[argument]
            headers["Content-Type"], body = written_body(operation.body, body_value)
    if operation.idempotency_header is not None and idempotency_key is not None:
        headers[operation.idempotency_header] = idempotency_key
    secret = credentials.placed(operation.credentials)
    headers |= secret.headers
    query += [(quoted(name), quoted(value)) for name, value in secret.query]
    cookies += secret.cookies
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies)
    full_path = _TEMPLATE.sub(lambda match: segments[match[1]], path)
    query_text = "&".join(f"{name}={value}" if value is not None else name for name, value in query)
    return OutboundRequest(
        operation.method, server.rstrip("/") + full_path + (f"?{query_text}" if query_text else ""), headers, body
    )


def _fixed_query(path: str) -> Pairs:
    """Return the pairs of the query that the path in the document itself has, as they are written."""
    pairs = [pair.partition("=") for pair in path.partition("?")[2].split("&") if pair]
    return [(name, value if equals else None) for name, equals, value in pairs]


def _accept_header(operation: OpenApiOperation) -> str:
    kinds = {answer.body for answer in operation.answers}
    if "base64" in kinds:
        return "*/*"
    media_types = [media for kind, media in (("json", "application/json"), ("text", "text/*")) if kind in kinds]
    return ", ".join(media_types) or "*/*"


def _path_segment(place: ParameterPlace, value: Any) -> str:
    """Return a value as it is written in the path. RFC 6570 defines the styles `label` and `matrix`."""
    pairs = list(flat(place.argument, value))
    texts = [part for name, item in pairs for part in ((name, item) if name is not None else (item,))]
    for text in texts:
        if text in ("", ".", "..") or _LEADS_ELSEWHERE.search(text):
            detail = "the value is empty, or it could lead to another path"
            raise unsendable(place.argument, detail, "give one name without `/`, `\\`, `%2f` and dots alone")
    if not texts:
        raise unsendable(place.argument, "the value is empty", "give at least one")
    if place.style == "json":
        return quoted(canonical(value).decode())
    is_object, is_list = isinstance(value, dict), isinstance(value, list)
    encoded = [f"{quoted(name)}={quoted(item)}" if name is not None else quoted(item) for name, item in pairs]
    joined = ",".join(map(quoted, texts))
    if place.style == "label":
        if place.explode and (is_object or is_list) and any("." in text for text in texts):
            raise unsendable(place.argument, "a value in a list has the separator `.` in it", "give it without")
        return "." + (".".join(encoded) if place.explode else joined)
    if place.style == "matrix":
        if place.explode and is_object:
            return "".join(f";{part}" for part in encoded)
        if place.explode and is_list:
            return "".join(f";{quoted(place.name)}={part}" for part in encoded)
        return f";{quoted(place.name)}={joined}"
    return ",".join(encoded) if place.explode else joined


def _header_value(place: ParameterPlace, value: Any) -> str:
    if place.style == "json":
        text = canonical(value).decode()
    else:
        pairs = list(flat(place.argument, value))
        parts = [
            (f"{name}={val}",) if place.explode and name is not None else ((name, val) if name is not None else (val,))
            for name, val in pairs
        ]
        if isinstance(value, list | dict) and any("," in val or val != val.strip() or not val for val in _flat(parts)):
            detail = "a value in a list of a header is empty, has a comma, or begins or ends with a blank"
            raise unsendable(place.argument, detail, "give it without")
        if place.explode and isinstance(value, dict) and any("=" in name for name in value):
            raise unsendable(place.argument, "the name of a member has `=`, which separates", "leave it out")
        text = ",".join(_flat(parts))
    if not _HEADER_VALUE.fullmatch(text):
        detail = "the value is not printable ASCII on one line, so no header can carry it"
        raise unsendable(place.argument, detail, "give another value")
    return text


def _flat(parts: Sequence[tuple[str, ...]]) -> list[str]:
    return [text for part in parts for text in part]


def _cookie_value(place: ParameterPlace, value: Any) -> str:
    if isinstance(value, list | dict):
        raise unsendable(place.argument, "a cookie carries a single value", "leave it out")
    text = written_text(place.argument, value)
    if not _COOKIE_VALUE.fullmatch(text):
        raise unsendable(place.argument, "no cookie can carry the value", "give another value")
    return text
