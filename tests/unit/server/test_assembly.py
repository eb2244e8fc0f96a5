"""The security headers are on every answer, HEAD is answered as GET, and no route needs a thread."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import pytest

from contextos.server.assembly import routed_api
from contextos.server.problems import SECURE_HEADERS
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
    assert face.api.state.streams._taken_by_tenant.total() == 0


@pytest.mark.parametrize("path", ["/v1/caller", "/v1/runs", "/v1/approvals", "/v1/packs", "/v1/dead-letters"])
def test_what_a_route_depends_on_is_found_without_a_thread(
    face: HttpFace, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def used(work: Any, *_named: Any, **_more: Any) -> Any:
        pytest.fail(f"{work} runs in a thread, which delays each request")

    monkeypatch.setattr(anyio.to_thread, "run_sync", used)
    assert face.send("GET", path).status_code in (200, 403)


def test_a_request_is_answered_without_a_thread_of_the_framework(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []

    async def used(work: Any, *named: Any, **_more: Any) -> Any:
        handed.append(work)
        return work(*named)

    monkeypatch.setattr(anyio.to_thread, "run_sync", used)
    assert face.send("POST", "/v1/runs", json=face.request()).status_code == 201
    assert not handed
