"""What is sent again, how often and after which wait; and what is sent once."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from contextos.client import connect, sending
from contextos.client.sending import checked_url, fitting_document
from contextos.errors import InvalidInput, LostReply, Unavailable
from contextos.service.views import RunListDocument
from tests.attacks.test_f52_client import EMPTY_PAGE, JSON, PROBLEM, QUESTION, STATED, offered, problem
from tests.loopback import Answer, Asked, serving
from tests.raw_http import raw_server

OUTCOME = {"tenant_id": "t", "run_id": "run_1", "state": "completed", "ended": True, "waits_for": None, "record": None}


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """The waits in seconds, none of which is waited."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(sending, "sleep", sleep)
    return waited


def busy(retry_after: int) -> Answer:
    return 503, problem(503, code="unavailable")[1], {**PROBLEM, "Retry-After": str(retry_after)}


def test_a_read_is_repeated_after_the_time_that_the_server_says(waits: list[float]) -> None:
    answers = [busy(7), busy(1), (200, EMPTY_PAGE, JSON)]
    with serving(lambda _asked: answers.pop(0)) as url, connect(url, "token") as client:
        assert client.runs().items == []
    assert [int(one) for one in waits] == [7, 1]


def test_the_repeats_have_an_end_and_grow(waits: list[float]) -> None:
    asked: list[Asked] = []

    def answer(one: Asked) -> Answer:
        asked.append(one)
        return 502, b"", {}

    with serving(answer) as url, connect(url, "token", patience_s=20) as client, pytest.raises(Unavailable):
        client.runs()
    # Up to a quarter of a second is added to each, so that clients do not come back together.
    planned = [0.25, 0.5, 1, 2, 4, 8]
    assert all(plan <= one < plan + 0.25 for plan, one in zip(planned, waits, strict=True))
    assert len(asked) == len(waits) + 1


def test_without_patience_a_request_is_sent_once(waits: list[float]) -> None:
    opening = serving(lambda _asked: busy(1))
    with opening as url, connect(url, "token", patience_s=0) as client, pytest.raises(Unavailable):
        client.runs()
    assert not waits


def test_a_request_is_repeated_under_one_name(waits: list[float]) -> None:
    asked: list[Asked] = []

    def answer(one: Asked) -> Answer:
        asked.append(one)
        return busy(1) if len(asked) < 3 else (201, json.dumps(OUTCOME).encode(), JSON)

    with serving(answer) as url, connect(url, "token") as client:
        assert client.invoke({"input": {}}).run_id == "run_1"
    assert len({one.headers["Idempotency-Key"] for one in asked}) == 1
    assert len({one.body for one in asked}) == 1
    assert len(asked) == 3


def test_an_answer_of_a_person_is_sent_once(waits: list[float]) -> None:
    asked: list[str] = []

    def answer(one: Asked) -> Answer:
        asked.append(one.path.rpartition("/")[2])
        return offered({**STATED, "verdict": "denied"}) if asked[-1] == "statement" else (504, b"", {})

    with serving(answer) as url, connect(url, "token") as client, pytest.raises(LostReply):
        client.answer(QUESTION, "denied", sign=lambda _signed: bytes(64))
    assert asked == ["statement", "answer"]
    assert not waits


def test_a_lost_connection_leaves_a_write_unknown_and_a_refused_one_not_done() -> None:
    async def ask(url: str) -> Any:
        async with connect(url, "token") as client:
            return await client._sender.document(RunListDocument, "POST", "/approvals/run_1/answer", body={})

    async def cut() -> Any:
        async with raw_server() as server:
            return await ask(f"http://127.0.0.1:{server.port}")

    with pytest.raises(LostReply):
        asyncio.run(cut())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable):
            asyncio.run(ask(f"http://127.0.0.1:{free.getsockname()[1]}"))


def test_a_member_that_this_version_does_not_know_is_left_out() -> None:
    newer = {"items": [], "cursor": None, "total": 7}
    assert fitting_document(RunListDocument, newer) == RunListDocument(items=[], cursor=None)
    assert fitting_document(RunListDocument, json.dumps(newer).encode()).cursor is None


def test_a_body_that_is_no_json_is_refused_before_it_is_sent() -> None:
    with serving(lambda _asked: pytest.fail("it was sent")) as url, connect(url, "token") as client:
        for body in ({"request_id": float("nan")}, {"request_id": object()}, {"request_id": 2**60}):
            with pytest.raises(InvalidInput):
                client.invoke(body)


def test_an_address_keeps_its_path_and_loses_the_version() -> None:
    assert checked_url("https://acme.example/contextos/v1/") == "https://acme.example/contextos"
    assert checked_url("http://[::1]:8765") == "http://[::1]:8765"
    assert checked_url("http://localhost:8765/v1") == "http://localhost:8765"
