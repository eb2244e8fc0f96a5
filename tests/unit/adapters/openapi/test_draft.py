"""Drafts: as strict as possible, and nothing is lowered that no person stated."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.action.registry import Registry
from contextos.adapters.openapi.draft import draft_openapi
from contextos.errors import InvalidInput
from tests.openapi_documents import OK, document, post

PATHS: dict[str, Any] = {
    "/orders": {"get": {"operationId": "orders/list", "summary": "Lists\u200b orders.", "responses": OK}},
    "/upload": {
        "post": {"operationId": "upload", "requestBody": {"content": {"multipart/mixed": {}}}, "responses": OK}
    },
} | post({"type": "object"})


def test_every_operation_is_an_irreversible_write_unless_a_person_states_that_it_reads() -> None:
    strict = draft_openapi("adp_shop", document(PATHS))
    assert {one.kind for one in strict.definition.capabilities} == {"write"}
    assert {one.risk_level for one in strict.definition.capabilities} == {"write_irreversible"}
    assert {one.approval_mode for one in strict.definition.capabilities} == {"destructive"}
    assert {one.idempotency.strategy for one in strict.definition.capabilities} == {"none"}
    stated = draft_openapi("adp_shop", document(PATHS), reads=["orders/list"])
    modes = {one.name: (one.kind, one.approval_mode) for one in stated.definition.capabilities}
    assert modes == {"orders_list": ("read", "network"), "send": ("write", "destructive")}


def test_a_draft_names_its_endpoint_and_what_was_left_out() -> None:
    draft = draft_openapi("adp_shop", document(PATHS))
    assert draft.definition.egress == ("api.example:443",)
    assert draft.definition.external
    assert draft.definition.type == "openapi"
    assert [(one.name, "multipart" in one.reason) for one in draft.refused] == [("upload", True)]
    assert draft.definition.capabilities[0].description == "Lists orders."
    Registry().register((draft.definition,))


def test_only_what_is_asked_for_is_drafted() -> None:
    draft = draft_openapi("adp_shop", document(PATHS), only=["send"])
    assert [one.name for one in draft.definition.capabilities] == ["send"]


def test_a_token_can_be_stated_where_the_document_names_no_security() -> None:
    draft = draft_openapi("adp_shop", document(PATHS), bearer_env="SHOP_TOKEN")
    assert {one.credentials for one in draft.operations.values()} == {("bearer",)}
    assert draft.connection.credentials["bearer"].env == "SHOP_TOKEN"


def test_a_document_does_not_choose_which_variable_is_sent_to_its_server() -> None:
    schemes = {"aws_secret_access_key": {"type": "apiKey", "in": "header", "name": "X-Weather"}}
    paths = {"/w": {"get": {"operationId": "w", "responses": OK, "security": [{"aws_secret_access_key": []}]}}}
    draft = draft_openapi("weather", document(paths, security=schemes))
    assert [one.env for one in draft.connection.credentials.values()] == ["WEATHER_AWS_SECRET_ACCESS_KEY"]


def test_names_that_become_the_same_stay_apart() -> None:
    paths = {
        f"/{n}": {"get": {"operationId": name, "responses": OK}} for n, name in enumerate(["a/b", "a-b", "x" * 90])
    }
    names = [one.name for one in draft_openapi("adp_shop", document(paths)).definition.capabilities]
    assert names[0].startswith("a_b_")
    assert names[1].startswith("a_b_")
    assert len(set(names)) == 3
    assert all(len(name) <= 64 for name in names)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"only": ["nothing"]}, "unknown_operation"),
        ({"reads": ["nothing"]}, "unknown_operation"),
        ({"reads": ["send"]}, "no_read"),
        ({"only": ["upload"]}, "no_operations"),
        ({"server": "http://shop.internal:8080"}, "not_https"),
        ({"server": "https://user:pw@shop.example"}, "bad_url"),
        ({"server": "https://shop.example/?a=b"}, "bad_server"),
        ({"internal": True}, "no_server"),
    ],
)
def test_what_cannot_be_drafted_is_refused(given: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        draft_openapi("adp_shop", document(PATHS), **given)
    assert refused.value.problems[0].code == code


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "a b"}, "/adapter_id"),
        ({"bearer_env": "a b"}, "/credentials/bearer/env"),
        ({"only": ["send"], "reads": ["orders/list"]}, "`orders/list` is left out of the draft"),
        ({"only": ["send"], "reads": ["orders/list"]}, "`--only` names others"),
        ({"reads": ["upload"]}, "`multipart/mixed`"),
    ],
)
def test_a_statement_about_nothing_in_the_draft_is_refused_with_its_reason(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        draft_openapi(**{"name": "adp_shop", "raw": document(PATHS), **given})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "server", ["/v1", "http://127.0.0.1:8080", "https://{region}.example", "https://127.0.0.1.", "HTTPS://x"]
)
def test_a_document_cannot_name_a_server_that_only_a_person_can(server: str) -> None:
    with pytest.raises(InvalidInput):
        draft_openapi("adp_shop", document(PATHS, server=server))


def test_a_draft_names_the_header_of_a_key() -> None:
    """A person decides whether the server honours it. Until then it is an argument like any other."""
    key = {"name": "X-Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string"}}
    draft = draft_openapi("adp_shop", document(post({"type": "object"}, parameters=[key])))
    assert draft.notes["send"][0] == "a model chooses `X-Idempotency-Key`, unless it is made the `idempotency_header`"
    assert (draft.definition.capabilities[0].idempotency.strategy, draft.operations["send"].idempotency_header) == (
        "none",
        None,
    )


def test_an_operation_with_a_value_that_nobody_sees_costs_the_others_nothing() -> None:
    hiding = [{"name": "q", "in": "query", "schema": {"enum": ["x\u200b"]}}]
    paths = {
        "/odd": {"get": {"operationId": "odd", "responses": OK, "parameters": hiding}},
        "/good": {"get": {"operationId": "good", "responses": OK}},
        "/twice?q=safe": {"get": {"operationId": "twice", "responses": OK, "parameters": hiding}},
    }
    draft = draft_openapi("adp_shop", document(paths))
    assert [*draft.operations] == ["good"]
    assert {one.name: one.reason.split(",")[0] for one in draft.refused} == {
        "odd": "a text has the character `\\u200b`",
        "twice": "its path has `q` in its query",
    }


def test_two_operations_of_one_name_are_refused() -> None:
    paths = {f"/{n}": {"get": {"operationId": "same" if n else "other", "responses": OK}} for n in range(3)}
    made = draft_openapi("adp_shop", document(paths))
    assert [*made.operations] == ["other"]
    assert {(one.name, one.reason) for one in made.refused} == {
        ("same", "another operation of the document has its name")
    }


def test_a_path_at_a_server_of_its_own_is_drafted_where_that_server_is_named() -> None:
    """H25."""
    up = {"servers": [{"url": "https://up.example"}], "post": {"operationId": "up", "responses": OK}}
    raw = document({"/up": up, **post({"type": "object"})})
    draft = draft_openapi("adp_up", raw, server="https://up.example", only=["up"])
    assert [one.name for one in draft.definition.capabilities] == ["up"]
    assert draft.connection.server == "https://up.example"
    assert draft.definition.egress == ("up.example:443",)
    with pytest.raises(InvalidInput, match=r"https://up\.example`; draft it with that `--server`"):
        draft_openapi("adp_up", raw, only=["up"])
