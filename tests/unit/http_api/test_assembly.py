"""The security headers are on every answer, the framework's own pages are not served, and HEAD is answered as GET."""

from __future__ import annotations

import pytest

from contextos.http_api.assembly import routed_api
from contextos.http_api.problems import SECURE_HEADERS
from tests.http_face import LEAD, OPERATOR, HttpFace

READ = [path for path, operations in routed_api().openapi()["paths"].items() if "get" in operations]
STREAMED = "/v1/runs/{run}/events"


@pytest.mark.parametrize("path", ["/v1/health", "/v1/runs", "/nowhere", "/v1/openapi.json", "/docs", "/redoc"])
def test_every_answer_has_the_security_headers(face: HttpFace, path: str) -> None:
    answer = face.anonymous("GET", path)
    assert {name: answer.headers[name] for name in SECURE_HEADERS} == dict(SECURE_HEADERS)
    assert (answer.status_code == 404) is (path in ("/nowhere", "/docs", "/redoc"))


@pytest.fixture(scope="module")
def run(face: HttpFace) -> str:
    """A run that waits for a person."""
    return face.waiting_run()


@pytest.mark.parametrize("path", [*(one for one in READ if one != STREAMED), "/v1/openapi.json", "/nowhere"])
@pytest.mark.parametrize("by", [OPERATOR, LEAD])
def test_head_is_answered_as_get_without_the_body(face: HttpFace, run: str, path: str, by: str) -> None:
    address = path.replace("{run}", run).replace("{ledger}", "effect")
    got, asked = (face.send(method, address, by=by) for method in ("GET", "HEAD"))
    assert asked.content == b""
    assert asked.status_code == got.status_code != 405
    # Metrics count on between two answers.
    varies = {"content-length"} if path == "/metrics" else set()
    assert {*asked.headers} == {*got.headers}
    assert {name: asked.headers[name] for name in {*got.headers} - varies} == {
        name: got.headers[name] for name in {*got.headers} - varies
    }


def test_head_needs_a_token_and_changes_nothing(face: HttpFace, run: str) -> None:
    assert face.anonymous("HEAD", "/v1/runs").status_code == 401
    for path in (f"/v1/runs/{run}/cancel", "/v1/sessions"):
        answer = face.send("HEAD", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    record = f"/v1/runs/{face.send('POST', '/v1/runs', json=face.request()).json()['run_id']}/record"
    tag = face.send("HEAD", record).headers["etag"]
    assert face.send("HEAD", record, headers={"If-None-Match": tag}).status_code == 304


def test_head_of_a_stream_is_its_headers_and_holds_no_place(face: HttpFace, run: str) -> None:
    answer = face.send("HEAD", STREAMED.replace("{run}", run))
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in answer.headers
    assert face.api.state.streams._taken.total() == 0
