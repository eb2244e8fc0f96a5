"""The adapter over a real HTTP server: what each answer means for a read and for a write."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.openapi.adapter import OpenApiAdapter, openapi_adapter
from contextos.adapters.openapi.draft import draft_openapi
from contextos.adapters.outbound import MAX_RESPONSE_BYTES
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.errors import ContextOSError, InvalidInput, InvalidSettings, LostReply, Overloaded, Unavailable
from tests.loopback import Answer, Asked, serving
from tests.openapi_documents import OK, body_of, document

PATHS = {
    "/orders/{id}": {
        "get": {"operationId": "read", "parameters": [{"name": "id", "in": "path", "schema": {}}], "responses": OK}
    },
    "/refunds": {
        "post": {
            "operationId": "pay",
            "requestBody": body_of({"type": "object", "properties": {"amount": {"type": "integer"}}}),
            "responses": OK,
        }
    },
}
JSON = {"Content-Type": "application/json"}
WRITE = ("pay", {"body": {"amount": 5}})
READ = ("read", {"id": "ord_1"})


def file_of(server: str) -> dict[str, Any]:
    made = draft_openapi("adp_shop", document(PATHS), server=server, internal=True, reads=["read"]).to_json()
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def adapter_of(file: Mapping[str, Any], folder: Path = Path()) -> OpenApiAdapter:
    definition = AdapterDefinition.model_validate(file["definition"])
    return openapi_adapter(file["connection"], definition, file["operations"], folder)


def context(adapter: OpenApiAdapter, **more: Any) -> CallContext:
    made = CallContext("tenant", "run", "tool", "ik_0123456789abcdef", 0, 5_000, egress=adapter.describe().egress)
    for name, value in more.items():
        object.__setattr__(made, name, value)
    return made


def called(
    call: tuple[str, dict[str, Any]],
    answer: Answer | Callable[[Asked], Answer],
    edit: Callable[[Any], None] = lambda _: None,
) -> AdapterReply | ContextOSError:
    """What a call brings, if the server gives this answer. `edit` changes the adapter file before."""

    async def ask(url: str) -> AdapterReply | ContextOSError:
        file = file_of(url)
        edit(file)
        adapter = adapter_of(file)
        try:
            return await adapter.call(*call, context(adapter))
        except ContextOSError as error:
            return error

    with serving(answer if callable(answer) else lambda _: answer) as url:
        return asyncio.run(ask(url))


def test_a_call_sends_its_arguments_and_returns_the_checked_answer() -> None:
    seen: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        seen.append(asked)
        return 200, b'{"paid": 5}', JSON

    assert called(WRITE, answer) == AdapterReply(output={"status": 200, "body": {"paid": 5}})
    assert called(READ, answer) == AdapterReply(output={"status": 200, "body": {"paid": 5}})
    assert [(one.method, one.path, one.body) for one in seen] == [
        ("POST", "/refunds", b'{"amount":5}'),
        ("GET", "/orders/ord_1", b""),
    ]


def test_a_client_error_is_an_answer_in_plain_text() -> None:
    reply = called(WRITE, (422, b'{"error":\n"no\x1b[31m \xff money"}', JSON))
    assert isinstance(reply, AdapterReply)
    assert reply.error is not None
    assert reply.error.code == "http_422"
    assert "money" in reply.error.message
    assert "\x1b" not in reply.error.message
    long = called(WRITE, (400, b"x" * 500_000, {}))
    assert isinstance(long, AdapterReply)
    assert long.error is not None
    assert len(long.error.message) <= 2000
    empty = called(WRITE, (404, b"", {}))
    assert isinstance(empty, AdapterReply)
    assert empty.error is not None
    assert "404" in empty.error.message


@pytest.mark.parametrize(
    ("answer", "wait_ms"),
    [
        ((429, b"", {}), 1_000),
        ((429, b"", {"Retry-After": "7"}), 7_000),
        ((429, b"", {"Retry-After": "999999"}), 3_600_000),
        ((429, b"", {"Retry-After": "soon"}), 1_000),
    ],
)
def test_a_server_that_says_come_back_later_did_nothing(answer: Answer, wait_ms: int) -> None:
    for call in (READ, WRITE):
        error = called(call, answer)
        assert isinstance(error, Unavailable)
        assert error.retry_after_ms == wait_ms


def test_a_proxy_that_says_come_back_later_may_have_passed_a_write_on() -> None:
    answer: Answer = (503, b"", {"Retry-After": "2"})
    assert isinstance(called(WRITE, answer), LostReply)
    error = called(READ, answer)
    assert isinstance(error, Unavailable)
    assert error.retry_after_ms == 2_000


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"", {}),
        (502, b"", {}),
        (503, b"", {}),
        (504, b"", {}),
        (408, b"", {}),
        (201, b"{}", JSON),
        (302, b"", {"Location": "/x"}),
        (200, b"no json", JSON),
        (200, b"\xff\xfe", JSON),
        (200, b"", JSON),
        (200, b"<html>", {"Content-Type": "text/html"}),
        (200, b"[" * 5000, JSON),
    ],
)
def test_after_any_other_answer_a_write_can_have_happened(answer: Answer) -> None:
    assert isinstance(called(WRITE, answer), LostReply)
    assert isinstance(called(READ, answer), Unavailable)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"a": 1, "a": 2}', "/a"),
        (b'{"a": [1234567890123456789]}', "/a/0"),
        (b'{"a": 1e400}', "/a"),
        (b'{"a": NaN}', "/a"),
        (b'{"a": "\\ud800"}', "/a"),
        (b"[" * 70 + b"]" * 70, None),
        (b"[" * 5000 + b"]" * 5000, None),
        (b'"' + b"x" * MAX_RESPONSE_BYTES + b'"', None),
    ],
)
def test_an_answer_of_success_that_cannot_be_taken_is_withheld_with_its_place(body: bytes, place: str | None) -> None:
    for call in (READ, WRITE):
        reply = called(call, (200, body, JSON))
        assert (reply.output, reply.error) == (None, None)
        assert reply.withheld.pointer == place


def test_arguments_that_cannot_be_sent_are_an_answer_and_nothing_is_sent() -> None:
    reply = called(("read", {"id": "../admin"}), lambda _: pytest.fail("it was sent"))
    assert isinstance(reply, AdapterReply)
    assert reply.error is not None
    assert (reply.error.code, reply.error.pointer) == ("unsendable_argument", "/id")


def test_what_is_late_or_not_in_the_egress_list_is_not_sent() -> None:
    async def ask(url: str) -> None:
        adapter = adapter_of(file_of(url))
        with pytest.raises(Overloaded):
            await adapter.call(*WRITE, context(adapter, is_late=lambda: True))
        reply = await adapter.call(*WRITE, context(adapter, egress=()))
        assert reply.error is not None
        assert reply.error.code == "egress_refused"
        with pytest.raises(Unavailable):
            await adapter.call("other", {}, context(adapter))
        with pytest.raises(LostReply):
            await adapter.lookup("pay", "ik_1", context(adapter))

    with serving(lambda _: pytest.fail("it was sent")) as url:
        asyncio.run(ask(url))


def test_the_body_alone_can_be_the_output_and_the_arguments_the_body() -> None:
    def edit(file: Any) -> None:
        pay = file["operations"]["pay"]
        pay["output"], pay["body"]["argument"] = "body", None
        (declared,) = (one for one in file["definition"]["capabilities"] if one["name"] == "pay")
        declared["input_schema"] = declared["input_schema"]["properties"]["body"]

    call = ("pay", {"amount": 5})
    assert called(call, lambda asked: (200, asked.body, JSON), edit) == AdapterReply(output={"amount": 5})
    assert called(call, (200, b"[]", JSON), edit).withheld.message.endswith("it is not an object")


def test_a_key_is_sent_in_the_header_that_the_file_states() -> None:
    def edit(file: Any) -> None:
        file["operations"]["pay"]["idempotency_header"] = "Idempotency-Key"
        for one in file["definition"]["capabilities"]:
            if one["name"] == "pay":
                one["idempotency"] = {"strategy": "keyed"}

    def answer(asked: Asked) -> Answer:
        return 200, json.dumps({"key": asked.headers["Idempotency-Key"]}).encode(), JSON

    assert called(WRITE, answer, edit) == AdapterReply(output={"status": 200, "body": {"key": "ik_0123456789abcdef"}})


@pytest.mark.parametrize(
    "said",
    [rb'{"e": "s3cret\u002dtoken-1"}', b"s3cret&#45;token-1", b"s3cret-\xe2\x80\x8btoken-1", b"s3cret-\ntoken-1"],
)
def test_a_disguised_secret_in_an_error_is_not_kept(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SHOP_TOKEN", "s3cret-token-1")

    def edit(file: Any) -> None:
        file["connection"]["credentials"] = {"token": {"place": "bearer", "env": "SHOP_TOKEN"}}
        file["operations"]["pay"]["credentials"] = ["token"]

    reply = called(WRITE, (401, said, {}), edit)
    assert isinstance(reply, AdapterReply)
    assert reply.error is not None
    assert "[credential]" in reply.error.message
    assert "token" not in reply.error.message


def _keyed_without_header(file: Any) -> None:
    file["definition"]["capabilities"][1]["idempotency"] = {"strategy": "keyed"}


def _lookup(file: Any) -> None:
    file["definition"]["capabilities"][1]["idempotency"] = {"strategy": "lookup"}


def _read_by_post(file: Any) -> None:
    file["definition"]["capabilities"][1] |= {"kind": "read", "risk_level": "read", "approval_mode": "network"}


def _read_that_nobody_stated(file: Any) -> None:
    file["operations"]["read"]["stated_read"] = False


def _no_operation(file: Any) -> None:
    del file["operations"]["pay"]


def _no_capability(file: Any) -> None:
    del file["definition"]["capabilities"][1]


def _no_credential(file: Any) -> None:
    file["operations"]["pay"]["credentials"] = ["token"]


def _another_server(file: Any) -> None:
    file["connection"]["server"] = "https://other.example"


def _another_argument(file: Any) -> None:
    file["operations"]["read"]["parameters"][0]["argument"] = "other"


def _own_header(file: Any) -> None:
    file["operations"]["read"]["parameters"][0] |= {"place": "header", "name": "Authorization"}


def _time_that_is_not_sent(file: Any) -> None:
    file["definition"]["capabilities"][1]["idempotency"] = {"strategy": "none", "honours_not_after": True}


def _key_of_a_read(file: Any) -> None:
    file["operations"]["read"]["idempotency_header"] = "Idempotency-Key"


def _body_of_an_answer_without_one(file: Any) -> None:
    file["operations"]["pay"] |= {"output": "body", "answers": [{"status": "204", "body": "none"}]}


def _body_that_is_text(file: Any) -> None:
    file["operations"]["pay"] |= {"output": "body", "answers": [{"status": "200", "body": "text"}]}


def _output_that_is_no_answer(file: Any) -> None:
    """The schema of the function that it was, and nobody stated that the body alone is the output."""
    paid = {"type": "object", "additionalProperties": False, "properties": {"paid": {"type": "integer"}}}
    file["definition"]["capabilities"][1]["output_schema"] = paid


@pytest.mark.parametrize(
    "edit",
    [
        _time_that_is_not_sent,
        _key_of_a_read,
        _body_of_an_answer_without_one,
        _body_that_is_text,
        _output_that_is_no_answer,
        _keyed_without_header,
        _lookup,
        _read_by_post,
        _no_operation,
        _no_capability,
        _no_credential,
        _another_server,
        _another_argument,
        _own_header,
        _read_that_nobody_stated,
    ],
)
def test_a_file_that_states_what_has_no_effect_is_refused(edit: Callable[[Any], None]) -> None:
    file = file_of("http://127.0.0.1:9")
    adapter_of(file)
    edit(file)
    with pytest.raises(InvalidSettings):
        adapter_of(file)


def test_an_unknown_member_of_a_file_is_refused() -> None:
    file = file_of("http://127.0.0.1:9")
    file["operations"]["pay"]["retries"] = 3
    with pytest.raises(InvalidInput):
        adapter_of(file)


def test_a_secret_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SHOP_TOKEN", "s3cret-token-1")

    def edit(file: Any) -> None:
        file["connection"]["credentials"] = {"token": {"place": "bearer", "env": "SHOP_TOKEN"}}
        file["operations"]["pay"]["credentials"] = ["token"]

    def answer(asked: Asked) -> Answer:
        assert asked.headers["Authorization"] == "Bearer s3cret-token-1"
        return 200, json.dumps({"said": asked.headers["Authorization"]}).encode(), JSON

    assert called(WRITE, answer, edit) == AdapterReply(output={"status": 200, "body": {"said": "Bearer [credential]"}})


def polled(file: dict[str, Any], **more: Any) -> None:
    file["operations"]["pay"]["polled"] = {"header": "location", **more}


STATE = {"state": "/status", "running": ["running"], "done": ["done"], "failed": ["failed"]}


def looked_up(answers: list[Answer], **more: Any) -> tuple[list[Asked], AdapterReply | ContextOSError | None]:
    """What a write and then look-ups of its operation come to, one for each answer."""
    seen: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        seen.append(asked)
        return answers[len(seen) - 1]

    async def ask(url: str) -> AdapterReply | ContextOSError | None:
        file = file_of(url)
        polled(file, **more)
        adapter = adapter_of(file)
        try:
            reply: AdapterReply | None = await adapter.call(*WRITE, context(adapter))
            while reply is not None and reply.operation is not None and len(seen) < len(answers):
                reply = await adapter.lookup("pay", "ik_0123456789abcdef", context(adapter, operation=reply.operation))
        except ContextOSError as error:
            return error
        return reply

    with serving(answer) as url:
        return seen, asyncio.run(ask(url))


def accepted(location: str = "/operations/7", **headers: str) -> Answer:
    return 202, b"", {"Location": location, **headers}


def test_a_write_that_is_accepted_is_asked_about_until_it_is_done() -> None:
    seen, reply = looked_up([accepted(**{"Retry-After": "30"}), accepted(), (200, b'{"id": "r"}', JSON)])
    assert isinstance(reply, AdapterReply)
    assert reply.output == {"status": 200, "body": {"id": "r"}}
    assert [(one.method, one.path) for one in seen] == [("POST", "/refunds"), *[("GET", "/operations/7")] * 2]
    _, first = looked_up([accepted(**{"Retry-After": "30"})])
    assert isinstance(first, AdapterReply)
    assert first.retry_after_s == 30


@pytest.mark.parametrize(
    ("body", "comes_to"),
    [
        (b'{"status": "running"}', "operation"),
        (b'{"status": "done"}', "output"),
        (b'{"status": "failed"}', "error"),
        (b'{"status": 7}', LostReply),
        (b'{"status": ["done"]}', LostReply),
        *((json.dumps({"status": said}).encode(), LostReply) for said in ("canceled", "Failed", "Done", "queued", "")),
        (b"{}", LostReply),
        (b"<html>", LostReply),
    ],
)
def test_the_state_in_the_answer_says_what_became_of_it(body: bytes, comes_to: Any) -> None:
    _, reply = looked_up([accepted(), (200, body, JSON)], **STATE)
    if isinstance(comes_to, str):
        assert isinstance(reply, AdapterReply), reply
        assert getattr(reply, comes_to) is not None
    else:
        assert isinstance(reply, comes_to), reply


@pytest.mark.parametrize(
    "location", ["https://evil.example/steal", "//evil.example/x", "http://user@host/x", "\\x", "/%2f"]
)
def test_no_operation_is_asked_about_elsewhere(location: str) -> None:
    seen, reply = looked_up([accepted(location)])
    assert isinstance(reply, LostReply), reply
    assert len(seen) == 1


@pytest.mark.parametrize("location", ["/operations/7?sig=1", "?sig=1"])
def test_a_url_with_a_query_is_recorded_only_where_the_file_allows_it(location: str) -> None:
    seen, reply = looked_up([accepted(location)])
    assert isinstance(reply, LostReply), reply
    assert (reply.accepted, len(seen), "sig" in str(reply)) == (True, 1, False)
    _, reply = looked_up([accepted(location)], query=True)
    assert isinstance(reply, AdapterReply), reply
    assert reply.operation is not None


@pytest.mark.parametrize("location", ["https://evil.example/steal", "\\x"])
def test_what_was_accepted_and_cannot_be_asked_about_is_known_to_be_accepted(location: str) -> None:
    _, reply = looked_up([accepted(location)])
    assert isinstance(reply, LostReply), reply
    assert reply.accepted
    _, later = looked_up([accepted(), accepted(location)])
    assert isinstance(later, LostReply), later
    assert not later.accepted, "it is asked about again"


@pytest.mark.parametrize("status", [303, 401, 500])
def test_an_answer_that_says_nothing_of_the_operation_leaves_it_unknown(status: int) -> None:
    _, reply = looked_up([accepted(), (status, b"{}", JSON)])
    assert isinstance(reply, ContextOSError), reply


@pytest.mark.parametrize("status", [404, 410])
def test_an_operation_that_the_server_does_not_have_is_no_record_of_it(status: int) -> None:
    seen, reply = looked_up([accepted(), (status, b"{}", JSON)])
    assert (len(seen), reply) == (2, None)


def test_a_final_answer_that_is_too_large_is_withheld_and_one_whose_state_nobody_read_says_nothing() -> None:
    large = (200, b'{"status": "running", "x": "' + b"a" * 1_200_000 + b'"}', JSON)
    _, reply = looked_up([accepted(), large])
    assert isinstance(reply, AdapterReply), reply
    assert reply.withheld is not None
    _, reply = looked_up([accepted(), large], **STATE)
    assert isinstance(reply, LostReply), reply


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "/status"},
        {"running": ["x"]},
        {"failed": ["x"]},
        {"state": "/status", "running": ["x"]},
        {"state": "/status", "running": ["x"], "done": ["x"]},
        {"header": "x-where"},
    ],
)
def test_a_polled_operation_is_declared_whole(wrong: dict[str, Any]) -> None:
    file = file_of("http://127.0.0.1:9")
    polled(file, **wrong)
    with pytest.raises(InvalidInput):
        adapter_of(file)


def test_a_read_is_not_polled() -> None:
    file = file_of("http://127.0.0.1:9")
    file["operations"]["read"]["polled"] = {"header": "location"}
    with pytest.raises(InvalidSettings, match="polled"):
        adapter_of(file)
