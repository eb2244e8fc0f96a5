"""Requests: each value in its own place, in the form that OpenAPI defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.openapi.calls import (
    BodyPlace,
    CredentialSource,
    ExpectedAnswer,
    FormField,
    OpenApiOperation,
    ParameterPlace,
)
from contextos.adapters.openapi.requests import build_request
from contextos.adapters.openapi.secrets import ConnectionSecrets
from contextos.adapters.outbound import OutboundRequest, destination
from contextos.errors import InvalidInput

SECRET = "s3cret-token-1"
NONE = ConnectionSecrets({}, {}, Path())
LIST, OBJECT = ["a", "b c"], {"R": 100, "G": "x,y"}


def built(args: dict[str, Any], secrets: ConnectionSecrets = NONE, path: str = "/x", **more: Any) -> OutboundRequest:
    fields: dict[str, Any] = {"method": "POST", "path": path, "answers": (ExpectedAnswer(status="200", body="json"),)}
    operation = OpenApiOperation(**fields | more)
    return build_request(
        "https://api.example/v1/", operation, args, secrets, idempotency_key="ik_1", trace={"traceparent": "00-1"}
    )


def parameter(place: Any, style: Any, explode: bool = False, name: str = "v") -> ParameterPlace:
    return ParameterPlace(argument=name, name=name, place=place, style=style, explode=explode)


@pytest.mark.parametrize(
    ("style", "explode", "value", "path"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, LIST, "a,b%20c"),
        ("simple", True, LIST, "a,b%20c"),
        ("simple", False, OBJECT, "R,100,G,x%2Cy"),
        ("simple", True, OBJECT, "R=100,G=x%2Cy"),
        ("label", False, "blue", ".blue"),
        ("label", True, LIST, ".a.b%20c"),
        ("label", True, {"R": 100}, ".R=100"),
        ("label", False, ["1.5"], ".1.5"),
        ("label", False, LIST, ".a,b%20c"),
        ("matrix", False, "blue", ";v=blue"),
        ("matrix", False, LIST, ";v=a,b%20c"),
        ("matrix", True, LIST, ";v=a;v=b%20c"),
        ("matrix", True, OBJECT, ";R=100;G=x%2Cy"),
        ("simple", False, 5, "5"),
        ("simple", False, True, "true"),
        ("simple", False, 1.5, "1.5"),
        ("simple", False, "ü?#;=&+@", "%C3%BC%3F%23%3B%3D%26%2B%40"),
        ("json", False, ["a"], "%5B%22a%22%5D"),
    ],
)
def test_a_value_in_the_path(style: Any, explode: bool, value: Any, path: str) -> None:
    request = built({"v": value}, path="/a/{v}/b", parameters=(parameter("path", style, explode),))
    assert request.url == f"https://api.example/v1/a/{path}/b"
    destination(request.url)


@pytest.mark.parametrize(
    ("style", "explode", "value", "query"),
    [
        ("form", True, "blue", "v=blue"),
        ("form", True, LIST, "v=a&v=b%20c"),
        ("form", False, LIST, "v=a,b%20c"),
        ("form", True, OBJECT, "R=100&G=x%2Cy"),
        ("form", False, OBJECT, "v=R,100,G,x%2Cy"),
        ("form", True, [], ""),
        ("form", False, [], ""),
        ("form", False, {}, ""),
        ("form", False, [""], "v="),
        ("pipeDelimited", False, {"R": 100, "G": "x"}, "v=R%7C100%7CG%7Cx"),
        ("spaceDelimited", False, ["a", "b"], "v=a%20b"),
        ("pipeDelimited", False, ["a", "b"], "v=a%7Cb"),
        ("deepObject", True, OBJECT, "v%5BR%5D=100&v%5BG%5D=x%2Cy"),
        ("json", False, {"a": [1]}, "v=%7B%22a%22%3A%5B1%5D%7D"),
        ("form", True, "&admin=true#", "v=%26admin%3Dtrue%23"),
        ("form", True, "", "v="),
    ],
)
def test_a_value_in_the_query(style: Any, explode: bool, value: Any, query: str) -> None:
    request = built({"v": value}, parameters=(parameter("query", style, explode),))
    assert request.url == "https://api.example/v1/x" + (f"?{query}" if query else "")


@pytest.mark.parametrize(
    "value",
    [
        "",
        ".",
        "..",
        "a/b",
        "/",
        "a\\b",
        "%2f",
        "%2F..",
        "%2e%2e",
        "a%00",
        "a\n",
        "%252f",
        None,
        [],
        ["a", ".."],
        ["a/b"],
        {"..": "a"},
        [["a"]],
    ],
)
@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
def test_a_value_that_could_lead_to_another_path_is_refused(style: Any, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        built({"v": value}, path="/a/{v}", parameters=(parameter("path", style),))
    assert refused.value.problems[0].pointer == "/v"


@pytest.mark.parametrize(
    ("style", "explode", "value"),
    [
        ("form", True, None),
        ("form", True, [None]),
        ("form", True, [[1]]),
        ("deepObject", True, {"a": {"b": 1}}),
        ("spaceDelimited", False, "a"),
        ("spaceDelimited", True, {"a": 1}),
        ("deepObject", True, ["a"]),
        ("deepObject", True, {"a][b": 1}),
        ("spaceDelimited", False, ["a b"]),
        ("pipeDelimited", False, ["a|b"]),
        ("form", True, {"other": 1}),
        ("form", True, {"key": 1}),
    ],
)
def test_a_value_without_an_exact_form_is_refused(style: Any, explode: bool, value: Any) -> None:
    credentials = ConnectionSecrets({"k": CredentialSource(place="query", name="key", env="K")}, {"K": SECRET}, Path())
    places = (parameter("query", style, explode), parameter("query", "form", True, "other"))
    with pytest.raises(InvalidInput):
        built({"v": value}, credentials, parameters=places, credentials=("k",))


FILTER, EXTRA = parameter("query", "deepObject", True, "filter"), parameter("query", "form", True, "extra")


@pytest.mark.parametrize(
    ("args", "places"),
    [
        ({"filter": {"x": "safe"}, "extra": {"filter[x]": "evil"}}, (FILTER, EXTRA)),
        ({"filter": {"x": "safe"}, "extra": {"filter[x]": "evil"}}, (EXTRA, FILTER)),
        ({"filter": {"x": "safe"}, "extra": {"filter[admin]": "evil"}}, (FILTER, EXTRA)),
        ({"extra": {"filter[x]": "evil"}}, (FILTER, EXTRA)),
        ({"a": {"to": "safe"}, "extra": {"to": "evil"}}, (parameter("query", "form", True, "a"), EXTRA)),
        ({"a": {"t o": "safe"}, "extra": {"t o": "evil"}}, (parameter("query", "form", True, "a"), EXTRA)),
    ],
)
def test_two_arguments_never_write_one_name_of_a_query(args: Any, places: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        built(args, parameters=places)
    assert refused.value.problems[0].code == "unsendable_argument"
    assert refused.value.problems[0].pointer in ("/filter", "/extra")


def test_a_parameter_never_repeats_a_name_of_the_fixed_query() -> None:
    with pytest.raises(InvalidInput):
        built({"beta": "false"}, path="/x?b%65ta=true", parameters=(parameter("query", "form", True, "beta"),))


def test_arguments_that_write_names_of_their_own_are_sent() -> None:
    request = built({"filter": {"x": "1"}, "extra": {"y": "2", "z[x]": "3"}}, parameters=(FILTER, EXTRA))
    assert request.url.endswith("?filter%5Bx%5D=1&y=2&z%5Bx%5D=3")


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\n", "\x00", "ü", "", " a", ["a,b"], {"a": "b,c"}, ["a", ""], [" a"]])
def test_a_value_that_no_header_can_carry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        built({"v": value}, parameters=(parameter("header", "simple"),))


@pytest.mark.parametrize("value", ["a;b", "a b", "a,b", 'a"', "a\r\n", "%41", "a&b", ["a"], None])
def test_a_value_that_no_cookie_can_carry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        built({"v": value}, parameters=(parameter("cookie", "form", True),))


def test_headers_and_cookies_carry_what_was_asked_and_nothing_else() -> None:
    places = (parameter("header", "simple", name="X-List"), parameter("cookie", "form", name="c"))
    request = built({"X-List": ["a", 1], "c": "v"}, parameters=places, idempotency_header="Idempotency-Key")
    assert request.headers == {
        "traceparent": "00-1",
        "Accept": "application/json",
        "X-List": "a,1",
        "Idempotency-Key": "ik_1",
        "Cookie": "c=v",
    }
    assert request.body is None
    assert "Idempotency-Key" not in built({}).headers


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("media", "value", "body"),
    [
        ("application/json", {"b": 1.0, "a": "ü"}, '{"a":"ü","b":1}'.encode()),
        ("application/problem+json", None, b"null"),
        ("text/plain", "ü", "ü".encode()),
        (
            FORM,
            {"a": "x&y=1", "b": ["1", "2"], "m": {"k": "v"}, "j": {"k": [1]}},
            b"a=x%26y%3D1&b=1&b=2&m%5Bk%5D=v&j=%7B%22k%22%3A%5B1%5D%7D",
        ),
    ],
)
def test_a_body_in_each_form(media: str, value: Any, body: bytes) -> None:
    fields = {"m": FormField(style="deepObject"), "j": FormField(style="json")} if media == FORM else {}
    request = built({"body": value}, body=BodyPlace(argument="body", media_type=media, fields=fields))
    assert request.body == body
    assert request.headers["Content-Type"] == media


@pytest.mark.parametrize(
    ("media", "value"), [(FORM, "a"), (FORM, {"a": [{"b": 1}]}), (FORM, {"a": None}), ("text/plain", 5)]
)
def test_a_body_without_an_exact_form_is_refused(media: str, value: Any) -> None:
    with pytest.raises(InvalidInput):
        built({"body": value}, body=BodyPlace(argument="body", media_type=media))


@pytest.mark.parametrize(
    ("source", "where"),
    [
        (CredentialSource(place="bearer", env="K"), f"Bearer {SECRET}"),
        (CredentialSource(place="header", name="X-Key", env="K"), f"'X-Key': '{SECRET}'"),
        (CredentialSource(place="query", name="key", env="K"), f"?key={SECRET}"),
        (CredentialSource(place="cookie", name="sid", env="K"), f"sid={SECRET}"),
    ],
)
def test_a_credential_is_in_its_place_and_in_no_representation(source: CredentialSource, where: str) -> None:
    request = built({}, ConnectionSecrets({"k": source}, {"K": SECRET}, Path()), credentials=("k",))
    assert where in f"{request.url} {request.headers}"
    assert SECRET not in repr(request)
    assert SECRET not in f"{built({}, ConnectionSecrets({'k': source}, {'K': SECRET}, Path())).url}"


def test_the_fixed_query_of_a_path_stays() -> None:
    assert built({"v": "a"}, path="/x?beta=true", parameters=(parameter("query", "form"),)).url.endswith(
        "/x?beta=true&v=a"
    )


def test_no_member_of_an_object_repeats_a_name_of_the_fixed_query() -> None:
    with pytest.raises(InvalidInput):
        built({"v": {"beta": "false"}}, path="/x?b%65ta=true", parameters=(parameter("query", "form", True),))


def test_a_fixed_query_is_sent_as_it_is_written() -> None:
    for query in ("beta", "beta=", "beta&a=%20b", "a=b=c"):
        assert built({}, path=f"/x?{query}").url.endswith(f"/x?{query}")


def test_reserved_characters_stay_and_no_value_leaves_its_place() -> None:
    place = parameter("query", "form").model_copy(update={"allow_reserved": True})
    assert built({"v": "a/b:c?d"}, parameters=(place,)).url.endswith("/x?v=a/b:c?d")
    assert built({"v": "a&b=c#d+%26 "}, parameters=(place,)).url.endswith("/x?v=a%26b%3Dc%23d%2B%2526%20")
    assert built({"v": ["a,b", "c"]}, parameters=(place,)).url.endswith("/x?v=a%2Cb,c")
    assert built({"v": "x;admin=1"}, parameters=(place,)).url.endswith("/x?v=x%3Badmin%3D1")


@pytest.mark.parametrize("value", [{"a": {"b": {}}}, {"a": {"b": 1}, "b": 2}])
def test_an_object_whose_members_are_fields_has_no_other_form(value: Any) -> None:
    media = "application/x-www-form-urlencoded"
    body = BodyPlace(argument="body", media_type=media, fields={"a": FormField(style="form")})
    with pytest.raises(InvalidInput):
        built({"body": value}, body=body)


@pytest.mark.parametrize("charset", ["us-ascii", '"US-ASCII"'])
@pytest.mark.parametrize(
    ("media", "field", "plain", "other"),
    [
        ("text/plain", None, "a", "ü"),
        ("application/json", None, {"a": "b"}, {"a": "ü"}),
        (FORM, None, {"a": "b&c"}, {"a": "ü"}),
        ("application/octet-stream", None, "YQ==", "w7w="),
        ("multipart/form-data", {}, {"f": "a"}, {"f": "ü"}),
        ("multipart/form-data", {"is_file": True}, {"f": {"base64": "YQ=="}}, {"f": {"base64": "w7w="}}),
    ],
)
def test_what_is_labelled_as_ascii_is_ascii(charset: str, media: str, field: Any, plain: Any, other: Any) -> None:
    labelled = f"text/plain; charset={charset}"
    fields = {} if field is None else {"f": FormField(media_type=labelled, **field)}
    body = BodyPlace(argument="body", media_type=media if fields else f"{media}; charset={charset}", fields=fields)
    request = built({"body": plain}, body=body)
    assert charset in f"{request.headers} {request.body!r}"
    with pytest.raises(InvalidInput) as refused:
        built({"body": other}, body=body)
    assert refused.value.problems[0].pointer == "/body"


@pytest.mark.parametrize("argument", ["body", None])
@pytest.mark.parametrize(
    "value",
    [
        {"filter": {"x": "safe"}, "extra": {"filter[x]": "evil"}},
        {"extra": {"filter[x]": "evil"}, "filter": {"x": "safe"}},
        {"extra": {"filter[admin]": "evil"}},
        {"filter[admin]": "evil"},
        {"more": {"to": "safe"}, "extra": {"to": "evil"}},
        {"extra": {"to": "evil"}, "to": "safe"},
    ],
)
def test_two_fields_never_write_one_name_of_a_form(argument: str | None, value: Any) -> None:
    styles: Any = {"filter": "deepObject", "extra": "form", "more": "form"}
    fields = {name: FormField(style=style) for name, style in styles.items()}
    body = BodyPlace(argument=argument, media_type="application/x-www-form-urlencoded", fields=fields)
    with pytest.raises(InvalidInput) as refused:
        built({"body": value} if argument else value, body=body)
    names = ("body",) if argument else tuple(value)
    assert refused.value.problems[0].pointer in {f"/{name}" for name in names}


def test_an_object_in_a_form_of_which_nothing_is_said_is_json() -> None:
    """H26."""
    body = BodyPlace(argument="body", media_type="application/x-www-form-urlencoded")
    assert built({"body": {"o": {"B": 150, "G": 200}, "p": "a"}}, body=body).body == (
        b"o=%7B%22B%22%3A150%2C%22G%22%3A200%7D&p=a"
    )


@pytest.mark.parametrize(
    "name",
    ['a"b', "a\\b", "a\r\nX-Evil: 1", "a\n", "a\r", "a%22; x=b", "%0d%0a", "_charset_", "_CHARSET_", "", "\u2028"],
)
def test_the_name_of_a_field_never_leaves_its_place_in_a_part(name: str) -> None:
    body = BodyPlace(argument="body", media_type="multipart/form-data")
    with pytest.raises(InvalidInput) as refused:
        built({"body": {"a": "b", name: "c"}}, body=body)
    assert refused.value.problems[0].pointer == "/body"
    assert built({"body": {"a[b]": "b", "d/ü'": "c"}}, body=body).body is not None
