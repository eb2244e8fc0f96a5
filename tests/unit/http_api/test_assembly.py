"""The security headers are on every answer, and the framework's own pages are not served."""

from __future__ import annotations

import pytest

from contextos.http_api.problems import SECURE_HEADERS
from tests.http_face import HttpFace


@pytest.mark.parametrize("path", ["/v1/health", "/v1/runs", "/nowhere", "/v1/openapi.json", "/docs", "/redoc"])
def test_every_answer_has_the_security_headers(face: HttpFace, path: str) -> None:
    answer = face.anonymous("GET", path)
    assert {name: answer.headers[name] for name in SECURE_HEADERS} == dict(SECURE_HEADERS)
    assert (answer.status_code == 404) is (path in ("/nowhere", "/docs", "/redoc"))
