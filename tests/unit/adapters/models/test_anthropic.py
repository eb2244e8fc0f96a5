"""The wire `anthropic` by the official SDK against a server that speaks the protocol: each fault has its outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from contextos.adapters.models import anthropic
from contextos.adapters.models.anthropic import AnthropicMessages
from contextos.contracts.ports.models import ModelMessage, ModelReply, ModelTool, ProposedCall
from contextos.errors import InvalidInput
from tests.messages_words import PING, MessagesWords, error, failed, fault_of, message, stream_of, text, tool_use
from tests.model_servers import KEY, ModelServer, Said, Served, event, model_call, model_server
from tests.suites.model_provider_suite import COUNTS, SAID, ModelProviderSuite

WORDS = MessagesWords()
SECRET = "SECRET-of-the-provider"
TOOL = ModelTool("crm.read_order", "Reads an order.", {"type": "object", "properties": {"id": {"type": "string"}}})


async def ask(server: ModelServer, **changes: Any) -> tuple[ModelReply, list[str]]:
    pieces = list[str]()
    provider = AnthropicMessages(server.client())
    return await provider.complete(model_call(server, "anthropic", **changes), pieces.append), pieces


def reply_to(answer: Served, **changes: Any) -> ModelReply:
    """What becomes of one call that is answered so."""

    async def run() -> ModelReply:
        async with model_server(answer) as server:
            reply, _ = await ask(server, **changes)
            assert [fault_of(asked) for asked in server.asked] == [None], "the request is sent once"
            assert SECRET not in repr(reply) or reply.outcome == "answered"
            assert KEY not in repr(reply)
            return reply

    return asyncio.run(run())


def streamed(stated: dict[str, Any]) -> Served:
    return Served([event(one) for one in stream_of(stated)])


def whole(stated: object, kind: str = "application/json; charset=utf-8") -> Served:
    return Served([json.dumps(stated).encode()], kind=kind)


def both(stated: dict[str, Any], **changes: Any) -> ModelReply:
    """What becomes of a call with this message: the same, whether it is streamed or not."""
    reply = reply_to(streamed(stated), **changes)
    other = reply_to(whole(stated), streamed=False, **changes)
    assert (reply.usage and reply.usage.counts) == (other.usage and other.usage.counts)
    assert replace(other, usage=None) == replace(reply, usage=None)
    return reply


class TestAnthropicMessages(ModelProviderSuite):
    words = WORDS
    make = AnthropicMessages
    header_names = ModelProviderSuite.header_names | {"anthropic-version"}
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "refund order 1"}]},
        {"role": "assistant", "content": [text("I look"), tool_use("crm_read_order", {"order_id": "ord_1"}, "call_1")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": '{"total": 9}'}]},
    ]

    def last_event(self) -> int:
        return len(self.words.events(SAID))

    def forget_the_sdk(self) -> None:
        anthropic._client.cache_clear()

    def sent_tools(self, body: Any) -> list[str]:
        return [tool["name"] for tool in body["tools"]]

    def sent_messages(self, body: Any) -> Any:
        assert body["system"] == "be brief"
        return body["messages"]


def test_thoughts_and_blocks_that_are_not_known_are_left_out() -> None:
    said = message([{"type": "thinking", "thinking": SECRET, "signature": "s"}, text("Yes.")], usage=WORDS.usage())
    assert both(said).text == "Yes."
    stream = stream_of(message([text("Yes.")], usage=WORDS.usage()))
    unknown = [
        {"type": "content_block_start", "index": 7, "content_block": {"type": "new_kind", "text": "x"}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "new_delta", "text": "x"}},
        {"type": "content_block_stop", "index": 7},
        {"type": "new_event", "text": "x"},
    ]
    reply = reply_to(Served([event(one) for one in [*stream[:2], *unknown, *stream[2:]]]))
    assert (reply.outcome, reply.text) == ("answered", "Yes.")


STOPS = [
    ("max_tokens", "truncated"),
    ("model_context_window_exceeded", "truncated"),
    ("refusal", "refused"),
    ("pause_turn", "cut"),
    ("compaction", "malformed"),
    (None, "malformed"),
]


@pytest.mark.parametrize(("stop", "outcome"), STOPS)
def test_a_message_that_stopped_before_its_end_is_not_an_answer_and_is_billed(stop: str | None, outcome: str) -> None:
    said = message([text(SECRET), tool_use("crm_read_order", {"id": "1"})], stop, usage=WORDS.usage())
    reply = both(said, tools=(TOOL,))
    assert (reply.outcome, reply.text, reply.calls, reply.billed) == (outcome, "", (), True)
    assert reply.usage is not None
    assert reply.usage.counts == COUNTS
    assert reply.detail


def test_a_call_that_the_token_limit_broke_off_is_truncated_and_not_malformed() -> None:
    stream = stream_of(message([tool_use("crm_read_order", {"id": "A-1"})], "max_tokens", usage=WORDS.usage()))
    last = max(number for number, one in enumerate(stream) if one["type"] == "content_block_delta")
    broken = stream[:last] + stream[last + 1 :]
    assert reply_to(Served([event(one) for one in broken]), tools=(TOOL,)).outcome == "truncated"


def deep(depth: int) -> Any:
    return [deep(depth - 1)] if depth else []


MALFORMED: dict[str, dict[str, Any]] = {
    "no content": {**message([]), "content": None},
    "an empty answer": message([]),
    "a text that is none": message([{"type": "text", "text": 5}]),
    "a call without a name": message([{"type": "tool_use", "id": "1", "input": {}}], "tool_use"),
    "a call without an id": message([{"type": "tool_use", "name": "a", "id": "", "input": {}}], "tool_use"),
    "arguments that are a list": message([tool_use("a", [1])], "tool_use"),
    "arguments that another reader would round": message([tool_use("a", {"n": 2**60})], "tool_use"),
    "arguments that are nested too deep": message([tool_use("a", {"n": deep(400)})], "tool_use"),
    "two calls with one id": message([tool_use("a", {}), tool_use("b", {})], "tool_use"),
    "a call that is announced and missing": message([text("I look.")], "tool_use"),
    "a list": [message([text("Yes.")])],  # type: ignore[dict-item]
}


@pytest.mark.parametrize("stated", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_not_a_message_is_malformed(stated: dict[str, Any]) -> None:
    reply = reply_to(whole(stated), streamed=False)
    assert (reply.outcome, reply.text, reply.calls, reply.billed) == ("malformed", "", (), True)


def deltas(*events: dict[str, Any]) -> list[dict[str, Any]]:
    stream = stream_of(message([text("Yes.")], usage=WORDS.usage()))
    return [*stream[:3], *events, *stream[3:]]


BROKEN: dict[str, list[dict[str, Any]]] = {
    "a message begins twice": [*stream_of(message([text("Yes.")]))[:1], *stream_of(message([text("Yes.")]))],
    "a block begins twice": deltas({"type": "content_block_start", "index": 0, "content_block": text("")}),
    "a block begins in another": deltas({"type": "content_block_start", "index": 1, "content_block": text("")}),
    "a piece of a block that is not there": deltas(
        {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}}
    ),
    "a piece without an index": deltas({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}),
    "an index that is true": deltas(
        {"type": "content_block_delta", "index": False, "delta": {"type": "text_delta", "text": "x"}}
    ),
    "a piece that is not text": deltas(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}}
    ),
    "a piece that is not there": deltas({"type": "content_block_delta", "index": 0}),
    "a block that ends twice": [*deltas()[:-2], {"type": "content_block_stop", "index": 0}, *deltas()[-2:]],
    "a block without an end": [one for one in deltas() if one["type"] != "content_block_stop"],
    "no beginning": deltas()[1:],
    "only an end": deltas()[-1:],
    "no reason to stop": [one for one in deltas() if one["type"] != "message_delta"],
    "an event without a kind": deltas({"index": 0}),
}


@pytest.mark.parametrize("stream", BROKEN.values(), ids=BROKEN.keys())
def test_events_that_do_not_add_up_to_a_message_are_malformed(stream: list[dict[str, Any]]) -> None:
    reply = reply_to(Served([event(one) for one in stream]))
    assert (reply.outcome, reply.text, reply.billed) == ("malformed", "", True)
    assert reply.usage is None or reply.usage.counts == COUNTS


def test_an_error_in_a_form_that_is_not_known_is_an_error() -> None:
    for stated in ("overloaded", None, {"type": ["x"]}):
        reply = reply_to(Served([event(one) for one in deltas({"type": "error", "error": stated})]))
        assert (reply.outcome, reply.billed) == ("unavailable", True)


def test_lines_may_end_otherwise_and_a_text_may_hold_such_ends() -> None:
    sent = b"".join(WORDS.events(Said("å \r\n\u2028 ok"))).replace(b"\n\n", b"\r\n\r\n")
    for size in (1, 3, len(sent)):
        reply = reply_to(Served([sent[at : at + size] for at in range(0, len(sent), size)]))
        assert (reply.outcome, reply.text) == ("answered", "å \r\n\u2028 ok")


def test_what_comes_after_the_last_event_is_not_waited_for_and_not_read() -> None:
    after = stream_of(message([text(SECRET)]))
    reply = reply_to(Served([*WORDS.events(Said("Yes.")), *map(event, after)], then="hangs"))
    assert (reply.outcome, reply.text) == ("answered", "Yes.")


REFUSALS: list[tuple[Served, str, bool, int]] = [
    (failed(429, "rate_limit_error", SECRET, retry_after="12"), "overloaded", False, 12_000),
    (failed(429, "rate_limit_error", SECRET), "overloaded", False, 0),
    (failed(429, "rate_limit_error", SECRET, "enforced_spend_limit_reached"), "overloaded", False, 0),
    (failed(400, "invalid_request_error", SECRET, "contract_spend_limit_reached"), "overloaded", False, 0),
    (failed(529, "overloaded_error", SECRET), "overloaded", False, 0),
    (failed(500, "api_error", SECRET), "unavailable", True, 0),
    (failed(502, "api_error", SECRET), "unavailable", True, 0),
    (failed(503, "api_error", SECRET, retry_after="3"), "unavailable", False, 3_000),
    (failed(504, "timeout_error", SECRET), "unavailable", True, 0),
    (failed(401, "authentication_error", SECRET), "unauthorized", False, 0),
    (failed(402, "billing_error", SECRET), "unauthorized", False, 0),
    (failed(403, "permission_error", SECRET), "unauthorized", False, 0),
    (failed(404, "not_found_error", f"model: {SECRET}"), "unknown_model", False, 0),
    (failed(413, "request_too_large", SECRET), "too_large", False, 0),
    (failed(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), "too_large", False, 0),
    (
        failed(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 9 > 10"),
        "too_large",
        False,
        0,
    ),
    (failed(400, "invalid_request_error", SECRET), "rejected", False, 0),
    (failed(422, "invalid_request_error", SECRET), "rejected", False, 0),
    (Served([SECRET.encode()], 500, "text/html"), "unavailable", True, 0),
    (Served([b"[]"], 400, "application/json"), "rejected", False, 0),
    (Served([b'{"error": "x"}'], 400, "application/json"), "rejected", False, 0),
    (Served([], 307, "text/html", {"Location": "http://127.0.0.1:9/"}), "rejected", False, 0),
]


@pytest.mark.parametrize(("answer", "outcome", "billed", "wait"), REFUSALS)
def test_each_refusal_of_the_provider_has_its_outcome(answer: Served, outcome: str, billed: bool, wait: int) -> None:
    for is_streamed in (True, False):
        reply = reply_to(answer, streamed=is_streamed)
        assert (reply.outcome, reply.billed, reply.retry_after_ms, reply.usage) == (outcome, billed, wait, None)
        assert reply.detail
        assert not reply.text


ERRORS = [
    ("overloaded_error", "overloaded"),
    ("rate_limit_error", "overloaded"),
    ("api_error", "unavailable"),
    ("timeout_error", "unavailable"),
    ("authentication_error", "unauthorized"),
    ("not_found_error", "unknown_model"),
    ("request_too_large", "too_large"),
    ("a_new_error", "unavailable"),
]


def test_a_call_that_json_cannot_express_is_refused_before_anything_is_sent() -> None:
    async def run() -> None:
        async with model_server(Served()) as server:
            for messages in (
                (ModelMessage("user", "half \ud83c"),),
                (
                    ModelMessage("user", "x"),
                    ModelMessage("assistant", calls=(ProposedCall("1", "a", {"n": 2**70}),)),
                    ModelMessage("tool", "1", call_id="1"),
                ),
            ):
                with pytest.raises(InvalidInput) as refused:
                    await ask(server, messages=messages)
                assert refused.value.problems[0].code == "not_json"
            assert not server.asked

    asyncio.run(run())


def test_a_stream_that_is_cut_names_its_answer() -> None:
    reply = reply_to(Served(WORDS.events(SAID)[:3]), tools=(TOOL,))
    assert (reply.outcome, reply.model, reply.reply_id) == ("cut", "model-1-2026", "msg_01")


@pytest.mark.parametrize(("kind", "outcome"), ERRORS)
def test_an_error_in_a_stream_ends_it_and_is_billed_where_the_message_had_begun(kind: str, outcome: str) -> None:
    parts = WORDS.events(SAID)
    for count in (0, 1, 4, len(parts) - 1):
        reply = reply_to(Served([*parts[:count], event(error(kind, SECRET)), *parts[count:]]), tools=(TOOL,))
        assert (reply.outcome, reply.billed, reply.text, reply.usage) == (outcome, count > 0, "", None)


def test_pings_for_ever_are_not_a_piece_and_a_slow_end_is_not_a_slow_piece() -> None:
    start = WORDS.events(Said("Yes."))
    pings = [start[0], *[PING] * 5_000]
    reply = reply_to(Served(pings, delay_s=0.01), first_token_ms=150)
    assert (reply.outcome, reply.billed) == ("timed_out", True)
    assert "150 ms" in reply.detail
    reply = reply_to(Served([*start[:3], *[PING] * 5_000], delay_s=0.01), first_token_ms=150, timeout_ms=400)
    assert reply.outcome == "timed_out"
    assert "400 ms" in reply.detail
    reply = reply_to(Served([*start[:3], *[PING] * 20, *start[3:]], delay_s=0.01), first_token_ms=150)
    assert reply.outcome == "answered"


def test_a_key_that_cannot_be_sent_is_refused_without_being_shown() -> None:
    async def run() -> None:
        async with model_server(Served()) as server:
            with pytest.raises(InvalidInput) as refused:
                await ask(server, key="sk-ü\nX-Other: 1")
            assert "sk-" not in str(refused.value)
            assert not server.asked

    asyncio.run(run())


def test_the_version_of_the_api_and_the_key_are_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "anthropic-version: 2023-06-01\nanthropic-beta: planted")
    monkeypatch.setenv("ANTHROPIC_PROFILE", "planted")
    monkeypatch.setenv("ANTHROPIC_WEBHOOK_SIGNING_KEY", "planted")
    anthropic._client.cache_clear()

    async def run() -> None:
        async with model_server(Served(WORDS.events(Said("Yes.")))) as server:
            await ask(server)
            [asked] = server.asked
            assert (asked.headers["anthropic-version"], asked.headers["authorization"]) == (
                "2026-10-21",
                f"Bearer {KEY}",
            )
            assert "anthropic-beta" not in asked.headers

    asyncio.run(run())
    anthropic._client.cache_clear()


def test_the_endpoint_can_be_stated_with_and_without_its_version() -> None:
    for endpoint in ("", "/", "/v1", "/v1/"):

        async def run(endpoint: str = endpoint) -> None:
            async with model_server(Served(WORDS.events(Said("Yes.")))) as server:
                await ask(server, profile={"endpoint": f"http://{server.endpoint}{endpoint}"})
                assert [asked.target for asked in server.asked] == ["/v1/messages"]

        asyncio.run(run())


SCHEMA = {
    "type": "object",
    "properties": {"late": {"type": "boolean"}},
    "required": ["late"],
    "additionalProperties": False,
}
LOOSE = {"type": "object", "properties": {"hour": {"type": "integer", "minimum": 0}}}


def body_and_reply(answer: dict[str, Any], **changes: Any) -> tuple[dict[str, Any], ModelReply]:
    async def run() -> tuple[dict[str, Any], ModelReply]:
        async with model_server(streamed(answer)) as server:
            reply, _ = await ask(server, **changes)
            assert [fault_of(asked) for asked in server.asked] == [None]
            return server.asked[0].body, reply

    return asyncio.run(run())


def test_a_schema_that_the_output_format_expresses_is_sent_in_it() -> None:
    body, reply = body_and_reply(message([text('{"late": true}')], usage=WORDS.usage()), output_schema=SCHEMA)
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert "tools" not in body
    assert (reply.outcome, reply.text, reply.calls) == ("answered", '{"late": true}', ())


@pytest.mark.parametrize(
    "changes", [{"output_schema": LOOSE}, {"output_schema": SCHEMA, "profile": {"capabilities": ["streaming"]}}]
)
def test_another_schema_is_asked_for_by_a_tool_whose_input_is_the_answer(changes: dict[str, Any]) -> None:
    said = message([text("So:"), tool_use("give_answer", {"late": True})], "tool_use", usage=WORDS.usage())
    body, reply = body_and_reply(said, **changes)
    assert [tool["input_schema"] for tool in body["tools"]] == [changes["output_schema"]]
    assert body["tool_choice"] == {"type": "tool", "name": "give_answer"}
    assert "output_config" not in body
    assert (reply.outcome, reply.text, reply.calls) == ("answered", '{"late":true}', ())


def test_a_tool_of_that_name_stays_a_tool_and_two_answers_are_none() -> None:
    tools: Sequence[ModelTool] = (ModelTool("give_answer", "Gives.", {"type": "object"}), TOOL)
    said = message([tool_use("give_answer", {"a": 1}), tool_use("give_answer_2", {"hour": 1}, "toolu_02")], "tool_use")
    body, reply = body_and_reply(said, output_schema=LOOSE, tools=tools)
    assert [tool["name"] for tool in body["tools"]] == ["give_answer", "crm_read_order", "give_answer_2"]
    assert body["tool_choice"] == {"type": "any"}
    assert (reply.text, [one.tool for one in reply.calls]) == ('{"hour":1}', ["give_answer"])
    twice = message([tool_use("give_answer", {}, name) for name in ("toolu_01", "toolu_02")], "tool_use")
    assert body_and_reply(twice, output_schema=LOOSE)[1].outcome == "malformed"
