"""A server that stops is not ready, and still lives."""

from __future__ import annotations

from tests.http_face import HttpFace


def test_a_server_is_ready_until_it_stops(face: HttpFace) -> None:
    assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
    face.api.state.draining.set()
    try:
        stopping = face.anonymous("GET", "/v1/ready")
        assert (stopping.status_code, stopping.json()["code"], stopping.headers["retry-after"]) == (
            503,
            "stopping",
            "1",
        )
        assert face.anonymous("GET", "/v1/health").json() == {"status": "live"}
    finally:
        face.api.state.draining.clear()
