"""Every style of a parameter and every kind of a body, sent by a drafted adapter over HTTP, is read back as the value
that went in, by readers that follow the tables of OpenAPI; or it is refused before it is sent, where the tables leave
open what it would mean.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.datastructures import FileStorage
from werkzeug.formparser import parse_form_data
from werkzeug.test import EnvironBuilder

from contextos.adapters.openapi.draft import draft_openapi
from contextos.contracts.envelopes.tool import CallContext
from tests.loopback import Answer, Asked, serving
from tests.openapi_documents import OK, document
from tests.openapi_reader import Part, form_of, from_cookie, from_header, from_path, from_query, multipart_of
from tests.unit.adapters.openapi.test_adapter import adapter_of

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
OBJECT = {
    "type": "object",
    "properties": {"R": {"type": "integer"}, "G": TEXT, "on": {"type": "boolean"}},
    "additionalProperties": TEXT,
}
LIST = {"type": "array", "items": TEXT}
RESERVED = ":/?#[]@!$&'()*+,;= \"<>\\^`{|}%41~._-"

TEXTS: list[Any] = ["blue", "", "a b", "a,b", "1.5", "a=b&c", "a;b", "a|b", "a+b", "%2C", "ü€漢😀", RESERVED]
LISTS: list[Any] = [
    ["a", "b"],
    ["a"],
    [""],
    ["", "b"],
    ["a,b", "c"],
    ["a b"],
    ["a.b", "c"],
    ["a|b", "c;d"],
    ["ü&=", "%20"],
    [],
]
OBJECTS: list[Any] = [
    {"R": 100, "G": "x"},
    {"R": 100, "G": "x,y"},
    {"G": ""},
    {"G": "a=b&c", "on": True},
    {"G": "a.b c|d;e"},
    {"ü,=&": "é"},
    {"a[b]": "c"},
    {},
]
VALUES = [(TEXT, TEXTS), (NUMBER, [5, -1.5, 0]), ({"type": "boolean"}, [True]), (LIST, LISTS), (OBJECT, OBJECTS)]

PLACES = [
    *(("path", style, explode) for style in ("simple", "label", "matrix") for explode in (False, True)),
    *(("query", style, explode) for style in ("form", "spaceDelimited", "pipeDelimited") for explode in (False, True)),
    ("query", "deepObject", True),
    ("header", "simple", False),
    ("header", "simple", True),
    ("cookie", "form", False),
    ("cookie", "form", True),
]
CASES = [
    pytest.param(place, style, explode, reserved, schema, value, id=f"{place}-{style}-{explode}-{reserved}-{value!a}")
    for place, style, explode in PLACES
    for reserved in ((False, True) if place == "query" else (False,))
    for schema, values in VALUES
    for value in values
]


class Server:
    """A server that keeps the last request."""

    def __init__(self, url: str, seen: list[Asked]) -> None:
        self.url, self.seen = url, seen

    def sent(self, operation: dict[str, Any], args: dict[str, Any], path: str = "/x", version: str = "3.1.0") -> Any:
        """The request of a call of this operation, drafted from a document; None if the call is refused unsent."""
        self.seen.clear()
        raw = document({path: {"post": {"operationId": "send", "responses": OK, **operation}}}, version=version)
        adapter = adapter_of(
            json.loads(json.dumps(draft_openapi("shop", raw, server=self.url, internal=True).to_json()))
        )
        context = CallContext("tenant", "run", "tool", "ik_1", 0, 5_000, egress=adapter.describe().egress)
        reply = asyncio.run(adapter.call("send", args, context))
        if reply.error is not None:
            assert reply.error.code == "unsendable_argument"
            assert not self.seen
            return None
        (asked,) = self.seen
        return asked


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    seen: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        seen.append(asked)
        return 200, b"{}", {"Content-Type": "application/json"}

    with serving(answer) as url:
        yield Server(url, seen)


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *texts_of(list(value.values()))]
    return [one if isinstance(one, str) else json.dumps(one) for one in (value if isinstance(value, list) else [value])]


def is_refused(place: str, style: str, explode: bool, value: Any) -> bool:
    """Whether the standard leaves open what a reader would make of a value in this place."""
    texts, is_many = texts_of(value), isinstance(value, list | dict)
    everything = "".join(texts)
    if place == "path":
        # An empty segment, dots alone and slashes lead to another path (RFC 3986, 5.2.4), decoded or not.
        if not texts or any(one in ("", ".", "..") or set("/\\") & set(one) for one in texts):
            return True
        # The separator of an exploded label is a character that is never encoded.
        return style == "label" and explode and is_many and "." in everything
    if place == "header":
        if not everything.isascii() or value == "":
            return True
        # Nothing in a header is encoded, so a comma in a value separates; empty elements are left out by readers.
        in_name = explode and isinstance(value, dict) and any("=" in name for name in value)
        if explode and isinstance(value, dict):
            texts = [f"{name}={one}" for name, one in value.items()]
        return in_name or (is_many and (not texts or any("," in one or not one or one != one.strip() for one in texts)))
    if place == "cookie":
        # RFC 6265 and the style `form` encode differently.
        return is_many or not everything.isascii() or bool(set(everything) & set('%&;, "\\'))
    if style == "deepObject":
        return isinstance(value, list) or (isinstance(value, dict) and any("[" in one for one in value))
    if style in ("spaceDelimited", "pipeDelimited"):
        if not is_many:
            return True
        if isinstance(value, dict) and explode:
            return bool(value)
        return not explode and {"spaceDelimited": " ", "pipeDelimited": "|"}[style] in everything
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("place", "style", "explode", "reserved", "schema", "value"), CASES)
def test_a_parameter_in_each_style_is_read_back_as_it_went_in(
    server: Server, place: str, style: str, explode: bool, reserved: bool, schema: dict[str, Any], value: Any
) -> None:
    stated = {"name": "v", "in": place, "style": style, "explode": explode, "schema": schema}
    parameter = {
        **stated,
        **({"required": True} if place == "path" else {}),
        **({"allowReserved": True} if reserved else {}),
    }
    asked = server.sent(
        {"parameters": [parameter]}, {"v": value}, "/a/{v}/z?beta" if place == "path" else "/a?beta&c=%20d"
    )
    if is_refused(place, style, explode, value):
        assert asked is None
        return
    assert asked is not None, "it was refused"
    path, _, query = asked.path.partition("?")
    if place == "path":
        before, segment, after = path.rsplit("/", 2)
        assert (before, after, query) == ("/a", "z", "beta")
        assert from_path(segment, "v", schema, style, explode) == value
    elif place == "query":
        fixed, _, own = query.partition("&c=%20d")
        assert (path, fixed) == ("/a", "beta")
        if style == "deepObject" and not isinstance(value, list | dict):
            style = "form"
        assert from_query(own.removeprefix("&"), "v", schema, style, explode) == value
    elif place == "header":
        assert from_header(asked.headers["v"], schema, explode) == value
    else:
        assert from_cookie(asked.headers["Cookie"], "v", schema) == value


def test_reserved_characters_stay_where_they_are_allowed_and_no_value_becomes_another_parameter(server: Server) -> None:
    def of(allowed: bool) -> str:
        place = {"name": "v", "in": "query", "allowReserved": allowed, "schema": TEXT}
        return str(server.sent({"parameters": [place]}, {"v": "a/b:c?d&admin=1#e+f"}).path)

    assert of(True) == "/x?v=a/b:c?d%26admin%3D1%23e%2Bf"
    assert of(False) == "/x?v=a%2Fb%3Ac%3Fd%26admin%3D1%23e%2Bf"


def body(media: str, schema: Any, encoding: Any = None) -> dict[str, Any]:
    described = {"schema": schema} | ({"encoding": encoding} if encoding else {})
    return {"requestBody": {"required": True, "content": {media: described}}}


JSONS: list[Any] = [{}, [], None, "ü\n", 5, 1.5, True, {"a": [{"b": None}], "ü": "\u2028"}]


@pytest.mark.parametrize("value", JSONS, ids=ascii)
@pytest.mark.parametrize(
    ("media", "said"),
    [
        ("application/json", "application/json"),
        ("application/vnd.api+json; charset=utf-8", "application/vnd.api+json; charset=utf-8"),
        ("application/merge-patch+json", "application/merge-patch+json"),
        ("*/*", "application/json"),
    ],
)
def test_a_body_in_json_is_read_back(server: Server, media: str, said: str, value: Any) -> None:
    asked = server.sent(body(media, {}), {"body": value})
    assert asked.headers["Content-Type"] == said
    assert json.loads(asked.body) == value


@pytest.mark.parametrize(
    ("media", "schema", "said"),
    [
        ("text/plain", TEXT, "text/plain"),
        ("application/xml", {}, "application/xml"),
        ("text/csv", {}, "text/csv"),
        ("*/*", TEXT, "text/plain"),
    ],
)
@pytest.mark.parametrize("value", ["", "a\r\nb", "ü€漢😀", RESERVED], ids=ascii)
def test_a_body_of_text_is_read_back(server: Server, media: str, schema: Any, said: str, value: str) -> None:
    asked = server.sent(body(media, schema), {"body": value})
    assert asked.headers["Content-Type"] == said
    assert asked.body.decode() == value


ALL_BYTES = bytes(range(256))


@pytest.mark.parametrize(
    ("media", "version", "schema", "said"),
    [
        ("application/octet-stream", "3.0.3", {"type": "string", "format": "binary"}, "application/octet-stream"),
        ("image/png", "3.1.0", {}, "image/png"),
        ("*/*", "3.0.3", {"type": "string", "format": "binary"}, "application/octet-stream"),
    ],
)
@pytest.mark.parametrize("value", [b"", b"a", ALL_BYTES])
def test_a_body_of_bytes_is_base64_in_the_arguments(
    server: Server, media: str, version: str, schema: Any, said: str, value: bytes
) -> None:
    asked = server.sent(body(media, schema), {"body": base64.b64encode(value).decode()}, version=version)
    assert asked.headers["Content-Type"] == said
    assert asked.body == value


@pytest.mark.parametrize("value", ["a", "YQ", "YR==", "YQ==\n", "YQ-_", "Y Q==", "=", 5, None, {"base64": "YQ=="}])
def test_what_is_no_base64_or_not_its_one_form_is_refused(server: Server, value: Any) -> None:
    assert server.sent(body("application/octet-stream", {}), {"body": value}) is None


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("encoding", "value", "fields"),
    [
        (None, {"a": "x&y=1", "b": ["1", "2,3"]}, {"a": ["x&y=1"], "b": ["1", "2,3"]}),
        (None, {"a": RESERVED, "ü": "é"}, {"a": [RESERVED], "ü": ["é"]}),
        (None, {"n": 5, "t": True, "e": ""}, {"n": ["5"], "t": ["true"], "e": [""]}),
        (None, {"o": {"B": 150, "G": [1]}}, {"o": ['{"B":150,"G":[1]}']}),
        (None, {"a": []}, {}),
        ({"b": {"explode": False}}, {"b": ["1", "2"]}, {"b": ["1,2"]}),
        ({"b": {"style": "spaceDelimited"}}, {"b": ["1", "2"]}, {"b": ["1 2"]}),
        ({"b": {"style": "pipeDelimited"}}, {"b": ["1", "2"]}, {"b": ["1|2"]}),
        ({"o": {"style": "deepObject"}}, {"o": {"R": 1}}, {"o[R]": ["1"]}),
        ({"o": {"style": "form"}}, {"o": {"R": 1, "G": "x"}}, {"R": ["1"], "G": ["x"]}),
        ({"b": {"contentType": "application/json"}}, {"b": ["1", 2]}, {"b": ['["1",2]']}),
        (None, {"a": None}, None),
        (None, {"a": [["b"]]}, None),
        (None, {"a": [{"b": 1}]}, None),
    ],
)
def test_a_form_is_read_back(server: Server, encoding: Any, value: Any, fields: Any) -> None:
    asked = server.sent(body(FORM, {"type": "object"}, encoding), {"body": value})
    if fields is None:
        assert asked is None
        return
    assert asked.headers["Content-Type"] == FORM
    assert form_of(asked.body) == fields


MULTIPART = "multipart/form-data"
UPLOAD = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "more": {"type": "array", "items": {"type": "string", "contentMediaType": "image/png"}},
        "name": TEXT,
        "count": {"type": "integer"},
        "tags": LIST,
        "about": {"type": "object"},
        "points": {"type": "array", "items": {"type": "object"}},
        "xml": TEXT,
        "said": TEXT,
    },
}
ENCODING = {"xml": {"contentType": "text/xml; charset=utf-8"}, "said": {"contentType": "application/json"}}
FILE = {"base64": base64.b64encode(ALL_BYTES).decode(), "filename": "ü a.bin"}
SENT = {
    "file": FILE,
    "more": [{"base64": "YQ=="}, {"base64": "", "filename": "b.png"}],
    "name": "a\r\n--b",
    "count": 5,
    "tags": ["x", ""],
    "about": {"k": [1]},
    "points": [{"x": 1}, {"x": 2}],
    "xml": "<a/>",
    "said": "é",
}


def test_a_multipart_form_is_read_back_part_by_part(server: Server) -> None:
    asked = server.sent(body(MULTIPART, UPLOAD, ENCODING), {"body": SENT})
    assert multipart_of(asked.headers["Content-Type"], asked.body) == [
        Part("file", "ü a.bin", "application/octet-stream", ALL_BYTES),
        Part("more", "more", "application/octet-stream", b"a"),
        Part("more", "b.png", "application/octet-stream", b""),
        Part("name", None, None, b"a\r\n--b"),
        Part("count", None, None, b"5"),
        Part("tags", None, None, b"x"),
        Part("tags", None, None, b""),
        Part("about", None, "application/json", b'{"k":[1]}'),
        Part("points", None, "application/json", b'{"x":1}'),
        Part("points", None, "application/json", b'{"x":2}'),
        Part("xml", None, "text/xml; charset=utf-8", b"<a/>"),
        Part("said", None, "application/json", '"é"'.encode()),
    ]


def test_a_web_framework_reads_the_same_form(server: Server) -> None:
    asked = server.sent(body(MULTIPART, UPLOAD, ENCODING), {"body": SENT})
    environ = EnvironBuilder(method="POST", data=asked.body, content_type=asked.headers["Content-Type"]).get_environ()
    _, fields, files = parse_form_data(environ)
    assert fields.getlist("tags") == ["x", ""]
    assert fields["name"] == "a\r\n--b"
    assert json.loads(fields["about"]) == {"k": [1]}
    kept: list[FileStorage] = [files["file"], *files.getlist("more")]
    read = [(one.filename, one.read()) for one in kept]
    for one in kept:
        one.close()
    assert read == [("ü a.bin", ALL_BYTES), ("more", b"a"), ("b.png", b"")]


def test_the_same_arguments_are_the_same_bytes_and_no_part_holds_the_boundary(server: Server) -> None:
    first, again = (server.sent(body(MULTIPART, UPLOAD), {"body": SENT}) for _ in range(2))
    assert (first.body, first.headers["Content-Type"]) == (again.body, again.headers["Content-Type"])
    boundary = first.headers["Content-Type"].partition("boundary=")[2]
    other = server.sent(body(MULTIPART, UPLOAD), {"body": {**SENT, "name": f"\r\n--{boundary}--\r\n"}})
    parts = multipart_of(other.headers["Content-Type"], other.body)
    assert [one.content for one in parts if one.name == "name"] == [f"\r\n--{boundary}--\r\n".encode()]


@pytest.mark.parametrize(
    "value", [{}, {"tags": []}, {"name": None}, {"tags": [["a"]]}, {"file": {"base64": "YQ"}}, {"file": {}}, 5]
)
def test_a_value_that_no_multipart_form_can_carry_is_refused(server: Server, value: Any) -> None:
    assert server.sent(body(MULTIPART, UPLOAD), {"body": value}) is None
