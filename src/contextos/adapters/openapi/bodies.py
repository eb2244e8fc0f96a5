"""Writes the body of a request by its media type: JSON, a form, a multipart form, a text, or bytes.

Bytes are base64 in the arguments, so the bytes that are judged, shown and recorded are the bytes that are sent. The
boundary of a multipart form is a digest of its parts: the same arguments give the same bytes, and no part can hold it.
Source: OpenAPI 3.0.4 and 3.1.1, "Encoding Object"; RFC 7578.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from contextos.adapters.openapi.calls import BodyPlace, FormField, charset_of
from contextos.adapters.openapi.styles import Pairs, claimed, pairs_of, unsendable, written_text
from contextos.contracts.encoding.jcs import canonical

BodyKind = Literal["json", "form", "multipart", "text", "bytes"]

BYTES: Final[Mapping[str, Any]] = {"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$", "description": "base64"}
"""The schema of an argument that is sent as bytes."""
FILE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"base64": BYTES, "filename": {"type": "string", "minLength": 1, "maxLength": 255}},
    "required": ["base64"],
    "additionalProperties": False,
}
"""The schema of an argument that is a file in a multipart form."""
OCTETS: Final = "application/octet-stream"

_TEXT_TYPES: Final = frozenset(
    {
        "application/graphql",
        "application/javascript",
        "application/jsonl",
        "application/ndjson",
        "application/sdp",
        "application/sql",
        "application/text",
        "application/toml",
        "application/x-jsonl",
        "application/x-ndjson",
        "application/x-yaml",
        "application/xml",
        "application/xml-dtd",
        "application/yaml",
    }
)
"""Media types of texts that do not begin with `text/`."""
FIELD_NAME: Final = re.compile(r'(?!(?i:_charset_)$)[^\x00-\x1f\x7f-\x9f"\\%\u2028\u2029]{1,200}')
"""The name of a field of a multipart form. `_charset_` is refused: it sets the charset of others (RFC 7578, 4.6)."""
_FILE_NAME: Final = re.compile(r'(?!\.{1,2}$)[^\x00-\x1f\x7f-\x9f"\\/%\u2028\u2029]{1,255}')


def body_kind(media_type: str) -> BodyKind | None:
    """Return how a body of a media type is written; None for a stream, and for a multipart type that is not a form.

    >>> body_kind("application/vnd.api+json; charset=utf-8"), body_kind("image/png"), body_kind("multipart/mixed")
    ('json', 'bytes', None)
    """
    media = media_type.partition(";")[0].strip().lower()
    main, _, sub = media.partition("/")
    if media in ("application/json", "text/json") or (main == "application" and sub.endswith("+json")):
        return "json"
    if media == "application/x-www-form-urlencoded":
        return "form"
    if media == "multipart/form-data":
        return "multipart"
    if main == "multipart" or media == "text/event-stream" or "*" in media or not sub:
        return None
    return "text" if main == "text" or media in _TEXT_TYPES or sub.endswith(("+xml", "+yaml")) else "bytes"


def written_body(place: BodyPlace, value: Any) -> tuple[str, bytes]:
    """Return the value of the header `Content-Type`, and the bytes of a body.

    Raises:
        InvalidInput: the value has no exact form in this media type.
    """
    argument, kind = place.argument or "", body_kind(place.media_type)
    if kind in ("form", "multipart") and not isinstance(value, dict):
        raise unsendable(argument, "a form is an object", "give its fields by their names")
    if kind == "multipart":
        return _multipart_body(argument, place.fields, value)
    if kind == "text" and not isinstance(value, str):
        raise unsendable(argument, "the body is a text", "give a text")
    if kind == "form":
        body = _form_body(argument, place.fields, value)
    elif kind == "text":
        body = value.encode()
    else:
        body = _decode_base64(argument, value) if kind == "bytes" else canonical(value)
    _refuse_other_charset(argument, place.media_type, unquote_to_bytes(body) if kind == "form" else body)
    return place.media_type, body


def _refuse_other_charset(argument: str, media_type: str, content: bytes) -> None:
    """Raise `InvalidInput` if the media type states `us-ascii` and the bytes are not ASCII. UTF-8 is checked before."""
    if charset_of(media_type) == "us-ascii" and not content.isascii():
        raise unsendable(argument, "it is sent as `us-ascii`, and has a character that this lacks", "give it without")


def _form_body(argument: str, fields: Mapping[str, FormField], value: Mapping[str, Any]) -> bytes:
    pairs: Pairs = []
    owners: dict[str, str] = {}
    deep_names = {name for name, field in fields.items() if field.style == "deepObject"}
    for name, item in value.items():
        path = argument or name
        if name not in deep_names and name.partition("[")[0] in deep_names:
            raise unsendable(path, "a field has the name of a member of another field", "give it as that member")
        # OpenAPI 3.0.4 and 3.1.1, "Encoding Object": an object of which nothing is said is JSON.
        field = fields.get(name) or FormField(style="json" if isinstance(item, dict) else "form")
        other_names = (value.keys() | fields.keys()) - {name}
        pairs += claimed(owners, name, path, pairs_of(path, name, item, field.style, field.explode, other_names))
    return "&".join(f"{name}={text}" for name, text in pairs).encode()


def _multipart_body(argument: str, fields: Mapping[str, FormField], value: Mapping[str, Any]) -> tuple[str, bytes]:
    parts = list[bytes]()
    for name, item in value.items():
        if not FIELD_NAME.fullmatch(name):
            detail = (
                "the name of a field is empty or `_charset_`, or has a quote, a backslash, `%` or a control character"
            )
            raise unsendable(argument, detail, "leave it out")
        if item == []:
            raise unsendable(argument, "an empty list has no part in a form", "leave it out")
        field = fields.get(name, FormField())
        parts += [_part_bytes(argument, name, field, entry) for entry in (item if isinstance(item, list) else (item,))]
    if not parts:
        raise unsendable(argument, "a multipart form has at least one field", "give one")
    # RFC 2046, 5.1.1: at most 70 characters.
    digest = hashlib.sha256(canonical([hashlib.sha256(part).hexdigest() for part in parts])).hexdigest()
    boundary = f"contextos-{digest[:48]}"
    content = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    return f"multipart/form-data; boundary={boundary}", content + b"--%s--\r\n" % boundary.encode()


def _part_bytes(argument: str, name: str, field: FormField, value: Any) -> bytes:
    disposition, media = f'Content-Disposition: form-data; name="{name}"', field.media_type
    if field.is_file and isinstance(value, dict):
        filename = value.get("filename", name if _FILE_NAME.fullmatch(name) else "file")
        if not isinstance(filename, str) or not _FILE_NAME.fullmatch(filename):
            detail = "the name of a file is empty, or has a quote, a slash, `%` or a control character"
            raise unsendable(argument, detail, "give a plain name")
        if value.keys() - {"base64", "filename"}:
            raise unsendable(argument, "a file has `base64` and `filename` alone", "leave the rest out")
        disposition, media = f'{disposition}; filename="{filename}"', media or OCTETS
        content = _decode_base64(argument, value.get("base64"))
    elif isinstance(value, dict) or (media is not None and body_kind(media) == "json"):
        content, media = canonical(value), media or "application/json"
    else:
        content = written_text(argument, value).encode()
    if media is not None:
        _refuse_other_charset(argument, media, content)
    type_line = f"\r\nContent-Type: {media}" if media is not None else ""
    return f"{disposition}{type_line}\r\n\r\n".encode() + content


def _decode_base64(argument: str, value: Any) -> bytes:
    """Return the bytes of a base64 text. Raises `InvalidInput` unless it is the only base64 text of these bytes."""
    try:
        raw = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        raw = None
    if raw is None or base64.b64encode(raw).decode() != value:
        raise unsendable(argument, "the value is not base64", "encode the bytes with the alphabet of RFC 4648, 4")
    return raw
