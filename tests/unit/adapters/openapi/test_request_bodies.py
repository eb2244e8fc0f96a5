"""Bodies of operations as arguments: multipart forms, their files and the encoding of their fields."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from contextos.adapters.openapi.calls import BodyPlace, FormField
from contextos.adapters.openapi.operations import ReadOperation, RefusedOperation
from tests.openapi_documents import OK, accepts, document, read_one

TEXT = {"type": "string"}


def multipart(properties: Any, encoding: Any = None, version: str = "3.1.0", schemas: Any = None) -> Any:
    schema = {"type": "object", "properties": properties} if isinstance(properties, dict) else properties[0]
    content = {"multipart/form-data": {"schema": schema, "encoding": encoding or {}}}
    paths = {"/up": {"post": {"operationId": "up", "requestBody": {"content": content}, "responses": OK}}}
    return read_one(document(paths, schemas, version=version))


def body(media: str, schema: Any) -> Any:
    content = {media: {} if schema is None else {"schema": schema}}
    paths = {"/up": {"post": {"operationId": "up", "requestBody": {"content": content}, "responses": OK}}}
    return read_one(document(paths, {"Pet": PET}))


PET = {"type": "object", "properties": {"id": {"type": "integer"}}}
UNCHECKED = "the form of its body, which is a text, is not checked"


@pytest.mark.parametrize(
    ("media", "schema", "notes"),
    [
        ("application/xml", {"$ref": "#/components/schemas/Pet"}, (UNCHECKED,)),
        ("application/yaml", PET, (UNCHECKED,)),
        ("application/x-ndjson", {"type": "array", "items": PET}, (UNCHECKED,)),
        ("text/csv", {"type": ["object", "null"], "maxLength": 9}, (UNCHECKED,)),
        ("text/plain", {"maxLength": 9}, (UNCHECKED,)),
        ("text/plain", {"enum": ["<pet/>", 5], "maxLength": 9}, (UNCHECKED,)),
        ("text/plain", {"type": "string", "maxLength": 9}, ()),
        ("text/plain", {}, ()),
        ("text/plain", None, ()),
    ],
)
def test_a_body_that_is_a_text_takes_a_text_whatever_its_schema_describes(media: str, schema: Any, notes: Any) -> None:
    one = body(media, schema)
    assert isinstance(one, ReadOperation)
    assert one.notes == notes
    assert accepts(one.arguments.schema, {"body": "<pet/>"})
    for value in ({"id": 1}, [{"id": 1}], None, 5):
        assert not accepts(one.arguments.schema, {"body": value})
    bound = isinstance(schema, dict) and "maxLength" in schema
    assert accepts(one.arguments.schema, {"body": "longer than that"}) is not bound


OTHER_CHARSETS = [
    "charset=iso-8859-1",
    "Charset=UTF-16",
    'charset="utf-7"',
    "charset=utf-8; charset=utf-16",
    "x=1;CHARSET =utf-16",
    "charset='utf-16'",
    'charset="utf-8',
    'x="; charset=utf-16"',
    "x=1; charset*=utf-8''utf-16",
]


@pytest.mark.parametrize("charset", OTHER_CHARSETS)
def test_no_text_is_sent_under_the_label_of_another_charset(charset: str) -> None:
    for media in (f"text/plain;{charset}", f"application/json; {charset}"):
        assert isinstance(body(media, TEXT), RefusedOperation)
        for place in (BodyPlace, FormField):
            with pytest.raises(ValidationError, match="state `charset=utf-8`"):
                place.model_validate(
                    {"argument": "body", "media_type": media} if place is BodyPlace else {"media_type": media}
                )
    one = multipart({"f": TEXT}, {"f": {"contentType": f"text/plain; {charset}"}})
    assert isinstance(one, RefusedOperation)


def test_of_several_media_types_one_is_used_whose_charset_is_sent() -> None:
    content = {f"text/plain; charset={name}": {"schema": TEXT} for name in ("utf-16", "UTF-8")}
    paths = {"/up": {"post": {"operationId": "up", "requestBody": {"content": content}, "responses": OK}}}
    one = read_one(document(paths))
    assert isinstance(one, ReadOperation)
    assert one.call.body is not None
    assert one.call.body.media_type == "text/plain; charset=UTF-8"


BINARY = {"type": "string", "format": "binary"}
FILE = {"base64": "YQ==", "filename": "a.txt"}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (BINARY, FILE, "YQ=="),
        ({"type": "string", "contentMediaType": "image/png"}, {"base64": "YQ=="}, {"filename": "a"}),
        ({"contentMediaType": "image/png"}, FILE, {**FILE, "type": "image/png"}),
        ({"$ref": "#/components/schemas/Bin"}, FILE, {"base64": "not base64!"}),
        ({"type": "array", "items": BINARY, "maxItems": 1}, [FILE], [FILE, FILE]),
        ({"anyOf": [BINARY, {"type": "array", "items": {"$ref": "#/components/schemas/Bin"}}]}, [FILE], ["YQ=="]),
        ({"type": "string", "contentEncoding": "base64"}, "YQ==", FILE),
        ({"type": "object", "properties": {"raw": BINARY}}, {"raw": "text"}, {"raw": FILE}),
    ],
)
def test_a_file_of_a_multipart_form_is_an_argument_of_its_own_form(schema: Any, good: Any, bad: Any) -> None:
    one = multipart({"f": schema, "name": TEXT}, schemas={"Bin": BINARY})
    assert isinstance(one, ReadOperation)
    assert accepts(one.arguments.schema, {"body": {"f": good, "name": "a"}})
    assert not accepts(one.arguments.schema, {"body": {"f": bad}})
    assert not accepts(one.arguments.schema, {"body": {"f": good, "more": 1}})


def test_what_a_reference_or_a_part_of_the_schema_of_a_form_says_counts_too() -> None:
    schemas = {"Up": {"type": "object", "required": ["f"], "properties": {"f": BINARY}}, "Bin": BINARY}
    beside = {"$ref": "#/components/schemas/Up", "required": ["n"], "properties": {"n": TEXT}}
    for form in (
        beside,
        {"allOf": [{"$ref": "#/components/schemas/Up"}, {"required": ["n"], "properties": {"n": TEXT}}]},
    ):
        one = multipart([form], schemas=schemas)
        assert isinstance(one, ReadOperation)
        assert accepts(one.arguments.schema, {"body": {"f": FILE, "n": "a"}})
        for value in ({"f": FILE}, {"n": "a"}, {"f": "YQ==", "n": "a"}, {"f": FILE, "n": "a", "x": 1}):
            assert not accepts(one.arguments.schema, {"body": value})


@pytest.mark.parametrize(
    ("properties", "encoding", "version", "media", "says"),
    [
        ({"f": BINARY}, {"f": {"contentType": "image/png"}}, "3.1.0", "image/png", ""),
        (
            {"f": BINARY},
            {"f": {"contentType": "image/png, image/jpeg"}},
            "3.1.0",
            "image/png",
            "`f` is sent as `image/png`",
        ),
        ({"f": BINARY}, {"f": {"contentType": "image/*"}}, "3.1.0", "application/octet-stream", "is sent as"),
        ({"f": {"contentMediaType": "image/png"}}, {}, "3.1.0", "image/png", ""),
        ({"f": TEXT}, {"f": {"style": "form"}}, "3.0.3", None, ""),
        ({"f": BINARY}, {"f": {"headers": {"X-A": {"schema": TEXT}}}}, "3.1.0", None, "headers of the field `f`"),
        ({"f": {**BINARY, "maxLength": 5}}, {}, "3.1.0", None, "`maxLength` of a file is not checked"),
    ],
)
def test_the_encoding_of_a_field_is_kept_or_a_note_says_what_is_sent(
    properties: Any, encoding: Any, version: str, media: str | None, says: str
) -> None:
    one = multipart(properties, encoding, version)
    assert isinstance(one, ReadOperation)
    assert one.call.body is not None
    field = one.call.body.fields.get("f")
    assert (field.media_type if field is not None else None) == media
    assert says in "; ".join(one.notes)


@pytest.mark.parametrize(
    ("properties", "encoding", "says"),
    [
        ({"f": TEXT}, {"f": {"style": "deepObject"}}, "has a style"),
        ({"f": TEXT}, {"f": {"headers": {"X-A": {"required": True, "schema": TEXT}}}}, "needs a header"),
        ({"f": {"type": "array", "items": TEXT}}, {"f": {"contentType": "application/json"}}, "is written as"),
        ({"f": {"type": "object"}}, {"f": {"contentType": "text/xml"}}, "is written as `text/xml`"),
        ({"f": TEXT}, {"f": 5}, "not an object"),
        ({"f": BINARY}, {"f": {"contentType": "image/png\r\nX-Evil: 1"}}, "not valid"),
        ([{"$ref": "#/components/schemas/Loop"}], {}, "comes back to itself"),
    ],
)
def test_a_form_that_cannot_be_written_exactly_is_refused(properties: Any, encoding: Any, says: str) -> None:
    one = multipart(properties, encoding, schemas={"Loop": {"allOf": [{"$ref": "#/components/schemas/Loop"}]}})
    assert isinstance(one, RefusedOperation)
    assert says in one.reason


PNG = {"type": "string", "contentMediaType": "image/png"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize(
    ("branches", "media"),
    [
        ([BINARY, TEXT], None),
        ([BINARY, {}], None),
        ([PNG, {"description": "d"}], "image/png"),
        ([PNG, PNG], "image/png"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_file_in_one_branch_of_a_form_is_a_file(keyword: str, branches: Any, media: Any, turned: bool) -> None:
    forms = [{"type": "object", "properties": {"f": one}} for one in (branches[::-1] if turned else branches)]
    one = multipart([{keyword: forms}])
    assert isinstance(one, ReadOperation)
    assert one.call.body is not None
    assert one.call.body.fields == {"f": FormField(media_type=media, is_file=True)}


@pytest.mark.parametrize(
    "branches",
    [
        [BINARY, PNG],
        [PNG, TEXT],
        [BINARY, {"type": "object", "properties": {"base64": TEXT}}],
        [TEXT, {"contentEncoding": "base64"}],
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_branches_that_write_a_field_in_different_ways_are_refused(branches: Any, turned: bool) -> None:
    forms = [{"type": "object", "properties": {"f": one}} for one in (branches[::-1] if turned else branches)]
    one = multipart([{"anyOf": forms}])
    assert isinstance(one, RefusedOperation)
    assert "different ways" in one.reason


@pytest.mark.parametrize("turned", [False, True])
def test_a_branch_that_says_nothing_of_a_field_changes_nothing(turned: bool) -> None:
    forms = [{"type": "object", "properties": {"f": one}} for one in ([{}, BINARY] if turned else [BINARY, {}])]
    one = multipart([{"allOf": forms}], {"f": {"contentType": "image/*"}})
    assert isinstance(one, ReadOperation)
    assert one.call.body is not None
    assert one.call.body.fields == {"f": FormField(media_type="application/octet-stream", is_file=True)}


@pytest.mark.parametrize(
    "name",
    ['a"b', "a\\b", "a\r\nX-Evil: 1", "a\n", "a\r", "a%22; x=b", "%0d%0a", "_charset_", "_CHARSET_", "", "\u2028"],
)
def test_a_field_whose_name_no_part_can_carry_is_refused(name: str) -> None:
    one = multipart({name: TEXT})
    assert isinstance(one, RefusedOperation)
    assert "no part can carry" in one.reason


def test_a_note_says_what_is_not_checked_of_a_body_of_bytes() -> None:
    one = body("application/pdf", {**BINARY, "maxLength": 5, "pattern": "^%PDF"})
    assert isinstance(one, ReadOperation)
    assert one.notes == tuple(
        f"`{word}` of its body, which is bytes, is not checked" for word in ("maxLength", "pattern")
    )


def test_a_note_says_that_the_optional_body_of_a_get_is_not_sent() -> None:
    stated = {"requestBody": {"content": {"application/json": {"schema": PET}}}}
    for more, notes in ((stated, ("the body that its request can have is not sent",)), ({}, ())):
        one = read_one(document({"/x": {"get": {"operationId": "x", "responses": OK, **more}}}))
        assert isinstance(one, ReadOperation)
        assert one.notes == notes
