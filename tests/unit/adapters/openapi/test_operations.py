"""What operations mean, and which are refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.openapi.calls import CredentialSource
from contextos.adapters.openapi.document import OpenApiDocument
from contextos.adapters.openapi.operations import Operations, ReadOperation, RefusedOperation
from tests.openapi_documents import OK, accepts, body_of, document, post, read_one, usable

TEXT = {"type": "string"}


def get(path: str = "/get", **more: Any) -> dict[str, Any]:
    return {path: {"get": {"operationId": "get", "responses": OK, **more}}}


def test_each_parameter_is_an_argument_and_the_body_is_one() -> None:
    item = {
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": TEXT},
            {"name": "page", "in": "query", "schema": TEXT},
        ],
        "put": {
            "operationId": "put",
            "summary": "Puts.",
            "parameters": [
                {"name": "page", "in": "query", "required": True, "schema": {"type": "integer"}},
                {"name": "id", "in": "header", "schema": TEXT},
                {"name": "Accept", "in": "header", "schema": TEXT},
                {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
            ],
            "requestBody": body_of(TEXT, required=False),
            "responses": OK,
        },
    }
    one = usable(document({"/x/{id}": item}))
    assert [(place.argument, place.name, place.place, place.style, place.explode) for place in one.call.parameters] == [
        ("path_id", "id", "path", "simple", False),
        ("page", "page", "query", "form", True),
        ("header_id", "id", "header", "simple", False),
        ("filter", "filter", "query", "json", False),
    ]
    assert one.call.body is not None
    schema = one.arguments.schema
    assert set(schema["required"]) == {"path_id", "page"}
    assert accepts(schema, {"path_id": "a", "page": 1, "body": "text"})
    assert not accepts(schema, {"path_id": "a", "page": "1"})
    assert not accepts(schema, {"path_id": "a", "page": 1, "accept": "x"})
    assert one.description == "Puts."


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        (get("/x/{id}"), "names in its path"),
        (get(parameters=[{"name": "id", "in": "path", "schema": TEXT}]), "names in its path"),
        (get("/x/{id}/{id}", parameters=[{"name": "id", "in": "path", "schema": TEXT}]), "names in its path"),
        (get("/x/../admin"), "plain path"),
        (get("//evil.example/\\x"), "plain path"),
        (get(parameters=[{"name": "a", "in": "body", "schema": TEXT}]), "not supported"),
        (get(parameters=[{"name": "a", "in": "query", "style": "matrix", "schema": TEXT}]), "does not exist"),
        (get(parameters=[{"name": "a", "in": "query", "content": {"text/xml": {}}}]), "written as"),
        (get(parameters=5), "not a list"),
        (get(requestBody=body_of(TEXT)), "requires a body"),
        (get(servers=[{"url": "https://other.example"}]), "draft it with that `--server`"),
        (get(responses={}), "no answer of success"),
        (get(responses={"404": {"description": "none"}}), "no answer of success"),
        (get(responses={"302": {"description": "moved"}}), "answers with 302, and no redirect is followed"),
        (get(responses={"200": {"content": {"text/event-stream": {}}}}), "text/event-stream"),
        (get(responses={"200": {"$ref": "#/nothing"}}), "leads to nothing"),
        (get(responses={"200": 5}), "object is missing"),
        (get(security=[{"tls": []}]), "not supported"),
        (get(security=[{"unknown": []}]), "`unknown` is described nowhere; name a token with `--bearer-env`"),
        (get(security={}), "not a list"),
        (get(parameters=[{"name": f"p{n}", "in": "query"} for n in range(101)]), "more than 100"),
    ],
)
def test_an_operation_that_cannot_be_used_says_why(paths: Any, says: str) -> None:
    one = read_one(document(paths, security={"tls": {"type": "mutualTLS"}}))
    assert isinstance(one, RefusedOperation)
    assert says in one.reason


@pytest.mark.parametrize("media", ["multipart/mixed", "text/event-stream", "image/*", "*"])
def test_a_body_of_another_kind_is_refused(media: str) -> None:
    paths = {"/send": {"post": {"requestBody": {"content": {media: {"schema": TEXT}}}, "responses": OK}}}
    one = read_one(document(paths))
    assert isinstance(one, RefusedOperation)
    assert media in one.reason
    assert one.name == "post /send"


def test_json_goes_before_a_form_and_a_form_before_a_text() -> None:
    def media_of(*medias: str) -> str:
        body = {"content": {media: {"schema": TEXT} for media in medias}}
        one = usable(document({"/send": {"post": {"requestBody": body, "responses": OK}}}))
        assert one.call.body is not None
        return one.call.body.media_type

    form, json = "application/x-www-form-urlencoded", "application/vnd.api+json; charset=utf-8"
    assert media_of("text/plain", form, json) == json
    assert media_of("text/plain", form) == form
    assert media_of("text/plain") == "text/plain"


def test_a_range_of_applications_is_json() -> None:
    body = {"content": {"application/*": {"schema": {"type": "object", "properties": {"a": TEXT}}}}}
    answer = {"200": {"description": "", "content": {"application/*": {"schema": {"type": "integer"}}}}}
    one = usable(document({"/send": {"post": {"requestBody": body, "responses": answer}}}))
    assert one.call.body is not None
    assert one.call.body.media_type == "application/json"
    assert [answer.body for answer in one.call.answers] == ["json"]


def test_each_status_has_its_own_body() -> None:
    responses = {
        "200": {"content": {"application/json": {"schema": {"type": "integer"}}}},
        "202": {"content": {"text/plain": {}}},
        "204": {"description": "nothing"},
        "404": {"description": "no"},
        "default": {"description": "error"},
    }
    one = usable(document(get(responses=responses)))
    assert [(answer.status, answer.body) for answer in one.call.answers] == [
        ("200", "json"),
        ("202", "text"),
        ("204", "none"),
    ]
    for value in ({"status": 200, "body": 1}, {"status": 202, "body": "x"}, {"status": 204}):
        assert accepts(one.output.schema, value)
    for value in ({"status": 200, "body": "x"}, {"status": 202, "body": 1}, {"status": 404}, {"status": 200}):
        assert not accepts(one.output.schema, value)


@pytest.mark.parametrize("status", ["2XX", "2xx", "default"])
def test_a_range_of_statuses_is_one_of_success(status: str) -> None:
    one = usable(document(get(responses={status: OK["200"]})))
    assert accepts(one.output.schema, {"status": 299, "body": {}})
    assert not accepts(one.output.schema, {"status": 300, "body": {}})


SCHEMES = {
    "token": {"type": "http", "scheme": "Bearer"},
    "login": {"type": "http", "scheme": "basic"},
    "X-Key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "oauth": {"type": "oauth2", "flows": {}},
    "tls": {"type": "mutualTLS"},
}


@pytest.mark.parametrize(
    ("security", "credentials"),
    [
        ([], {}),
        ([{}], {}),
        ([{}, {"token": []}], {"token": CredentialSource(place="bearer", env="TOKEN")}),
        ([{"tls": []}, {"login": []}], {"login": CredentialSource(place="basic", env="LOGIN")}),
        (
            [{"X-Key": [], "oauth": ["read"]}],
            {
                "X-Key": CredentialSource(place="header", name="X-Key", env="X_KEY"),
                "oauth": CredentialSource(place="bearer", env="OAUTH"),
            },
        ),
    ],
)
def test_security_schemes_are_credentials(security: Any, credentials: Any) -> None:
    one = usable(document(get(security=security), security=SCHEMES))
    assert one.credentials == credentials
    assert one.call.credentials == tuple(credentials)


@pytest.mark.parametrize("place", ["query", "cookie"])
def test_an_operation_that_takes_its_own_credential_as_an_argument_is_refused(place: str) -> None:
    schemes = {"key": {"type": "apiKey", "in": place, "name": "api_key"}}
    taken = [{"name": "api_key", "in": place, "schema": {"type": "string", "maxLength": 9}}]
    raw = document(get(security=[{"key": []}], parameters=taken), security=schemes)
    [refused] = Operations(OpenApiDocument(raw)).read()
    assert isinstance(refused, RefusedOperation)
    assert "its own credential" in refused.reason


def test_the_security_of_the_document_counts_for_operations_that_say_nothing() -> None:
    raw = document(get(), security=SCHEMES)[:-1] + b', "security": [{"token": []}]}'
    assert usable(raw).call.credentials == ("token",)


def test_only_the_operations_that_are_asked_for_are_read() -> None:
    raw = document(post(TEXT) | get())
    assert [one.name for one in Operations(OpenApiDocument(raw)).read(frozenset({"get"}))] == ["get"]


@pytest.mark.parametrize(
    "paths", [{"/x": 5}, {"/x": {"get": 5}}, {"/x": {"$ref": "#/paths/~1x"}}, {"/x": {"trace": {}}}]
)
def test_a_path_without_operations_has_none(paths: Any) -> None:
    assert list(Operations(OpenApiDocument(document(paths))).read()) == []


def test_an_operation_at_a_server_of_its_own_is_used_with_that_server() -> None:
    own = get("/own", servers=[{"url": "https://up.example/"}])["/own"]
    paths = {"/own": own, "/below": {**get("/b")["/b"], "servers": [{"url": "/v2"}]}, **get("/x")}
    for server, usable_at in (("https://up.example", "/own"), ("https://api.example/v2", "/below")):
        read = Operations(OpenApiDocument(document(paths)), server).read()
        assert {one.call.path for one in read if isinstance(one, ReadOperation)} == {usable_at, "/x"}


def test_what_follows_a_hash_in_a_path_is_not_sent_and_a_note_says_so() -> None:
    one = usable(document(get("/x#X-Target=Get")))
    assert one.call.path == "/x"
    assert one.notes == ("what follows `#` in its path is not sent",)


def test_a_token_that_a_person_named_takes_the_place_of_schemes_that_are_missing() -> None:
    raw = document(get(security=[{"unknown": []}]))
    [one] = Operations(OpenApiDocument(raw), has_token=True).read()
    assert isinstance(one, ReadOperation)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "object"}, "json"),
        ({}, "json"),
        ({"type": "string"}, "text"),
        ({"type": "string", "format": "binary"}, "base64"),
    ],
)
def test_an_answer_of_any_media_type_is_read_as_its_schema(schema: Any, kind: str) -> None:
    """H27."""
    one = usable(document(get(responses={"200": {"content": {"*/*": {"schema": schema}}}})))
    assert [answer.body for answer in one.call.answers] == [kind]


def test_a_property_that_is_required_and_not_described_can_be_anything() -> None:
    """H27."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}
    made = usable(document({"/s": {"post": {"requestBody": body_of(schema), "responses": OK}}})).arguments.schema
    assert accepts(made, {"body": {"a": "x", "b": [1]}})
    assert not accepts(made, {"body": {"a": "x"}})
    assert not accepts(made, {"body": {"a": "x", "b": 1, "c": 1}})


def test_reserved_characters_stay_where_the_document_allows_them() -> None:
    one = usable(document(get(parameters=[{"name": "a", "in": "query", "allowReserved": True, "schema": TEXT}])))
    assert one.call.parameters[0].allow_reserved


@pytest.mark.parametrize(
    ("medias", "kind"),
    [
        (("image/png",), "base64"),
        (("application/zip", "text/event-stream"), "base64"),
        (("image/*",), "base64"),
        (("application/x-jsonl",), "text"),
        (("application/atom+xml", "image/png"), "text"),
        (("text/html", "application/problem+json"), "json"),
    ],
)
def test_an_answer_is_read_in_the_first_way_that_there_is(medias: tuple[str, ...], kind: str) -> None:
    one = usable(document(get(responses={"200": {"content": {media: {} for media in medias}}})))
    assert [answer.body for answer in one.call.answers] == [kind]
    assert accepts(one.output.schema, {"status": 200, "body": "YQ=="})
