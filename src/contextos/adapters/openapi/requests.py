"""Builds the request of a call: every value in its own place, and nothing that leads out of it.

A value in the path is percent-encoded, and one that another reader could take for more than one segment is refused. A
value that has no exact form in its place is refused, never written in a form that is nearly right.
Source: OpenAPI 3.1.1, "Style Values"; RFC 3986; RFC 6570.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from contextos.adapters.openapi.calls import BodyPlace, FormField, OpenApiOperation, ParameterPlace
from contextos.adapters.openapi.secrets import ConnectionSecrets
from contextos.adapters.outbound import OutboundRequest
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput, Problem

_TEMPLATE: Final = re.compile(r"\{([^{}]+)\}")
_LEADS_ELSEWHERE: Final = re.compile(r"[/\\\x00-\x1f\x7f]|%(?:2f|5c|2e|00|25)", re.IGNORECASE)
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,4094}[!-~])?")
_COOKIE_VALUE: Final = re.compile(r"[!#-+\--:<-\[\]-~]{0,4096}")
_RESERVED: Final = ":/?@!$'()*,"
"""What RFC 3986 reserves and a query can hold; without what servers take for delimiters of a query."""
_SEPARATORS: Final = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}

Pairs = list[tuple[str, str | None]]


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
        InvalidInput: an argument has no exact form in its place; the pointer names it.
    """
    path, query = operation.path.partition("?")[0], _fixed_query(operation.path)
    fixed = {unquote(name) for name, _ in query} | credentials.query_names
    segments: dict[str, str] = {}
    headers = {**trace, "Accept": _accepted(operation)}
    cookies: list[tuple[str, str]] = []
    for place in operation.parameters:
        if place.place == "path":
            segments[place.name] = _segment(place, args.get(place.argument))
        elif place.argument in args:
            value = args[place.argument]
            if place.place == "query":
                taken = {one.name for one in operation.parameters if one is not place} | fixed
                safe = _RESERVED if place.allow_reserved else ""
                query += _fields(place.argument, place.name, value, place.style, place.explode, taken, safe)
            elif place.place == "header":
                headers[place.name] = _header(place, value)
            else:
                cookies.append((place.name, _cookie(place, value)))
    body = None
    if operation.body is not None:
        named = {place.argument for place in operation.parameters}
        members = {name: value for name, value in args.items() if name not in named}
        argument = operation.body.argument
        if argument is None or argument in args:
            headers["Content-Type"] = operation.body.media_type
            body = _body(operation.body, members if argument is None else args[argument])
    if operation.idempotency_header is not None and idempotency_key is not None:
        headers[operation.idempotency_header] = idempotency_key
    secret = credentials.placed(operation.credentials)
    headers |= secret.headers
    query += [(_quoted(name), _quoted(value)) for name, value in secret.query]
    cookies += secret.cookies
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies)
    filled = _TEMPLATE.sub(lambda found: segments[found[1]], path)
    asked = "&".join(f"{name}={value}" if value is not None else name for name, value in query)
    return OutboundRequest(
        operation.method, server.rstrip("/") + filled + (f"?{asked}" if asked else ""), headers, body
    )


def _fixed_query(path: str) -> Pairs:
    """The query that the path of the document has, as it is written."""
    pairs = [one.partition("=") for one in path.partition("?")[2].split("&") if one]
    return [(name, value if equals else None) for name, equals, value in pairs]


def _accepted(operation: OpenApiOperation) -> str:
    kinds = {answer.body for answer in operation.answers}
    accepted = [media for kind, media in (("json", "application/json"), ("text", "text/*")) if kind in kinds]
    return ", ".join(accepted) or "*/*"


def _segment(place: ParameterPlace, value: Any) -> str:
    """A value in the path. RFC 6570 for the styles `label` and `matrix`."""
    pairs = list(_flat(place.argument, value))
    texts = [part for name, one in pairs for part in ((name, one) if name is not None else (one,))]
    for text in texts:
        if text in ("", ".", "..") or _LEADS_ELSEWHERE.search(text):
            detail = "the value is empty, or it could lead to another path"
            raise _refused(place.argument, detail, "give one name without `/`, `\\`, `%2f` and dots alone")
    if not texts:
        raise _refused(place.argument, "the value is empty", "give at least one")
    if place.style == "json":
        return _quoted(canonical(value).decode())
    is_object, is_list = isinstance(value, dict), isinstance(value, list)
    written = [f"{_quoted(name)}={_quoted(one)}" if name is not None else _quoted(one) for name, one in pairs]
    joined = ",".join(map(_quoted, texts))
    if place.style == "label":
        return "." + (".".join(written) if place.explode else joined)
    if place.style == "matrix":
        if place.explode and is_object:
            return "".join(f";{one}" for one in written)
        if place.explode and is_list:
            return "".join(f";{_quoted(place.name)}={one}" for one in written)
        return f";{_quoted(place.name)}={joined}"
    return ",".join(written) if place.explode else joined


