"""A body that does not arrive is not waited for, and a client that goes away is no defect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from contextos.server import bodies
from tests.http_face import HttpFace

JSON = {"Content-Type": "application/json"}


def test_a_body_that_stops_is_answered_after_its_time(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_S", 0.05)

    async def stops() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    answer = face.send("POST", "/v1/runs", content=stops(), headers=JSON)
    assert (answer.status_code, answer.json()["code"], answer.headers["connection"]) == (
        408,
        "request_timeout",
        "close",
    )


def test_a_media_type_can_have_parameters(face: HttpFace) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    answer = face.send("POST", "/v1/runs", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "no_idempotency_key")
