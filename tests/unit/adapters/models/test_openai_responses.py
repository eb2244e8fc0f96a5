"""Responses over a server that speaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.adapters.models import openai_wire
from contextos.adapters.models.openai_responses import OpenAIResponses
from contextos.errors import InvalidInput
from tests.model_servers import ResponsesWords, Said, Served, event, model_call
from tests.suites.model_provider_suite import SAID, ModelProviderSuite, error, one_tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


class TestOpenAIResponses(ModelProviderSuite):
    words = ResponsesWords()
    make = OpenAIResponses
    conversation = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "refund order 1"},
        {"role": "assistant", "content": "I look"},
        {"type": "function_call", "call_id": "call_1", "name": "crm_read_order", "arguments": '{"order_id":"ord_1"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": '{"total": 9}'},
    ]

    def last_event(self) -> int:
        return len(self.words.events(SAID))

    def forget_the_sdk(self) -> None:
        openai_wire._client.cache_clear()

    def sent_tools(self, body: Any) -> list[str]:
        return [tool["name"] for tool in body["tools"]]

    def sent_messages(self, body: Any) -> Any:
        return body["input"]

    def whole(self, **changes: Any) -> Any:
        body = json.dumps({**self.words.whole(Said("a")), **changes}).encode()
        return self.asked(
            lambda server: model_call(server, "openai_responses", streamed=False),
            Served([body], kind="application/json"),
        )[0]

    @pytest.mark.parametrize(
        "output",
        [
            [{"type": "web_search_call", "status": "completed"}],
            [{"type": "message", "status": "in_progress", "content": []}],
            [{"type": "message", "content": [{"type": "image"}]}],
            [{"type": "message", "content": "a"}],
            [{"type": "message", "content": [{"type": "output_text", "text": 1}]}],
            [{"type": "function_call", "call_id": "c", "name": 1, "arguments": "{}"}],
            ["a"],
            {"type": "message"},
        ],
    )
    def test_an_output_that_is_not_of_the_protocol_is_malformed_and_billed(self, output: Any) -> None:
        reply = self.whole(output=output)
        assert (reply.outcome, reply.billed, reply.usage is not None) == ("malformed", True, True)

    @pytest.mark.parametrize(
        ("changes", "outcome"),
        [
            ({"status": "queued"}, "malformed"),
            ({"status": None}, "malformed"),
            ({"status": "incomplete", "incomplete_details": None}, "cut"),
            ({"status": "failed", "error": {"code": "rate_limit_exceeded"}}, "overloaded"),
            ({"status": "failed", "error": {"code": "server_error"}}, "unavailable"),
            ({"status": "failed", "error": {"code": "invalid_prompt"}}, "refused"),
            ({"status": "failed", "error": None}, "unavailable"),
        ],
    )
    def test_a_response_that_is_not_completed_tells_its_outcome(self, changes: Any, outcome: str) -> None:
        reply = self.whole(**changes)
        assert (reply.outcome, reply.text) == (outcome, "")

    @pytest.mark.parametrize(
        "stated", [{"type": "error", "code": "rate_limit_exceeded", "message": "m"}, error("rate_limit_exceeded")]
    )
    def test_an_error_within_a_stream_tells_its_outcome(self, stated: Any) -> None:
        events = [*self.words.events(SAID)[:5], event(stated)]
        reply, _ = self.asked(lambda server: model_call(server, "openai_responses"), Served(events))
        assert (reply.outcome, reply.text, reply.billed) == ("overloaded", "", True)

    def test_a_last_event_that_says_something_else_than_the_pieces_is_malformed(self) -> None:
        events = [*self.words.events(Said("it is sunny"))[:-1], self.words.events(Said("it rains"))[-1]]
        reply, _ = self.asked(lambda server: model_call(server, "openai_responses"), Served(events))
        assert (reply.outcome, reply.text) == ("malformed", "")

    def test_a_comment_on_the_work_is_not_part_of_the_answer(self) -> None:
        def message(text: str, phase: str | None) -> dict[str, Any]:
            return {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}

        assert self.whole(output=[message("I look", "commentary"), message("{}", "final_answer")]).text == "{}"
        assert self.whole(output=[message("I ", None), message("look", None)]).text == "I look"

    def test_a_schema_is_strict_where_it_can_be_and_nothing_is_stored(self) -> None:
        for schema, strict in ((SCHEMA, True), ({"type": "object"}, False)):
            _, server = self.answered(SAID, output_schema=schema, profile={"parameters": {"verbosity": "low"}})
            sent = server.asked[0].body
            form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": strict}
            assert sent["text"] == {"verbosity": "low", "format": form}
            assert sent["store"] is False

    def test_limits_and_parameters_are_sent_and_only_those_of_the_protocol(self) -> None:
        profile = {"parameters": {"reasoning_effort": "high", "top_p": 0.5}}
        sent = self.answered(SAID, profile=profile, tools=one_tool("a"), tool_choice="required")[1].asked[0].body
        assert (sent["reasoning"], sent["top_p"], sent["max_output_tokens"]) == ({"effort": "high"}, 0.5, 500)
        assert (sent["tool_choice"], sent["tools"][0]["strict"]) == ("required", False)
        for name in ("seed", "max_output_tokens", "store"):
            with pytest.raises(InvalidInput, match=f"no parameter `{name}`"):
                self.answered(SAID, profile={"parameters": {name: 5}})
