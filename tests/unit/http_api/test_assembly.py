"""The security headers are on every answer, the framework's own pages are not served, and no route needs a thread."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import pytest

from contextos.http_api.problems import SECURE_HEADERS
from tests.http_face import HttpFace


@pytest.mark.parametrize("path", ["/v1/health", "/v1/runs", "/nowhere", "/v1/openapi.json", "/docs", "/redoc"])
def test_every_answer_has_the_security_headers(face: HttpFace, path: str) -> None:
    answer = face.anonymous("GET", path)
    assert {name: answer.headers[name] for name in SECURE_HEADERS} == dict(SECURE_HEADERS)
    assert (answer.status_code == 404) is (path in ("/nowhere", "/docs", "/redoc"))


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
