"""Chat Completions over a server that speaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.adapters.models import openai_wire
from contextos.adapters.models.openai_chat import OpenAIChat
from contextos.contracts.ports.models import ProposedCall
from contextos.errors import InvalidInput
from tests.model_servers import ChatWords, Said, Served, event, model_call
from tests.suites.model_provider_suite import SAID, ModelProviderSuite, error, one_tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


class TestOpenAIChat(ModelProviderSuite):
    words = ChatWords()
    make = OpenAIChat
    conversation = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "refund order 1"},
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "crm_read_order", "arguments": '{"order_id":"ord_1"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"total": 9}'},
    ]

    def last_event(self) -> int:
        # After the reason to finish come the usage and the mark of the end.
        return len(self.words.events(SAID)) - 2

    def forget_the_sdk(self) -> None:
        openai_wire._client.cache_clear()

    def sent_tools(self, body: Any) -> list[str]:
        return [tool["function"]["name"] for tool in body["tools"]]

    def sent_messages(self, body: Any) -> Any:
        return body["messages"]

    def events(self, *found: bytes) -> Any:
        return self.asked(lambda server: model_call(server, "openai"), Served(found))[0]

    @pytest.mark.parametrize(
        "pieces",
        [
            [{"index": 1, "id": "c", "function": {"name": "a", "arguments": "{}"}}],
            [{"index": -1, "id": "c", "function": {"name": "a", "arguments": "{}"}}],
            [{"id": "c", "function": {"name": "a", "arguments": "{}"}}],
            [{"index": True, "id": "c", "function": {"name": "a", "arguments": "{}"}}],
            [{"index": 0, "id": "c", "function": {"name": "a"}}, {"index": 0, "id": "d", "function": {"name": "a"}}],
            [{"index": 0, "id": "c", "function": {"name": "a"}}, {"index": 0, "function": {"name": "b"}}],
            [{"index": 0, "id": "c", "type": "custom", "function": {"name": "a"}}],
            [{"index": 0, "id": "c", "function": "a"}],
            [{"index": 0, "id": "c", "function": {"name": "a", "arguments": {"a": 1}}}],
            [{"index": number, "id": f"c{number}", "function": {"name": "a"}} for number in range(129)],
            ["a"],
        ],
    )
    def test_pieces_of_calls_that_do_not_fit_are_malformed(self, pieces: list[Any]) -> None:
        chunks = [self.words.chunk({"tool_calls": [piece]}) for piece in pieces]
        reply = self.events(*chunks, self.words.chunk({}, "tool_calls"), event("[DONE]"))
        assert (reply.outcome, reply.calls) == ("malformed", ())

    def test_pieces_of_two_calls_can_come_by_turns(self) -> None:
        def piece(index: int, **rest: Any) -> bytes:
            return self.words.chunk({"tool_calls": [{"index": index, **rest}]})

        reply = self.events(
            piece(0, id="c0", function={"name": "a", "arguments": '{"x"'}),
            piece(1, id="c1", function={"name": "b", "arguments": ""}),
            piece(0, id="c0", function={"name": "a", "arguments": ": 1}"}),
            self.words.chunk({}, "tool_calls"),
        )
        assert reply.calls == (ProposedCall("c0", "a", {"x": 1}), ProposedCall("c1", "b", {}))

    @pytest.mark.parametrize(
        "chunk",
        [
            {"choices": [{"index": 1, "delta": {"content": "a"}}]},
            {"choices": [{"index": 0, "delta": {"content": ["a"]}}]},
            {"choices": [{"index": 0, "delta": {"function_call": {"name": "a"}}}]},
            {"choices": [{"index": 0, "delta": "a"}]},
            {"choices": {"index": 0}},
            {"choices": ["a"]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tired"}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": 1}]},
        ],
    )
    def test_events_that_are_not_of_the_protocol_are_malformed(self, chunk: Any) -> None:
        assert self.events(event(chunk)).outcome == "malformed"

    def test_an_answer_that_goes_on_after_its_end_is_malformed(self) -> None:
        chunk = self.words.chunk
        assert self.events(chunk({"content": "a"}, "stop"), chunk({"content": "b"})).outcome == "malformed"

    def test_a_stream_without_its_usage_is_an_answer_if_http_says_that_it_is_whole(self) -> None:
        events = self.words.events(SAID)[:-2]
        for answer, outcome in ((Served(events), "answered"), (Served(events, then="closed"), "cut")):
            reply, _ = self.asked(lambda server: model_call(server, "openai"), answer)
            assert (reply.outcome, reply.usage) == (outcome, None)

    def test_usage_of_a_part_of_the_answer_is_no_usage(self) -> None:
        usage = {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": self.words.usage()}
        assert self.events(event(usage)).usage is None
        assert self.events(event(usage), event(usage | {"choices": [1]})).usage is None
        ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": self.words.usage()}
        assert self.events(event(usage), event(ended)).usage is not None

    @pytest.mark.parametrize("choices", [[], [{"message": {"content": "a"}, "finish_reason": "stop"}] * 2])
    def test_an_answer_without_one_choice_is_malformed(self, choices: list[Any]) -> None:
        whole = json.dumps({**self.words.whole(Said("a")), "choices": choices}).encode()
        reply, _ = self.asked(
            lambda server: model_call(server, "openai", streamed=False), Served([whole], kind="application/json")
        )
        assert (reply.outcome, reply.usage is not None) == ("malformed", True)

    @pytest.mark.parametrize(
        ("stated", "outcome"),
        [
            (error("rate_limit_exceeded"), "overloaded"),
            (error(None, kind="server_error"), "unavailable"),
            (error("content_filter"), "refused"),
            ({"error": "boom"}, "unavailable"),
            ({"error": {"message": 1}}, "unavailable"),
        ],
    )
    def test_an_error_within_a_stream_tells_its_outcome(self, stated: Any, outcome: str) -> None:
        reply = self.events(*self.words.events(SAID)[:4], event(stated))
        assert (reply.outcome, reply.text, reply.billed) == (outcome, "", True)

    @pytest.mark.parametrize(
        ("status", "stated", "outcome"),
        [
            (400, error("context_length_exceeded"), "too_large"),
            (400, error(None, "This model's maximum context length is 8192 tokens."), "too_large"),
            (400, error("content_filter"), "refused"),
            (400, error("model_not_found"), "unknown_model"),
            (404, error("model_not_found"), "unknown_model"),
            (429, error("insufficient_quota", kind="insufficient_quota"), "overloaded"),
            (401, error("invalid_api_key"), "unauthorized"),
            (400, {"error": "planted"}, "rejected"),
            (400, [], "rejected"),
            (200, error("rate_limit_exceeded"), "overloaded"),
        ],
    )
    def test_the_code_of_a_refusal_tells_more_than_its_status(self, status: int, stated: Any, outcome: str) -> None:
        reply, _ = self.asked(
            lambda server: model_call(server, "openai"),
            Served([json.dumps(stated).encode()], status, "application/json"),
        )
        assert reply.outcome == outcome
        assert "planted" not in reply.detail

    def test_a_schema_is_strict_where_it_can_be(self) -> None:
        for schema, strict in ((SCHEMA, True), ({"type": "object"}, False)):
            _, server = self.answered(SAID, output_schema=schema)
            sent = server.asked[0].body["response_format"]
            assert sent["json_schema"] == {"name": "answer", "schema": schema, "strict": strict}

    def test_limits_and_parameters_are_sent_and_only_those_of_the_protocol(self) -> None:
        def body(**parameters: Any) -> Any:
            return self.answered(SAID, profile={"parameters": parameters}, tools=one_tool("a"))[1].asked[0].body

        sent = body(temperature=0.5, reasoning_effort="low", seed=7)
        assert (sent["temperature"], sent["reasoning_effort"], sent["seed"]) == (0.5, "low", 7)
        assert (sent["max_completion_tokens"], sent["tool_choice"]) == (500, "auto")
        assert sent["stream_options"] == {"include_usage": True}
        for stated, limit in ((100, 100), (900, 500)):
            sent = body(max_tokens=stated)
            assert sent["max_tokens"] == limit
            assert "max_completion_tokens" not in sent
        for name in ("n", "stream", "model", "max_completion_tokens"):
            with pytest.raises(InvalidInput, match=f"no parameter `{name}`"):
                body(**{name: 5})
