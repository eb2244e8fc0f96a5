"""F47: hostile requests are refused with a problem document, cost a bounded amount, and show nothing of the inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from contextos.errors import Integrity
from contextos.server.bodies import MAX_BODY_BYTES
from tests.http_face import OPERATOR, HttpFace, http_face

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("requests")) as made:
        yield made


def is_problem(answer: httpx.Response, status: int) -> bool:
    """Whether this is a problem document with the status, which the security headers protect."""
    document = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert document["status"] == answer.status_code, document
    assert document["type"] == f"urn:contextos:problem:{document['code']}"
    assert document.keys() <= {"type", "title", "status", "detail", "code", "errors"}
    return answer.status_code == status


BODIES: dict[str, tuple[bytes, dict[str, str], int]] = {
    "no JSON": (b"{", JSON, 400),
    "empty": (b"", JSON, 400),
    "not UTF-8": (b'{"request_id": "\xff"}', JSON, 400),
    "a name twice": (b'{"mode": "batch", "mode": "stream"}', JSON, 400),
    "not a number": (b'{"mode": NaN}', JSON, 400),
    "nested": (b'{"input": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", JSON, 400),
    "a list": (b"[]", JSON, 422),
    "an unknown field": (b'{"request_id": "req_x", "agent": {"agent_id": "agt_support"}, "admin": true}', JSON, 422),
    "a user that is a list": (b'{"request_id": "req_x", "user": []}', JSON, 422),
    "a form": (b"request_id=req_x", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "no media type": (b"{}", {}, 415),
    "too many bytes": (b'{"request_id": "' + b"a" * MAX_BODY_BYTES + b'"}', JSON, 413),
    "a key with a line": (b"{}", {**JSON, "Idempotency-Key": '"' + "a" * 500 + '"'}, 422),
}


@pytest.mark.parametrize(("body", "headers", "status"), BODIES.values(), ids=BODIES.keys())
def test_a_hostile_body_is_refused_and_stores_nothing(
    face: HttpFace, body: bytes, headers: dict[str, str], status: int
) -> None:
    before = face.call(face.app.runs.position("tenant_acme_prod"))
    assert is_problem(face.send("POST", "/v1/runs", content=body, headers=headers), status)
    assert face.call(face.app.runs.position("tenant_acme_prod")) == before


def test_a_body_without_an_end_is_read_no_further_than_the_bound(face: HttpFace) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 16
            yield b"a" * (1 << 16)

    assert is_problem(face.send("POST", "/v1/runs", content=endless(), headers=JSON), 413)
    assert sent <= MAX_BODY_BYTES + (1 << 17)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/runs/..%2f..%2fetc%2fpasswd",
        "/v1/runs/%2e%2e/%2e%2e/contextos.toml",
        "/v1/runs/run_%00",
        "/v1/runs/" + "a" * 5_000,
        "/v1/runs/%F0%9F%92%A9",
        "/v1/runs/';DROP TABLE entries;--",
        "/v1/runs/<script>alert(1)</script>",
        "/v1/runs/",
        "//v1/runs",
        "/v1//runs",
        "/V1/runs",
        "/schemas/../contextos.toml",
        "/docs",
        "/openapi.json",
    ],
)
def test_a_path_leads_nowhere_but_to_a_run(face: HttpFace, path: str) -> None:
    answer = face.send("GET", path, by=OPERATOR)
    assert is_problem(answer, 404)
    assert "script" not in answer.text
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "rule=",
        "subject=" + "a" * 600,
        "status=decided",
        "began_from=-1",
        "began_before=1e3",
        "limit=1e3",
        "limit=99999999999999999999",
        "cursor=1.ff",
        "cursor=%00",
        "state=x",
        "state=%00",
    ],
)
def test_a_parameter_that_does_not_fit_is_named(face: HttpFace, query: str) -> None:
    answer = face.send("GET", f"/v1/runs?{query}")
    assert is_problem(answer, 422)
    assert answer.json()["errors"][0]["pointer"].strip("/") == query.partition("=")[0]


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"X-One": "a" * 40_000}, "", 431),
        ({f"X-{one}": "a" * 100 for one in range(400)}, "", 431),
        ({}, "a" * 40_000, 414),
    ],
    ids=["one header", "many headers", "the address"],
)
def test_a_head_that_is_too_large_is_refused_before_its_token_is_read(
    face: HttpFace, headers: dict[str, str], query: str, status: int
) -> None:
    assert is_problem(face.anonymous("GET", "/v1/runs", headers=headers, params={"q": query}), status)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_named_as_such(face: HttpFace, method: str) -> None:
    answer = face.send(method, "/v1/health")
    assert is_problem(answer, 405)
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "allowed"), [("/v1/runs", "GET, HEAD, POST"), ("/v1/pins", "GET, HEAD, POST"), ("/logout", "POST")]
)
def test_every_method_of_an_address_is_named(face: HttpFace, path: str, allowed: str) -> None:
    assert face.send("DELETE", path).headers["allow"] == allowed


def test_script_in_a_request_is_data_in_every_answer(face: HttpFace) -> None:
    body = face.request()
    body["input"]["message"] = "<script>alert(1)</script>\x1b[31m"
    run = face.send("POST", "/v1/runs", json=body).json()["run_id"]
    for path in ("", "/record", "/timeline", "/ledgers/decision", "/why", "/spans"):
        answer = face.send("GET", f"/v1/runs/{run}{path}")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-security-policy"] == (
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    assert "\x1b" not in face.send("GET", f"/v1/runs/{run}/timeline").json()["parts"][0]["moments"][0]["text"]


def fails(error: BaseException) -> Any:
    async def list_runs(*_args: Any, **_options: Any) -> Any:
        raise error

    return list_runs


@pytest.mark.parametrize(
    "error", [RuntimeError("/etc/contextos/keys SELECT * FROM runs"), Integrity("`run_secret` entry 3 was altered")]
)
def test_a_fault_of_ours_shows_no_stack_no_path_and_no_query(
    face: HttpFace, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextos.service.runs.Runs.list", fails(error))
    answer = face.send("GET", "/v1/runs")
    assert is_problem(answer, 500)
    assert answer.json()["detail"].startswith("the request could not be answered")
    for secret in ("Traceback", "/etc", "SELECT", "run_secret", "RuntimeError"):
        assert secret not in answer.text


@pytest.mark.parametrize("name", ["Idempotency-Key", "Last-Event-ID"])
def test_a_header_of_which_one_value_counts_is_refused_twice(face: HttpFace, name: str) -> None:
    assert face.anonymous("GET", "/v1/health", headers=[(name, '"a"')]).status_code == 200
    answer = face.anonymous("GET", "/v1/health", headers=[(name, '"a"'), (name, '"b"')])
    assert is_problem(answer, 400)
    assert answer.json()["code"] == "header_twice"
