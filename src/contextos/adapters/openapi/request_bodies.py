"""Reads the body of an operation: its media type, its schema as an argument, and how its fields are written.

The first media type that can be sent is used, in the order of `_ORDER`. For a range of media types (`*/*`), the schema
decides which type is sent. A file of a multipart form is an argument of the form `FILE`, because JSON has no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contextos.action.schema_profile import MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS
from contextos.adapters.foreign.keywords import Inconvertible
from contextos.adapters.foreign.parts import IN_PLACE_LISTS
from contextos.adapters.foreign.texts import plain_text
from contextos.adapters.openapi.bodies import BYTES, FIELD_NAME, FILE, OCTETS, BodyKind, body_kind
from contextos.adapters.openapi.calls import BodyPlace, FormField, charset_of
from contextos.adapters.openapi.document import OpenApiDocument

FORM_STYLES: Final = ("form", "spaceDelimited", "pipeDelimited", "deepObject")
_ORDER: Final[tuple[BodyKind, ...]] = ("json", "form", "multipart", "text", "bytes")
_RANGES: Final = ("*/*", "service/*", "text/*")
_OF_TEXTS: Final = ("const", "enum", "maxLength", "minLength", "pattern")
"""Keywords of a text that mean nothing for the base64 of bytes."""
_SAY_A_TYPE: Final = frozenset({"type", "const", "enum", "format", "contentEncoding", *IN_PLACE_LISTS})
"""Keywords that decide how a field is written. A branch of a form without any of them does not change it."""


@dataclass(frozen=True)
class ReadBody:
    """The body of an operation: where it goes, its schema as the document has it, and whether it is required."""

    place: BodyPlace
    schema: Any
    is_required: bool
    notes: tuple[str, ...] = ()


def read_request_body(document: OpenApiDocument, stated: Any) -> ReadBody | None:
    """Return the body that a `requestBody` describes, or None if it names no media type.

    Raises:
        Inconvertible: none of its media types can be sent.
        InvalidInput: a reference in it leads nowhere.
    """
    stated = document.whole(stated)
    content, is_required = stated.get("content"), stated.get("required") is True
    if not isinstance(content, dict) or not content:
        return None
    sent = {media: _concrete(document, str(media), one) for media, one in content.items()}
    for kind in _ORDER:
        for media, concrete in sent.items():
            if body_kind(concrete) != kind or not _is_sent_charset(concrete):
                continue
            described = document.whole(content[media])
            if kind == "multipart":
                return _multipart(document, described, is_required)
            schema, notes = described.get("schema", {}), tuple[str, ...]()
            if kind == "text":
                schema, notes = _text(document, schema)
            elif kind == "bytes":
                schema, notes = dict(BYTES), _unchecked_bytes(document, schema)
            fields = _fields(described) if kind == "form" else {}
            place = BodyPlace(argument="body", media_type=concrete, fields=fields)
            return ReadBody(place, schema, is_required, notes)
    named = plain_text(", ".join(map(str, content)), 100)
    raise Inconvertible(f"its body is `{named}`, which is not supported")


def is_bytes(document: OpenApiDocument, schema: Any) -> bool:
    """Return whether a schema describes raw bytes, which are sent unchanged."""
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    if whole.get("type", "string") not in ("string", ["string"]) or "contentEncoding" in whole:
        return False
    return whole.get("format") == "binary" or "contentMediaType" in whole


def _unchecked_bytes(document: OpenApiDocument, schema: Any) -> tuple[str, ...]:
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    return tuple(f"`{one}` of its body, which is bytes, is not checked" for one in _OF_TEXTS if one in whole)


def _is_sent_charset(media_type: str) -> bool:
    try:
        charset_of(media_type)
    except ValueError:
        return False
    return True


def _text(document: OpenApiDocument, schema: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the schema of a body that is a text, and notes on missing checks. The argument is the text itself."""
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    if whole.get("type") in ("string", ["string"]):
        return schema, ()
    values = () if "type" in whole else ("const", "enum")
    kept = {one: whole[one] for one in ("description", "maxLength", "minLength", "pattern", *values) if one in whole}
    notes = () if schema in ({}, True) else ("the form of its body, which is a text, is not checked",)
    return {**kept, "type": "string"}, notes


