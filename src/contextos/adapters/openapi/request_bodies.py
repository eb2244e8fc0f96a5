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
_MEDIA_RANGES: Final = ("*/*", "application/*", "text/*")
_TEXT_KEYWORDS: Final = ("const", "enum", "maxLength", "minLength", "pattern")
"""Keywords of a text that mean nothing for the base64 of bytes."""
_TYPE_KEYWORDS: Final = frozenset({"type", "const", "enum", "format", "contentEncoding", *IN_PLACE_LISTS})
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
    whole = document.whole(stated)
    content, is_required = whole.get("content"), whole.get("required") is True
    if not isinstance(content, dict) or not content:
        return None
    media_types = {media: _concrete_type(document, str(media), entry) for media, entry in content.items()}
    for kind in _ORDER:
        for media, concrete in media_types.items():
            if body_kind(concrete) != kind or not _is_sent_charset(concrete):
                continue
            media_object = document.whole(content[media])
            if kind == "multipart":
                return _read_multipart(document, media_object, is_required)
            schema, notes = media_object.get("schema", {}), tuple[str, ...]()
            if kind == "text":
                schema, notes = _text_schema(document, schema)
            elif kind == "bytes":
                schema, notes = dict(BYTES), _unchecked_bytes(document, schema)
            fields = _form_fields(media_object) if kind == "form" else {}
            place = BodyPlace(argument="body", media_type=concrete, fields=fields)
            return ReadBody(place, schema, is_required, notes)
    names = plain_text(", ".join(map(str, content)), 100)
    raise Inconvertible(f"its body is `{names}`, which is not supported")


def is_bytes(document: OpenApiDocument, schema: Any) -> bool:
    """Return whether a schema describes raw bytes, which are sent unchanged."""
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    if whole.get("type", "string") not in ("string", ["string"]) or "contentEncoding" in whole:
        return False
    return whole.get("format") == "binary" or "contentMediaType" in whole


def _unchecked_bytes(document: OpenApiDocument, schema: Any) -> tuple[str, ...]:
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    return tuple(f"`{key}` of its body, which is bytes, is not checked" for key in _TEXT_KEYWORDS if key in whole)


def _is_sent_charset(media_type: str) -> bool:
    try:
        charset_of(media_type)
    except ValueError:
        return False
    return True


