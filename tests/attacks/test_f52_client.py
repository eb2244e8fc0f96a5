"""F52: a hostile server, and a hostile place between: the token goes nowhere else, an answer has an end, and nothing is
signed that the person did not answer.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.client import connect, connection, sending
from contextos.client.connection import API_PATIENCE_S
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.statements.question_text import signed_text
from contextos.contracts.statements.questions import approval_statement
from contextos.errors import ContextOSError, InvalidInput, Overloaded, RequestRefused, Unavailable, UnfitAnswer
from contextos.service.views import QuestionDocument
from tests.loopback import Answer, Asked, serving
from tests.raw_http import raw_server

TOKEN = "secret-token-of-a-person"
JSON = {"Content-Type": "application/json"}
PROBLEM = {"Content-Type": "application/problem+json"}
EVENTS = {"Content-Type": "text/event-stream"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n"
EMPTY_PAGE = json.dumps({"items": [], "cursor": None}).encode()


def refused(answer: Answer, method: str = "runs", *args: Any) -> ContextOSError:
    """What the client raises for this answer."""
    with serving(lambda _asked: answer) as url, connect(url, TOKEN) as client, pytest.raises(ContextOSError) as caught:
        list(getattr(client, method)(*args))
    assert TOKEN not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_the_token_stays(status: int) -> None:
    asked: list[Asked] = []

    def other(one: Asked) -> Answer:
        asked.append(one)
        return 200, EMPTY_PAGE, JSON

    with serving(other) as elsewhere:
        error = refused((status, b"", {"Location": f"{elsewhere}/v1/runs"}))
        posted = refused((status, b"", {"Location": f"{elsewhere}/v1/runs"}), "invoke", {"request_id": "r"})
    assert isinstance(error, UnfitAnswer)
    assert isinstance(posted, UnfitAnswer)
    assert not asked


def test_no_proxy_of_the_environment_gets_the_token(monkeypatch) -> None:
    proxied: list[Asked] = []

    def proxy(one: Asked) -> Answer:
        proxied.append(one)
        return 502, b"", {}

    with serving(proxy) as address, serving(lambda _asked: (200, EMPTY_PAGE, JSON)) as url:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, address)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with connect(url, TOKEN) as client:
            assert client.runs().items == []
    assert not proxied


@pytest.mark.parametrize(
    "url",
    [
        "http://contextos.acme.example",
        "http://127.0.0.1.acme.example",
        "http://0.0.0.0:8765",
        "https://user:pass@acme.example",
        "https://acme.example/?next=http://evil.example",
        "https://acme.example\\@evil.example",
        "https://acme.example/#x",
        "https://acme.example:port",
        "file:///etc/passwd",
        "ftp://127.0.0.1",
        "acme.example",
        "https://acme.example/\r\nX: y",
        "",
        None,
    ],
)
def test_an_address_that_would_give_the_token_away_is_refused(url: Any) -> None:
    with pytest.raises(InvalidInput), connect(url, TOKEN):
        raise AssertionError("it was opened")


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Other: 1", "tökén", "x" * 20_000, None, 7])
def test_a_text_that_is_no_token_is_not_sent(token: Any) -> None:
    with (
        serving(lambda _asked: pytest.fail("it was sent")) as url,
        connect(url, token) as client,
        pytest.raises(InvalidInput, match="not a bearer token"),
    ):
        client.runs()


def test_the_token_is_in_no_log_and_a_cookie_comes_back_never(caplog) -> None:
    seen: list[Asked] = []

    def answer(one: Asked) -> Answer:
        seen.append(one)
        return 200, EMPTY_PAGE, {**JSON, "Set-Cookie": "session=planted; Path=/"}

    with caplog.at_level(logging.DEBUG), serving(answer) as url, connect(url, TOKEN) as client:
        client.runs()
        client.runs()
        assert TOKEN not in repr(client)
    assert TOKEN not in caplog.text
    assert [one.headers.get("Cookie") for one in seen] == [None, None]
    assert [one.headers["Authorization"] for one in seen] == [f"Bearer {TOKEN}"] * 2


@pytest.mark.parametrize(
    "name", ["../approvals", "run/../x", ".", "..", "", "run?x=1", "run#x", "run\n", "%2e%2e", "r" * 129]
)
def test_a_name_leads_to_no_other_address(name: str) -> None:
    with serving(lambda _asked: pytest.fail("it was sent")) as url, connect(url, TOKEN) as client:
        for ask in (client.run, client.record, client.timeline, client.question):
            with pytest.raises(InvalidInput, match="is not a name"):
                ask(name)


async def against(parts: Iterator[bytes] | list[bytes], ask: Any, *, hangs: bool = False) -> ContextOSError:
    """What the client raises for an answer in parts, or one that does not end."""
    async with raw_server(parts=parts, hangs=hangs) as server:
        opening = connect(f"http://127.0.0.1:{server.port}", TOKEN, timeout_s=1, patience_s=0)
        with pytest.raises(ContextOSError) as caught:
            async with opening as client:
                await ask(client)
    return caught.value


async def follow(client: Any) -> None:
    async for _ in client.stream("run_1"):
        pass


def endless(first: bytes, part: bytes) -> Iterator[bytes]:
    yield first
    yield from repeat(part)


def test_a_body_without_an_end_is_cut_off(monkeypatch) -> None:
    monkeypatch.setattr(sending, "MAX_API_ANSWER_BYTES", 1 << 20)
    parts = endless(HEAD % b"application/json", b" " * 65_536)
    assert isinstance(asyncio.run(against(parts, lambda client: client.runs())), UnfitAnswer)


def test_an_answer_that_never_comes_ends_in_time() -> None:
    for parts in ([], [HEAD % b"application/json"], [HEAD % b"application/json", b"{"]):
        error = asyncio.run(against(parts, lambda client: client.runs(), hangs=True))
        assert isinstance(error, Unavailable), parts


def test_an_answer_that_comes_one_byte_at_a_time_ends_in_time() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            refused = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\n\r\n"
            writer.write(refused if b"/events" in head else HEAD % b"application/json")
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def ask() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, connect(url, TOKEN, timeout_s=1, patience_s=0) as client:
            for asked in (client.runs(), follow(client)):
                with pytest.raises(Unavailable):
                    await asked
        await asyncio.sleep(0.1)

    asyncio.run(ask())


def test_an_event_without_an_end_is_cut_off() -> None:
    head = HEAD % b"text/event-stream"
    for first, part in ((b"data: ", b"x" * 65_536), (b"id: 1\n", b"data: x\n" * 8_192), (b":", b"x" * 65_536)):
        error = asyncio.run(against(endless(head + first, part), follow))
        assert isinstance(error, UnfitAnswer), first


def test_a_stream_that_says_nothing_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(connection, "SILENCE_S", 0.1)
    error = asyncio.run(against([HEAD % b"text/event-stream"], follow, hangs=True))
    assert isinstance(error, Unavailable)


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"type": "RUN_STARTED"}\n\n',
        b"id: \xff\ndata: {}\n\n",
        b"id: a\x00b\ndata: {}\n\n",
        "id: é\ndata: {}\n\n".encode(),
        b"id: " + b"x" * 201 + b"\ndata: {}\n\n",
        b"id: 1\ndata: no json\n\n",
        b"id: 1\ndata: []\n\n",
        b'id: 1\ndata: {"a": 1, "a": 2}\n\n',
        b"id: 1\ndata: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_an_event_that_is_none_ends_the_stream(body: bytes) -> None:
    assert isinstance(refused((200, body, EVENTS), "stream", "run_1"), UnfitAnswer)


@pytest.mark.parametrize(
    "kind", ["text/html", "application/problem+json", "text/event-stream", "application/jsonx", ""]
)
def test_another_media_type_is_no_answer(kind: str) -> None:
    assert isinstance(refused((200, EMPTY_PAGE, {"Content-Type": kind})), UnfitAnswer)
    assert isinstance(
        refused((200, b"id: 1\ndata: {}\n\n", {"Content-Type": "text/plain"}), "stream", "r"), UnfitAnswer
    )


def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    assert isinstance(refused((200, bomb, {**JSON, "Content-Encoding": "gzip"})), UnfitAnswer)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'{"items": 7}', b'{"items": []', b'{"items": [], "items": []}', b"[" * 90_000]
)
def test_a_body_that_does_not_fit_is_no_answer(body: bytes) -> None:
    assert isinstance(refused((200, body, JSON)), UnfitAnswer)


def problem(status: int, **members: Any) -> Answer:
    stated = {"type": "urn:x", "title": "x", "status": status, "detail": "x", "code": "x", **members}
    return status, json.dumps(stated).encode(), PROBLEM


def test_the_texts_of_a_problem_are_cut_and_escaped() -> None:
    shown = "\x1b[2J\u202epaid\nerror: "
    error = refused(problem(418, detail=shown + "x" * 100_000, code="\x1b]0;"))
    assert isinstance(error, RequestRefused)
    assert str(error).isprintable()
    assert error.reason.isprintable()
    assert len(str(error)) < 1_200
    part = {"pointer": shown, "code": shown, "detail": shown + "y" * 3_000, "remedy": shown}
    many = refused(problem(422, code="invalid_input", errors=[part] * 60))
    assert isinstance(many, InvalidInput)
    assert len(many.problems) == 50
    assert all(len(one.detail) < 1_200 and str(one).isprintable() for one in many.problems)


def test_a_problem_without_an_end_is_cut_off() -> None:
    assert isinstance(refused(problem(404, code="not_found", detail="x" * 1_000_000)), UnfitAnswer)
    assert isinstance(refused((404, b"not json", PROBLEM)), UnfitAnswer)
    assert isinstance(refused((500, b"<html>" * 1_000, {"Content-Type": "text/html"})), UnfitAnswer)


def test_a_code_of_a_problem_chooses_no_other_class() -> None:
    for code in ("__class__", "invalid_settings", "store_restored", "clock_off", "replay_mismatch"):
        assert type(refused(problem(418, code=code))) is RequestRefused


def test_a_server_that_says_to_come_back_in_a_year_is_not_waited_for() -> None:
    said = (429, problem(429, code="overloaded")[1], {**PROBLEM, "Retry-After": str(API_PATIENCE_S + 1)})
    error = refused(said)
    assert isinstance(error, Overloaded)
    assert error.retry_after_ms == (API_PATIENCE_S + 1) * 1_000


def asked_of(**args: Any) -> dict[str, Any]:
    """The content of a question whose digests all follow from it."""
    digest = "sha256:" + "0" * 64
    binding = {
        "tenant_id": "t",
        "run_id": "run_1",
        "tool_call_id": "tool_1",
        "capability_id": "shop.pay",
        "mode": "destructive",
        "definition_digest": digest,
        "args_digest": content_address(args),
        "evidence_snapshot_hash": content_address([]),
        "policy_decision_id": "pdec_1",
        "pins_digest": digest,
        "requester_chain": [{"kind": "user", "id": "ana"}],
        "untrusted": {},
        "secrets": {},
        "instructions": [],
        "gate_id": "GATE",
        "required_role": "lead",
        "idempotency_key": "key",
        "nonce": digest,
        "deadline_us": 1,
    }
    content = {"approval_id": "appr_1", "binding": binding, "args": args, "evidence": []}
    return {**content, "binding_digest": content_address(binding)}


CONTENT = asked_of(amount=42)
QUESTION = QuestionDocument.of_content(CONTENT)
STATED = approval_statement(CONTENT, "lena", "denied", "")
HEADER = {"alg": "Ed25519", "kid": "k1", "typ": "contextos-approval+jws"}


def segment(value: Any) -> str:
    return base64.urlsafe_b64encode(canonical(value)).rstrip(b"=").decode()


def offered(statement: Any, *, header: Any = HEADER, signs: Any = None) -> Answer:
    """The answer of a server that shows one statement and gives another to sign."""
    inputs = {"k1": f"{segment(header)}.{segment(statement if signs is None else signs)}"}
    said = {
        "text": signed_text(CONTENT, "lena", "denied", ""),
        "statements": [{"statement": statement, "signing_inputs": inputs}],
        "nonce": content_address(statement),
        "passkeys": {},
    }
    return 200, json.dumps(said).encode(), JSON


@pytest.mark.parametrize(
    "answer",
    [
        offered({**STATED, "verdict": "approved"}),
        offered({**STATED, "binding_digest": "sha256:bb"}),
        offered({**STATED, "args": {"amount": 99_000}}),
        offered({**STATED, "to": "eve"}),
        offered({name: value for name, value in STATED.items() if name != "evidence"}),
        offered(approval_statement(asked_of(amount=99_000), "lena", "denied", "")),
        offered({**STATED, "approval_id": "appr_2"}),
        offered({**STATED, "reason": "I looked"}),
        offered({}),
        offered(STATED, signs={**STATED, "verdict": "approved"}),
        offered(STATED, signs={**STATED, "approval_id": "appr_2"}),
        offered(STATED, signs=[STATED]),
        offered(STATED, header={**HEADER, "typ": "contextos-act+jws"}),
        offered(STATED, header={**HEADER, "alg": "none"}),
        offered(STATED, header={**HEADER, "kid": "k2"}),
        offered(STATED, header={**HEADER, "crit": ["x"]}),
    ],
)
def test_nothing_is_signed_but_the_answer_that_was_given(answer: Answer) -> None:
    asked: list[Asked] = []

    def serve(one: Asked) -> Answer:
        asked.append(one)
        return answer

    def sign(_signed: bytes) -> bytes:
        raise AssertionError("it was signed")

    with serving(serve) as url, connect(url, TOKEN) as client, pytest.raises(UnfitAnswer, match="nothing was signed"):
        client.answer(QUESTION, "denied", sign=sign)
    assert [one.path for one in asked] == ["/v1/approvals/run_1/statement"]


def test_a_stop_of_another_run_is_not_signed() -> None:
    act = {
        "tenant_id": "t",
        "kind": "run.cancelled",
        "actor": "o",
        "arguments": {"run": "run_2", "reason": ""},
        "expected": 3,
    }
    run = dict.fromkeys(
        (
            "request_id",
            "user_id",
            "agent_id",
            "intent",
            "waits_for",
            "blocked_by",
            "status",
            "decided_by",
            "reason",
            "fault",
            "run_budget",
            "paused",
        )
    )
    run |= {"run_id": "run_1", "state": "waiting", "ended": False, "began_at_us": 1, "record": None}
    header = {**HEADER, "typ": "contextos-act+jws"}

    def serve(one: Asked) -> Answer:
        if one.method == "GET":
            return 200, json.dumps(run).encode(), JSON
        inputs = {"k1": f"{segment(header)}.{segment(act)}"}
        return 200, json.dumps({"statements": [{"statement": act, "signing_inputs": inputs}]}).encode(), JSON

    key = Ed25519PrivateKey.generate()
    with serving(serve) as url, connect(url, TOKEN) as client, pytest.raises(UnfitAnswer, match="another `request_id`"):
        client.cancel("run_1", sign=key.sign)


@pytest.mark.parametrize(
    "said",
    [
        {"status": "failed", "call_id": "c"},
        {"status": "allowed", "call_id": "c"},
        {"status": "failed", "call_id": "c", "error": {"code": 7}},
        {"call_id": "c"},
    ],
)
def test_a_call_that_was_not_made_is_never_taken_for_done(said: dict[str, Any]) -> None:
    opened = {"session": "s", "run_id": "run_1", "tools": ["shop.pay"], "described": {}}

    def serve(one: Asked) -> Answer:
        return 200, json.dumps(said if one.path.endswith("/calls") else opened).encode(), JSON

    with serving(serve) as url, connect(url, TOKEN) as client:
        gate = client.gate(session="s", agent="a")
        with pytest.raises(UnfitAnswer):
            gate.call("shop.pay", {}, call_id="c")
