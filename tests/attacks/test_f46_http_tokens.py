"""F46: no token but one of this server opens anything, and no answer says why a token was refused."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contextos.trust.identity.claims import sign_token
from contextos.trust.identity.development import DEVELOPMENT_TYPE
from tests.http_face import OPERATOR, TENANT, HttpFace, http_face


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("tokens")) as made:
        yield made


def segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def changed(face: HttpFace, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A token of an operator that this runtime signed, with other claims; or with another header, as an attacker would:
    the public key is a secret that both sides know.
    """
    head, body, _ = face.token(OPERATOR).split(".")
    said = {**json.loads(base64.urlsafe_b64decode(body + "==")), **claims}
    if header is None:
        keys = face.app.deployment.ports.keys
        return sign_token(keys, DEVELOPMENT_TYPE, {name: one for name, one in said.items() if one is not None})
    stated = {**json.loads(base64.urlsafe_b64decode(head + "==")), **header}
    signed = f"{segment(stated)}.{segment(said)}"
    public = face.app.key_files().public_key("claim", stated["kid"])
    assert public is not None, "it signs the tokens"
    return f"{signed}.{base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), 'sha256')).rstrip(b'=').decode()}"


def now_s(face: HttpFace) -> int:
    return face.app.deployment.ports.clock.now_us() // 1_000_000


TOKENS: dict[str, Callable[[HttpFace], str]] = {
    "expired": lambda face: changed(face, iat=now_s(face) - 100, exp=now_s(face) - 1),
    "not yet issued": lambda face: changed(face, iat=now_s(face) + 1_000, exp=now_s(face) + 2_000),
    "without an end": lambda face: changed(face, exp=None),
    "for another server": lambda face: changed(face, aud="another"),
    "of another issuer": lambda face: changed(face, iss="another"),
    "of no tenant": lambda face: changed(face, tenant_id=None),
    "of a tenant that does not exist": lambda face: changed(face, tenant_id="tenant_nowhere"),
    "of a list of tenants": lambda face: changed(face, tenant_id=[TENANT]),
    "without an algorithm": lambda face: f"{changed(face, {'alg': 'none'}).rpartition('.')[0]}.",
    "with the public key as a secret": lambda face: changed(face, {"alg": "HS256"}),
    "with another signature": lambda face: f"{face.token(OPERATOR).rpartition('.')[0]}.{'A' * 86}",
    "an approval's signature": lambda face: face.signed_answer(face.waiting_run())["tokens"][0],
    "no token": lambda _face: "secret",
    "empty parts": lambda _face: "..",
    "endless": lambda _face: "a." * 10_000,
}


@pytest.mark.parametrize("make", TOKENS.values(), ids=TOKENS.keys())
def test_a_wrong_token_opens_nothing_and_learns_nothing(face: HttpFace, make: Callable[[HttpFace], str]) -> None:
    answer = face.send("GET", "/v1/runs", token=make(face))
    plain = face.send("GET", "/v1/runs", token="wrong")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="contextos", error="invalid_token"'
    assert (answer.content, answer.headers) == (plain.content, plain.headers)


def test_the_token_that_was_not_changed_opens_the_list(face: HttpFace) -> None:
    assert face.send("GET", "/v1/runs", token=changed(face)).status_code == 200


@pytest.mark.parametrize(
    "sent", [{}, {"Authorization": ""}, {"Authorization": "Basic dTpw"}, {"Authorization": "Bearer"}]
)
def test_every_route_with_a_secret_asks_for_a_token_before_anything_else(face: HttpFace, sent: dict[str, str]) -> None:
    open_to_all = {"/v1/health", "/v1/ready"}
    for path, operations in face.api.openapi()["paths"].items():
        for method in operations:
            answer = face.anonymous(method.upper(), path, headers=sent, content=b"{")
            assert answer.status_code == (200 if path in open_to_all else 401), (method, path)
            if path not in open_to_all:
                assert answer.headers["www-authenticate"] == 'Bearer realm="contextos"'


def test_two_authorization_headers_are_refused_whatever_they_say(face: HttpFace) -> None:
    right = ("Authorization", f"Bearer {face.token(OPERATOR)}")
    answer = face.call(face.client.get("/v1/runs", headers=[right, ("Authorization", "Bearer other")]))
    assert (answer.status_code, answer.json()["code"]) == (400, "header_twice")


def test_a_role_that_is_taken_away_shows_nothing_at_the_next_request(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    assert face.send("GET", f"/v1/runs/{run}", by=OPERATOR).status_code == 200
    path = face.path / "directory.json"
    listed = json.loads(path.read_text("utf-8"))
    kept = [
        {**one, "roles": ["finance_lead"]} if one["approver_id"] == OPERATOR else one
        for one in listed[TENANT]["approvers"]
    ]
    path.write_text(json.dumps({**listed, TENANT: {**listed[TENANT], "approvers": kept}}), "utf-8")
    try:
        assert face.send("GET", f"/v1/runs/{run}", by=OPERATOR).status_code == 404
    finally:
        path.write_text(json.dumps(listed), "utf-8")
