"""The client against a real server of the API: requests, runs, events, approvals and stops, with and without a loop."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.client import connect, sending
from contextos.client import connection as connection_module
from contextos.contracts.encoding.codec import MAX_DEPTH
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.errors import ApprovalRefused, ConflictingRequest, InvalidInput, NotFound, RequestRefused
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace
from tests.loopback import Asked, serving
from tests.raw_http import raw_server

FORBIDDEN = ("fastapi", "starlette", "uvicorn", "sqlite3", "sqlalchemy", "asyncpg")
LAYERS = {"adapters", "client", "contracts", "errors", "service"}
"""What the client imports of this package: of `adapters` the thread of a loop, of `service` pages and views."""


def signer(face: HttpFace, person: str) -> Any:
    key = bytes.fromhex((face.path / "keys" / f"{person}.key").read_text("utf-8"))
    return Ed25519PrivateKey.from_private_bytes(key).sign


@pytest.fixture
def lead(face: HttpFace, url: str) -> Iterator[Any]:
    with connect(url, face.token(LEAD)) as client:
        yield client


@pytest.fixture
def requester(face: HttpFace, url: str) -> Iterator[Any]:
    with connect(url, face.token(REQUESTER)) as client:
        yield client


def test_the_client_imports_nothing_of_the_server() -> None:
    code = "import sys, contextos.client; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(FORBIDDEN).intersection(found)
    assert {one.split(".")[1] for one in found if one.startswith("contextos.")} == LAYERS
    assert not [
        one for one in found if re.match(r"contextos\.(service\.(?!pages|views)|adapters\.(?!loop_thread))", one)
    ]


def test_a_request_that_waits_is_approved_and_its_record_is_read(face: HttpFace, lead: Any, requester: Any) -> None:
    run = face.waiting_run()
    assert requester.run(run).waits_for == "approval"
    question = next(one for one in lead.questions(role="finance_lead").items if one.run_id == run)
    assert question == lead.question(run)
    said = lead.statement(question, "approved", "checked the order")
    assert "checked the order" in said.text
    receipt = lead.answer(question, "approved", "checked the order", sign=signer(face, LEAD))
    assert (receipt.run_id, receipt.binding_digest) == (run, question.binding_digest)
    assert requester.wait(run, timeout_s=60).status == "DECIDED"
    record = requester.record(run)
    assert (record.outcome, record.approvals[0].approver) == ("approved", LEAD)
    assert record.to_json() == face.send("GET", f"/v1/runs/{run}/record").json(), "nothing of it is left out"
    assert requester.timeline(run).fault is None
    assert {one.ledger for one in requester.ledger(run, "effect").items} == {"effect"}
    assert requester.spans(run).trace_id == record.trace_id
    assert len(requester.spans(run).spans) > 5
    with pytest.raises(ApprovalRefused) as refused:
        lead.answer(question, "approved", sign=signer(face, LEAD))
    assert refused.value.reason in ("not_waiting", "already_answered")


def test_the_same_request_is_the_same_run_and_another_under_its_id_is_refused(face: HttpFace, requester: Any) -> None:
    body = face.request()
    first, again = requester.invoke(body), requester.invoke(InvokeRequest.model_validate(body))
    assert (first.run_id, first.record) == (again.run_id, again.record)
    assert first.ended
    with pytest.raises(ConflictingRequest):
        requester.invoke({**body, "mode": "long_running"})
    assert first.run_id in [one.run_id for one in requester.runs(limit=100).items]
    assert requester.runs(limit=1).cursor


def test_a_request_without_a_name_gets_one(face: HttpFace, requester: Any) -> None:
    body = face.request()
    del body["request_id"]
    assert requester.invoke(body).run_id != requester.invoke(body).run_id


def test_a_run_is_stopped_by_an_operator(face: HttpFace, requester: Any, url: str) -> None:
    run = face.waiting_run()
    with connect(url, face.token(OPERATOR)) as operator:
        operator.cancel(run, "a mistake", sign=signer(face, OPERATOR))
    assert requester.wait(run, timeout_s=60).state == "cancelled"


def test_what_does_not_exist_and_who_is_nobody_are_typed(face: HttpFace, url: str, requester: Any) -> None:
    with pytest.raises(NotFound):
        requester.run("run_0000000000000000")
    with pytest.raises(InvalidInput, match="is not a name"):
        requester.run("../approvals")
    with connect(url, "nobody") as nobody, pytest.raises(RequestRefused) as refused:
        nobody.runs()
    assert (refused.value.status, refused.value.reason) == (401, "unauthenticated")
    with pytest.raises(RequestRefused) as refused:
        requester.questions(role="finance_lead")
    assert (refused.value.status, refused.value.reason) == (403, "not_allowed")


def test_a_token_can_be_renewed(face: HttpFace, url: str) -> None:
    given: list[str] = []

    async def renewed() -> str:
        given.append(face.token(REQUESTER))
        return given[-1]

    async def ask() -> None:
        async with connect(url, renewed) as client:
            await client.runs()
            await client.runs()

    asyncio.run(ask())
    assert len(given) == 2


def test_a_stream_that_is_followed_while_the_run_goes_on_has_every_event(face: HttpFace, lead: Any, url: str) -> None:
    run = face.waiting_run()

    async def follow() -> list[str]:
        async with connect(url, face.token(REQUESTER)) as client:
            seen = []
            async for event in client.stream(run):
                seen.append(event.id)
                if event.document.get("name") == "contextos.approval.asked":
                    question = await asyncio.to_thread(lead.question, run)
                    await asyncio.to_thread(lead.answer, question, "denied", sign=signer(face, LEAD))
            return seen

    async def recorded() -> list[str]:
        return [one.id async for one in face.app.runs.stream(TENANT, run)]

    assert asyncio.run(follow()) == face.call(recorded())


def test_a_stream_that_is_cut_after_every_event_has_no_gap_and_no_duplicate(
    face: HttpFace, requester: Any, monkeypatch
) -> None:
    run = requester.invoke(face.request()).run_id
    whole = [(one.id, one.type, one.document) for one in requester.stream(run)]
    events = face.send("GET", f"/v1/runs/{run}/events").content.removesuffix(b"\n\n").split(b"\n\n")
    monkeypatch.setattr(connection_module, "FIRST_PAUSE_S", 0)

    def cut(asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        after = asked.headers.get("Last-Event-ID", "")
        behind = [one for one, _, _ in whole].index(after) + 1 if after else 0
        if behind == len(events):
            return 204, b"", {}
        # The next event is cut in its middle: it was not read, and comes again.
        torn = events[behind + 1][: len(events[behind + 1]) // 2] if behind + 1 < len(events) else b""
        return 200, events[behind] + b"\n\n" + torn, {"Content-Type": "text/event-stream"}

    with serving(cut) as address, connect(address, "token") as client:
        assert [(one.id, one.type, one.document) for one in client.stream(run)] == whole
        assert [one.id for one in client.stream(run, after=whole[2][0])] == [one for one, _, _ in whole[3:]]


def test_a_stream_that_is_empty_again_and_again_is_opened_less_and_less_often(monkeypatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(connection_module, "sleep", sleep)
    answers = [(200, b": waiting\n\n", {"Content-Type": "text/event-stream"})] * 9
    with serving(lambda _asked: answers.pop() if answers else (204, b"", {})) as url, connect(url, "token") as client:
        assert list(client.stream("run_1")) == []
    assert waits == [0.25, 0.5, 1, 2, 4, 8, 8, 8, 8]


def test_values_that_are_as_deep_as_any_can_be_are_read() -> None:
    deep: Any = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"a": deep}
    line = {"seq": 1, "kind": "k", "key": "k", "ledger": "effect", "at_us": 1, "by": "b", "body": deep}
    line |= {"body_digest": "d", "hash": "h"}
    body = json.dumps({"run_id": "run_1", "ledger": "effect", "items": [line]}).encode()
    answer = 200, body, {"Content-Type": "application/json"}
    with serving(lambda _asked: answer) as url, connect(url, "token") as client:
        assert client.ledger("run_1", "effect").items[0].body == deep


def test_an_unknown_event_is_refused(face: HttpFace, requester: Any) -> None:
    run = requester.invoke(face.request()).run_id
    with pytest.raises(InvalidInput) as refused:
        list(requester.stream(run, after="run_1:1:0:aaaa"))
    assert refused.value.problems[0].code == "unknown_event"


def test_a_wait_ends_in_time(face: HttpFace, requester: Any) -> None:
    assert not requester.wait(face.waiting_run(), timeout_s=0.2).ended


def test_a_client_is_open_once_and_again_after_it_was_left(face: HttpFace, url: str) -> None:
    opening = connect(url + "/v1/", face.token(REQUESTER))
    with opening as client:
        assert client.runs().items is not None
        with pytest.raises(InvalidInput, match="open already"):
            opening.__enter__()
    with opening as client:
        assert client.runs().items is not None
    with pytest.raises(InvalidInput):
        client.runs()


def test_a_stream_of_a_run_that_waits_outlasts_lost_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person may take days, and servers are restarted meanwhile: each time one answers, it counts anew."""
    alive = b": alive\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    enough = 40
    lost: list[float] = []

    async def waited(seconds: float) -> None:
        lost.append(seconds)
        if len(lost) == enough:
            raise asyncio.CancelledError

    monkeypatch.setattr(sending, "sleep", waited)

    async def follow() -> None:
        async with (
            raw_server(head, b"%x\r\n%b\r\n" % (len(alive), alive)) as server,
            connect(f"http://127.0.0.1:{server.port}", "token", patience_s=1) as client,
        ):
            await anext(client.stream("run_1"))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(follow())
    assert len(lost) == enough