def _header(place: ParameterPlace, value: Any) -> str:
    if place.style == "json":
        text = canonical(value).decode()
    else:
        pairs = list(_flat(place.argument, value))
        parts = [
            (f"{name}={one}",) if place.explode and name is not None else ((name, one) if name is not None else (one,))
            for name, one in pairs
        ]
        if isinstance(value, list | dict) and any("," in one for part in parts for one in part):
            raise _refused(place.argument, "a value in a list of a header has a comma", "give it without commas")
        text = ",".join(one for part in parts for one in part)
    if not _HEADER_VALUE.fullmatch(text):
        detail = "the value is not printable ASCII on one line, so no header can carry it"
        raise _refused(place.argument, detail, "give another value")
    return text


def _cookie(place: ParameterPlace, value: Any) -> str:
    if isinstance(value, list | dict):
        raise _refused(place.argument, "a cookie carries a single value", "leave it out")
    text = _text(place.argument, value)
    if not _COOKIE_VALUE.fullmatch(text):
        raise _refused(place.argument, "no cookie can carry the value", "give another value")
    return text


def _body(place: BodyPlace, value: Any) -> bytes:
    argument = place.argument or ""
    media = place.media_type.partition(";")[0].strip().lower()
    if media == "application/x-www-form-urlencoded":
        if not isinstance(value, dict):
            raise _refused(argument, "a form is an object", "give its fields by their names")
        pairs: Pairs = []
        for name, one in value.items():
            # OpenAPI 3.0.4 and 3.1.1, "Encoding Object": an object of which nothing is said is JSON.
            field = place.fields.get(name) or FormField(style="json" if isinstance(one, dict) else "form")
            pairs += _fields(argument, name, one, field.style, field.explode, value.keys() - {name})
        return "&".join(f"{name}={one}" for name, one in pairs).encode()
    if media.startswith("text/") and media != "text/json":
        if not isinstance(value, str):
            raise _refused(argument, "the body is a text", "give a text")
        return value.encode()
    return canonical(value)


def _fields(
    argument: str, name: str, value: Any, style: str, explode: bool, taken: Collection[str], safe: str = ""
) -> Pairs:
    """The pairs of a query or a form that carry one value. No member of an object takes one of the names `taken`. The
    characters `safe` of a value stay as they are.
    """
    if style == "json":
        return [(_quoted(name), quote(canonical(value).decode(), safe=safe))]
    if style == "deepObject":
        if not isinstance(value, dict):
            return [(_quoted(name), quote(_text(argument, value), safe=safe))]
        pairs = list(_flat(argument, value))
        return [(f"{_quoted(name)}%5B{_quoted(str(key))}%5D", quote(one, safe=safe)) for key, one in pairs]
    pairs_of = list(_flat(argument, value))
    if style in _SEPARATORS:
        if not isinstance(value, list):
            raise _refused(argument, f"the style `{style}` carries a list", "give a list")
        if explode:
            return [(_quoted(name), quote(one, safe=safe)) for _, one in pairs_of]
        separator = " " if style == "spaceDelimited" else "|"
        if any(separator in one for _, one in pairs_of):
            raise _refused(argument, "a value of the list has the separator in it", "give it without")
        return [(_quoted(name), _SEPARATORS[style].join(_quoted(one) for _, one in pairs_of))]
    if explode or not isinstance(value, list | dict):
        if any(key in taken for key, _ in pairs_of):
            raise _refused(argument, "a member has the name of another parameter", "leave it out")
        return [(_quoted(key if key is not None else name), quote(one, safe=safe)) for key, one in pairs_of]
    # The comma stays: it separates. One inside of a value is encoded.
    parts = [part for key, one in pairs_of for part in ((key, one) if key is not None else (one,))]
    return [(_quoted(name), ",".join(quote(part, safe=safe.replace(",", "")) for part in parts))]


def _flat(argument: str, value: Any) -> Iterator[tuple[str | None, str]]:
    """Yield (name or None, text) of a single value, of the items of a list, or of the members of an object.

    What is nested deeper has no form that OpenAPI defines, and null has none.
    """
    if isinstance(value, dict):
        yield from ((name, _text(argument, one)) for name, one in value.items())
    elif isinstance(value, list):
        yield from ((None, _text(argument, one)) for one in value)
    else:
        yield None, _text(argument, value)


def _text(argument: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        detail = "the value is null or nested, and has no defined form in this place"
        raise _refused(argument, detail, "leave it out, or give a single value")
    return canonical(value).decode()


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _refused(argument: str, detail: str, remedy: str) -> InvalidInput:
    escaped = argument.replace("~", "~0").replace("/", "~1")
    return InvalidInput(Problem(f"/{escaped}", "unsendable_argument", detail, remedy))