def _concrete(document: OpenApiDocument, media: str, described: Any) -> str:
    """Return the media type that is sent. It is `media` itself unless that is a range of types."""
    if media not in _RANGES:
        return media
    schema = document.whole(described).get("schema", {})
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    if media == "text/*":
        return "text/plain"
    if is_bytes(document, whole):
        return OCTETS
    return "text/plain" if media == "*/*" and whole.get("type") == "string" else "application/json"


def _fields(described: Mapping[str, Any]) -> dict[str, FormField]:
    """Return how the fields of a form are written, for the fields that are not written in the default way."""
    fields = {}
    for name, one in _encoding(described).items():
        if body_kind(str(one.get("contentType", ""))) == "json":
            fields[name] = FormField(style="json")
            continue
        style = one.get("style", "form")
        if style not in FORM_STYLES:
            raise Inconvertible(f"the style `{str(style)[:40]}` does not exist in a form")
        fields[name] = FormField(style=style, explode=bool(one.get("explode", style == "form")))
    return fields


def _encoding(described: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    encoding = described.get("encoding")
    encoding = encoding if isinstance(encoding, dict) else {}
    if not all(isinstance(one, dict) for one in encoding.values()):
        raise Inconvertible("`encoding` is not an object")
    return encoding


def _multipart(document: OpenApiDocument, described: Mapping[str, Any], is_required: bool) -> ReadBody:
    form = _Multipart(document, _encoding(described))
    schema = form.rewritten(described.get("schema", {}))
    place = BodyPlace(argument="body", media_type="multipart/form-data", fields=form.fields)
    return ReadBody(place, schema, is_required, tuple(form.notes))


class _Multipart:
    """Finds the files of one multipart form, and replaces their schemas by the schema of a file argument (`FILE`)."""

    def __init__(self, document: OpenApiDocument, encoding: Mapping[str, Mapping[str, Any]]) -> None:
        self._document, self._encoding = document, encoding
        self._left = MAX_SUBSCHEMAS
        self._branches: dict[str, list[tuple[FormField, bool]]] = {}
        self.fields: dict[str, FormField] = {}
        self.notes: list[str] = []

    def rewritten(self, schema: Any, depth: int = 0) -> Any:
        """Return the schema of the form with files replaced; without files it is unchanged, with its references."""
        whole = self._whole(schema, depth)
        made: dict[str, Any] = dict(whole)
        if isinstance(whole.get("properties"), dict):
            made["properties"] = {name: self._field(name, one) for name, one in whole["properties"].items()}
        for keyword in IN_PLACE_LISTS:
            if isinstance(whole.get(keyword), list):
                made[keyword] = [self.rewritten(one, depth + 1) for one in whole[keyword]]
        return schema if made == whole else made

    def _whole(self, schema: Any, depth: int = 0) -> Mapping[str, Any]:
        """Return a schema with its own `$ref` resolved. Raises `Inconvertible` if the form is too large or too deep."""
        self._left -= 1
        if self._left < 0 or depth > MAX_SCHEMA_DEPTH:
            raise Inconvertible("its form is larger than the profile, or comes back to itself")
        if not isinstance(schema, dict):
            return {}
        if not isinstance(schema.get("$ref"), str):
            return schema
        whole = self._document.whole(schema)
        # In version 3.0 the members beside a `$ref` do not count.
        beside = {} if self._document.is_3_0 else {name: one for name, one in schema.items() if name != "$ref"}
        if beside.keys() <= {"description", "summary"}:
            return {**whole, **beside}
        return {**beside, "allOf": [*beside.get("allOf", ()), {"$ref": schema["$ref"]}]}

    def _field(self, name: str, schema: Any) -> Any:
        if not FIELD_NAME.fullmatch(name):
            raise Inconvertible(f"no part can carry the name of the field `{plain_text(name, 80)}` of its form")
        said = self._encoding.get(name, {})
        made, has_files = self._files(schema)
        if not self._document.is_3_0 and ("style" in said or "explode" in said):
            raise Inconvertible(f"the field `{plain_text(name, 80)}` of its form has a style")
        if isinstance(headers := said.get("headers"), dict) and headers:
            must = [one for one in headers.values() if self._document.whole(one).get("required") is True]
            if must:
                raise Inconvertible(f"the field `{plain_text(name, 80)}` of its form needs a header of its own")
            self.notes.append(f"the headers of the field `{plain_text(name, 80)}` are not sent")
        whole = self._whole(schema)
        media = self._media(name, said.get("contentType"), has_files, whole)
        self._add(name, FormField(media_type=media, is_file=has_files), whole)
        return made

    def _add(self, name: str, field: FormField, schema: Mapping[str, Any]) -> None:
        """Combine how a branch of the form writes a field with the statements of the branches before it."""
        if not (field.is_file or _SAY_A_TYPE & schema.keys()):
            if field.media_type is not None:
                self.fields.setdefault(name, field)
            return
        others = self._branches.setdefault(name, [])
        others.append((field, _has_type(schema, "object")))
        is_file = any(one.is_file for one, _ in others)
        if len({one.media_type for one, _ in others}) > 1 or (is_file and any(is_object for _, is_object in others)):
            raise Inconvertible(f"the branches of its form write the field `{plain_text(name, 80)}` in different ways")
        if is_file or field.media_type is not None:
            self.fields[name] = FormField(media_type=field.media_type, is_file=is_file)

    def _media(self, name: str, stated: Any, has_files: bool, whole: Mapping[str, Any]) -> str | None:
        """Return the media type of the parts of a field, if the document says one."""
        if stated is None and has_files:
            stated = whole.get("contentMediaType")
        if stated is None:
            # As in OpenAPI's table of default types: a text in base64 is bytes to the server, and is sent as that text.
            encoded = "contentEncoding" in whole or whole.get("format") == "byte"
            return OCTETS if encoded and not has_files else None
        types = [one.strip() for one in str(stated).split(",")]
        concrete = [one for one in types if "*" not in one.partition(";")[0]]
        if len(types) > 1 or not concrete:
            used = concrete[0] if concrete else OCTETS if has_files else "text/plain"
            self.notes.append(f"the field `{plain_text(name, 80)}` is sent as `{plain_text(used, 80)}`")
            return used
        is_json = body_kind(concrete[0]) == "json"
        if (is_json and _has_type(whole, "array")) or (not is_json and _has_type(whole, "object")):
            shown = plain_text(concrete[0], 80)
            raise Inconvertible(f"the field `{plain_text(name, 80)}` of its form is written as `{shown}`")
        return concrete[0]

    def _files(self, schema: Any, depth: int = 0) -> tuple[Any, bool]:
        """Return the schema of a field with files replaced, and whether it has files."""
        whole = self._whole(schema)
        if depth > 8:
            return schema, False
        if is_bytes(self._document, whole):
            if unchecked := [one for one in _OF_TEXTS if one in whole]:
                self.notes.append(f"`{unchecked[0]}` of a file is not checked")
            kept = {one: whole[one] for one in ("description", "readOnly") if one in whole}
            return {**FILE, **kept}, True
        made, found = dict(whole), False
        for keyword in ("items", *IN_PLACE_LISTS):
            below = whole.get(keyword)
            if isinstance(below, dict):
                made[keyword], has_files = self._files(below, depth + 1)
                found = found or has_files
            elif isinstance(below, list):
                parts = [self._files(one, depth + 1) for one in below]
                made[keyword] = [one for one, _ in parts]
                found = found or any(has_files for _, has_files in parts)
        return (made, True) if found else (schema, False)


def _has_type(schema: Mapping[str, Any], named: str) -> bool:
    stated = schema.get("type")
    return named == stated or (isinstance(stated, list) and named in stated)
