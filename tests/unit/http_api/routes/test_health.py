"""A server that stops, or whose store does not answer, is not ready, and still lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contextos.http_api.routes import health
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
        assert stopping.headers["connection"] == "close"
        assert face.anonymous("GET", "/v1/health").json() == {"status": "live"}
    finally:
        face.api.state.draining.clear()


def test_a_store_that_hangs_makes_a_server_unready_and_the_answer_does_not_hang(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging:
        async def due(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, str]]:
            await asyncio.Event().wait()
            yield "", ""

    monkeypatch.setattr(health, "MAX_READY_S", 0.01)
    monkeypatch.setattr(face.app, "stores", Hanging())
    unready = face.anonymous("GET", "/v1/ready")
    assert (unready.status_code, unready.headers["content-type"]) == (503, "application/problem+json")
    assert int(unready.headers["retry-after"]) >= 1
