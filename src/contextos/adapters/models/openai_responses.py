"""`OpenAIResponses`: the wire `openai_responses`. OpenAI is asked to store nothing of a call.

A stream is whole when its last event has come. That event holds the answer again, which has to equal the pieces.
Source: OpenAI API reference, "Responses", "Streaming events"; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from contextos.adapters.models.openai_wire import (
    OPENAI,
    a_list,
    a_mapping,
    a_text,
    answer_events,
    answer_format,
    error_outcome,
    json_arguments,
    keep_usage,
    proposed,
    whole_answer,
)
from contextos.adapters.models.tool_names import ToolNames
from contextos.adapters.models.transport import Answer, NotTheProtocol, exchange, parameters, request_json, streams
from contextos.adapters.outbound import OutboundClient
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply, OnText

_PATH: Final = "/responses"
_TOTALS: Final = ("input_tokens", "output_tokens")
_PARAMETER_FORMS: Final = {
    "temperature": lambda value: {"temperature": value},
    "top_p": lambda value: {"top_p": value},
    "reasoning_effort": lambda value: {"reasoning": {"effort": value}},
    "verbosity": lambda value: {"text": {"verbosity": value}},
}
_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_PIECE_EVENTS: Final = frozenset(
    {"response.output_text.delta", "response.refusal.delta", "response.function_call_arguments.delta"}
    | {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
)


class OpenAIResponses:
    """Calls models by Responses (`ModelProvider`)."""

    def __init__(self, client: OutboundClient) -> None:
        self._client = client

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        names = ToolNames.of(call)
        body = request_json(_request(call, names))

        async def read(answer: Answer) -> ModelReply:
            if streams(call):
                return await _read_stream(answer, body, names)
            response = await whole_answer(_PATH, body)
            reply = _reply(answer, response, names)
            answer.hand_on(reply.text)
            return reply

        return await exchange(self._client, call, OPENAI, read, path=_PATH, on_text=on_text)


def _request(call: ModelCall, names: ToolNames) -> dict[str, Any]:
    body = parameters(call, _PARAMETER_FORMS)
    body |= {
        "model": call.profile.model,
        "input": [item for message in call.messages for item in _items(message, names)],
        "max_output_tokens": call.max_output_tokens,
        "store": False,
    }
    if call.tools:
        # If `strict` is absent, this protocol changes the schema, which then is not the one that the gateway checks.
        body["tools"] = [
            {
                "type": "function",
                "name": names.sent(tool.name),
                "description": tool.description,
                "parameters": tool.input_schema,
                "strict": False,
            }
            for tool in call.tools
        ]
        body["tool_choice"] = call.tool_choice
    if call.output_schema is not None:
        body["text"] = {**body.get("text", {}), "format": {"type": "json_schema", **answer_format(call)}}
    if streams(call):
        body["stream"] = True
    return body


def _items(message: ModelMessage, names: ToolNames) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.call_id, "output": message.text}
        return
    if message.text or not message.calls:
        yield {"role": message.role, "content": message.text}
    for call in message.calls:
        yield {
            "type": "function_call",
            "call_id": call.call_id,
            "name": names.sent(call.tool),
            "arguments": json_arguments(call),
        }


async def _read_stream(answer: Answer, body: bytes, names: ToolNames) -> ModelReply:
    pieces, last = list[str](), None
    async for event in answer_events(_PATH, body):
        kind = event.get("type")
        if last is not None:
            raise NotTheProtocol("the answer goes on after its last event")
        if kind in _LAST_EVENTS:
            last = a_mapping(event.get("response"), "the answer of the last event")
        elif kind == "error":
            outcome = error_outcome(event) or "unavailable"
            return answer.ended(outcome, "it sent an error instead of an answer")
        elif kind in _PIECE_EVENTS:
            piece = a_text(event.get("delta"), "a piece")
            answer.began()
            if kind == "response.output_text.delta":
                pieces.append(piece)
                answer.hand_on(piece)
    if last is None:
        return answer.ended("cut", "the answer ended before its last event")
    reply = _reply(answer, last, names)
    if pieces and reply.outcome == "answered" and "".join(pieces) != _whole_text(last):
        raise NotTheProtocol("the last event does not say what the pieces said")
    return reply


def _reply(answer: Answer, response: Mapping[str, Any], names: ToolNames) -> ModelReply:
    """Return the reply that a response states for its call."""
    answer.named(response.get("model"), response.get("id"))
    keep_usage(answer, response.get("usage"), response.get("service_tier"), _TOTALS)
    status = response.get("status")
    if status == "failed":
        outcome = error_outcome(a_mapping(response.get("error") or {}, "the error")) or "unavailable"
        return answer.ended(outcome, "it says that the answer failed")
    if status == "incomplete":
        reason = a_mapping(response.get("incomplete_details") or {}, "the reason").get("reason")
        if reason == "max_output_tokens":
            return answer.ended("truncated", "the answer stopped at its token limit")
        if reason == "content_filter":
            return answer.ended("refused", "a filter of the provider declined")
        return answer.ended("cut", "the answer is incomplete")
    if status != "completed":
        raise NotTheProtocol("the answer has a status that an answer does not have")
    parts = list(_parts(response))
    if any(part.get("type") == "refusal" for _, part in parts):
        return answer.ended("refused", "the model declined")
    # A model can send comments before its answer. Only the answer has to fit a schema.
    phases = {phase for phase, _ in parts}
    text = "".join(part["text"] for phase, part in parts if phase == "final_answer" or "final_answer" not in phases)
    return answer.answered(text, proposed(list(_calls(response)), names.own))


def _whole_text(response: Mapping[str, Any]) -> str:
    return "".join(part["text"] for _, part in _parts(response))


def _output(response: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for entry in a_list(response.get("output"), "`output`"):
        item = a_mapping(entry, "an item of the answer")
        if item.get("type") not in ("message", "function_call", "reasoning"):
            raise NotTheProtocol("the answer has an item that nobody asked for")
        if item.get("status") not in ("completed", None):
            raise NotTheProtocol("an item of a whole answer is not whole")
        yield item


def _parts(response: Mapping[str, Any]) -> Iterator[tuple[object, Mapping[str, Any]]]:
    """Yield the parts of the messages of a response, each with the phase of its message."""
    for item in _output(response):
        if item["type"] == "message":
            for entry in a_list(item.get("content"), "the content of a message"):
                part = a_mapping(entry, "a part of a message")
                if part.get("type") == "output_text":
                    yield item.get("phase"), {**part, "text": a_text(part.get("text"), "the text")}
                elif part.get("type") == "refusal":
                    yield item.get("phase"), part
                else:
                    raise NotTheProtocol("a message has a part that is not text")


def _calls(response: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for item in _output(response):
        if item["type"] == "function_call":
            fields = (item.get(name) for name in ("call_id", "name", "arguments"))
            call_id, name, args = (a_text(field, "a field of a call") for field in fields)
            yield call_id, name, args