def _text_schema(document: OpenApiDocument, schema: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the schema of a body that is a text, and notes on missing checks. The argument is the text itself."""
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    if whole.get("type") in ("string", ["string"]):
        return schema, ()
    values = () if "type" in whole else ("const", "enum")
    members = {key: whole[key] for key in ("description", "maxLength", "minLength", "pattern", *values) if key in whole}
    notes = () if schema in ({}, True) else ("the form of its body, which is a text, is not checked",)
    return {**members, "type": "string"}, notes


def _concrete_type(document: OpenApiDocument, media: str, media_object: Any) -> str:
    """Return the media type that is sent. It is `media` itself unless that is a range of types."""
    if media not in _MEDIA_RANGES:
        return media
    schema = document.whole(media_object).get("schema", {})
    whole = document.whole(schema) if isinstance(schema, dict) else {}
    if media == "text/*":
        return "text/plain"
    if is_bytes(document, whole):
        return OCTETS
    return "text/plain" if media == "*/*" and whole.get("type") == "string" else "application/json"


def _form_fields(media_object: Mapping[str, Any]) -> dict[str, FormField]:
    """Return how the fields of a form are written, for the fields that are not written in the default way."""
    fields = {}
    for name, entry in _encoding(media_object).items():
        if body_kind(str(entry.get("contentType", ""))) == "json":
            fields[name] = FormField(style="json")
            continue
        style = entry.get("style", "form")
        if style not in FORM_STYLES:
            raise Inconvertible(f"the style `{str(style)[:40]}` does not exist in a form")
        fields[name] = FormField(style=style, explode=bool(entry.get("explode", style == "form")))
    return fields


def _encoding(media_object: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    encoding = media_object.get("encoding")
    encoding = encoding if isinstance(encoding, dict) else {}
    if not all(isinstance(entry, dict) for entry in encoding.values()):
        raise Inconvertible("`encoding` is not an object")
    return encoding


def _read_multipart(document: OpenApiDocument, media_object: Mapping[str, Any], is_required: bool) -> ReadBody:
    form = _Multipart(document, _encoding(media_object))
    schema = form.rewritten(media_object.get("schema", {}))
    place = BodyPlace(argument="body", media_type="multipart/form-data", fields=form.fields)
    return ReadBody(place, schema, is_required, tuple(form.notes))


class _Multipart:
    """Finds the files of one multipart form, and replaces their schemas by the schema of a file argument (`FILE`)."""

    def __init__(self, document: OpenApiDocument, encoding: Mapping[str, Mapping[str, Any]]) -> None:
        self._document, self._encoding = document, encoding
        self._remaining = MAX_SUBSCHEMAS
        self._branches: dict[str, list[tuple[FormField, bool]]] = {}
        self.fields: dict[str, FormField] = {}
        self.notes: list[str] = []

    def rewritten(self, schema: Any, depth: int = 0) -> Any:
        """Return the schema of the form with files replaced; without files it is unchanged, with its references."""
        whole = self._resolve(schema, depth)
        result: dict[str, Any] = dict(whole)
        if isinstance(whole.get("properties"), dict):
            result["properties"] = {name: self._read_field(name, field) for name, field in whole["properties"].items()}
        for keyword in IN_PLACE_LISTS:
            if isinstance(whole.get(keyword), list):
                result[keyword] = [self.rewritten(branch, depth + 1) for branch in whole[keyword]]
        return schema if result == whole else result

    def _resolve(self, schema: Any, depth: int = 0) -> Mapping[str, Any]:
        """Return a schema with its own `$ref` resolved. Raises `Inconvertible` if the form is too large or too deep."""
        self._remaining -= 1
        if self._remaining < 0 or depth > MAX_SCHEMA_DEPTH:
            raise Inconvertible("its form is larger than the profile, or comes back to itself")
        if not isinstance(schema, dict):
            return {}
        if not isinstance(schema.get("$ref"), str):
            return schema
        whole = self._document.whole(schema)
        # In version 3.0 the members beside a `$ref` do not count.
        siblings = {} if self._document.is_3_0 else {name: value for name, value in schema.items() if name != "$ref"}
        if siblings.keys() <= {"description", "summary"}:
            return {**whole, **siblings}
        return {**siblings, "allOf": [*siblings.get("allOf", ()), {"$ref": schema["$ref"]}]}

    def _read_field(self, name: str, schema: Any) -> Any:
        if not FIELD_NAME.fullmatch(name):
            raise Inconvertible(f"no part can carry the name of the field `{plain_text(name, 80)}` of its form")
        encoding = self._encoding.get(name, {})
        converted, has_files = self._replace_files(schema)
        if not self._document.is_3_0 and ("style" in encoding or "explode" in encoding):
            raise Inconvertible(f"the field `{plain_text(name, 80)}` of its form has a style")
        if isinstance(headers := encoding.get("headers"), dict) and headers:
            required = [header for header in headers.values() if self._document.whole(header).get("required") is True]
            if required:
                raise Inconvertible(f"the field `{plain_text(name, 80)}` of its form needs a header of its own")
            self.notes.append(f"the headers of the field `{plain_text(name, 80)}` are not sent")
        whole = self._resolve(schema)
        media = self._media_type(name, encoding.get("contentType"), has_files, whole)
        self._merge_field(name, FormField(media_type=media, is_file=has_files), whole)
        return converted

    def _merge_field(self, name: str, field: FormField, schema: Mapping[str, Any]) -> None:
        """Combine how a branch of the form writes a field with the statements of the branches before it."""
        if not (field.is_file or _TYPE_KEYWORDS & schema.keys()):
            if field.media_type is not None:
                self.fields.setdefault(name, field)
            return
        others = self._branches.setdefault(name, [])
        others.append((field, _has_type(schema, "object")))
        is_file = any(part.is_file for part, _ in others)
        if len({part.media_type for part, _ in others}) > 1 or (is_file and any(is_object for _, is_object in others)):
            raise Inconvertible(f"the branches of its form write the field `{plain_text(name, 80)}` in different ways")
        if is_file or field.media_type is not None:
            self.fields[name] = FormField(media_type=field.media_type, is_file=is_file)

    def _media_type(self, name: str, content_type: Any, has_files: bool, whole: Mapping[str, Any]) -> str | None:
        """Return the media type of the parts of a field, if the document says one."""
        if content_type is None and has_files:
            content_type = whole.get("contentMediaType")
        if content_type is None:
            # As in OpenAPI's table of default types: a text in base64 is bytes to the server, and is sent as that text.
            is_encoded = "contentEncoding" in whole or whole.get("format") == "byte"
            return OCTETS if is_encoded and not has_files else None
        types = [media.strip() for media in str(content_type).split(",")]
        concrete = [media for media in types if "*" not in media.partition(";")[0]]
        if len(types) > 1 or not concrete:
            fallback = concrete[0] if concrete else OCTETS if has_files else "text/plain"
            self.notes.append(f"the field `{plain_text(name, 80)}` is sent as `{plain_text(fallback, 80)}`")
            return fallback
        is_json = body_kind(concrete[0]) == "json"
        if (is_json and _has_type(whole, "array")) or (not is_json and _has_type(whole, "object")):
            stated_type = plain_text(concrete[0], 80)
            raise Inconvertible(f"the field `{plain_text(name, 80)}` of its form is written as `{stated_type}`")
        return concrete[0]

    def _replace_files(self, schema: Any, depth: int = 0) -> tuple[Any, bool]:
        """Return the schema of a field with files replaced, and whether it has files."""
        whole = self._resolve(schema)
        if depth > 8:
            return schema, False
        if is_bytes(self._document, whole):
            if ignored := [key for key in _TEXT_KEYWORDS if key in whole]:
                self.notes.append(f"`{ignored[0]}` of a file is not checked")
            extras = {key: whole[key] for key in ("description", "readOnly") if key in whole}
            return {**FILE, **extras}, True
        result, any_files = dict(whole), False
        for keyword in ("items", *IN_PLACE_LISTS):
            subschema = whole.get(keyword)
            if isinstance(subschema, dict):
                result[keyword], has_files = self._replace_files(subschema, depth + 1)
                any_files = any_files or has_files
            elif isinstance(subschema, list):
                parts = [self._replace_files(branch, depth + 1) for branch in subschema]
                result[keyword] = [branch for branch, _ in parts]
                any_files = any_files or any(has_files for _, has_files in parts)
        return (result, True) if any_files else (schema, False)


def _has_type(schema: Mapping[str, Any], name: str) -> bool:
    types = schema.get("type")
    return name == types or (isinstance(types, list) and name in types)