def test_the_limit_for_one_answer_is_none_for_a_stream(face: HttpFace, url: str) -> None:
    run = face.waiting_run()
    with connect(url, face.token(REQUESTER), timeout_s=0.5) as client:
        assert client.wait(run, timeout_s=4).waits_for == "approval"


@pytest.mark.parametrize("after", ["é", "1\r\nX: y", " ", "x" * 201])
def test_what_is_the_id_of_no_event_is_refused_and_not_sent(after: str) -> None:
    with (
        serving(lambda _asked: pytest.fail("it was sent")) as address,
        connect(address, "token") as client,
        pytest.raises(InvalidInput, match="no event"),
    ):
        list(client.stream("run_1", after=after))


@pytest.mark.parametrize(
    "limits", [{"timeout_s": 0}, {"timeout_s": float("nan")}, {"timeout_s": "5"}, {"patience_s": -1}]
)
def test_a_limit_that_is_no_time_is_refused_before_anything_is_sent(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        connect("http://127.0.0.1:1", "token", **limits)
    [problem] = refused.value.problems
    assert (problem.pointer, problem.code) == (f"/{next(iter(limits))}", "out_of_range")


def test_runs_are_searched_by_what_their_records_say(face: HttpFace, url: str) -> None:
    face.waiting_run()
    with connect(url, face.token(REQUESTER)) as client:
        assert client.runs(status="DEFERRED", began_from=0).items
        assert not client.runs(status="DEFERRED", began_before=1).items
        assert not client.runs(approver="user_nobody").items
