"""`AnthropicMessages`: the wire `anthropic`, which is the Messages protocol of Anthropic and of servers that speak it.

The official SDK sends the request and splits the answer into events. The content of the events is read here, since the
SDK does not validate it. The version of the API is stated, so that another release of the SDK changes nothing. The
endpoint of a profile can end with `/v1` or not.
Source: Anthropic, "Messages", "Streaming messages", "Errors" (API version 2026-10-21); docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import httpx2
import orjson
from anthropic import AnthropicError, AsyncAnthropic, AsyncStream

from contextos.adapters.models.anthropic_answer import StreamedMessage, message_reply
from contextos.adapters.models.anthropic_request import MessagesRequest, messages_request
from contextos.adapters.models.transport import (
    Answer,
    NotTheProtocol,
    Sdk,
    exchange,
    request_json,
    sdk_arguments,
    streams,
)
from contextos.adapters.outbound import OutboundClient
from contextos.contracts.envelopes.models import ModelOutcome
from contextos.contracts.ports.models import ModelCall, ModelReply, OnText

_HEADERS: Final = {"anthropic-version": "2026-10-21"}
_OUTCOMES_BY_TYPE: Final[Mapping[str, ModelOutcome]] = {
    "api_error": "unavailable",
    "authentication_error": "unauthorized",
    "billing_error": "unauthorized",
    "not_found_error": "unknown_model",
    "overloaded_error": "overloaded",
    "permission_error": "unauthorized",
    "rate_limit_error": "overloaded",
    "request_too_large": "too_large",
    "timeout_error": "unavailable",
}
"""The outcome by type of error. `invalid_request_error` is missing: its status, one of several, says more."""
_TOO_LARGE: Final = ("prompt is too long", "exceed context limit", "context window", "maximum context length")
"""Phrases in the errors of the API for a prompt that does not fit, which has no code."""
_SPEND_LIMIT: Final = "spend_limit_reached"
"""The end of the codes of a spend limit. They come with the statuses of a wrong request and of too many calls."""


class AnthropicMessages:
    """Calls models by Messages (`ModelProvider`)."""

    def __init__(self, client: OutboundClient) -> None:
        self._client = client

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        request = messages_request(call)
        body = request_json(request.body)

        async def read(answer: Answer) -> ModelReply:
            if streams(call):
                return await _read_stream(body, answer, request)
            reply = message_reply(await _read_whole(body), answer, request)
            answer.hand_on(reply.text)
            return reply

        path = "/messages" if call.profile.endpoint.rstrip("/").endswith("/v1") else "/v1/messages"
        return await exchange(self._client, call, _SDK, read, path=path, headers=_HEADERS, on_text=on_text)


def messages_outcome(body: Mapping[str, Any]) -> ModelOutcome | None:
    """Return the outcome that the object of an error (`{"type": "error", "error": {...}}`) states, or None."""
    error = body.get("error")
    if not isinstance(error, Mapping):
        return None
    details, message = error.get("details"), error.get("message")
    code = details.get("error_code") if isinstance(details, Mapping) else None
    if isinstance(code, str) and code.endswith(_SPEND_LIMIT):
        return "overloaded"
    if isinstance(message, str) and any(phrase in message for phrase in _TOO_LARGE):
        return "too_large"
    return _OUTCOMES_BY_TYPE.get(str(error.get("type")))


_SDK: Final = Sdk((AnthropicError,), messages_outcome)


@cache
def _client() -> AsyncAnthropic:
    """Return the client of the SDK. A value that it takes from the environment is overridden here or never sent."""
    return AsyncAnthropic(**sdk_arguments(), webhook_key="", open_telemetry=False)


async def _read_whole(body: bytes) -> Mapping[str, Any]:
    response = await _client().post("/", cast_to=httpx2.Response, content=body)
    return _parse_object(response.content)


async def _read_stream(body: bytes, answer: Answer, request: MessagesRequest) -> ModelReply:
    message = StreamedMessage()
    stream = await _client().post("/", cast_to=object, content=body, stream=True, stream_cls=AsyncStream[object])
    async with stream:
        async for raw_event in AsyncStream.raw_events(stream.response):
            if not raw_event.data:
                continue
            event = _parse_object(raw_event.data)
            piece = message.add(event)
            if not answer.reply_id:
                answer.named(*message.named)
            if message.failed:
                outcome = messages_outcome(event) or "unavailable"
                return answer.ended(outcome, "it sent an error instead of an answer", billed=message.begun)
            if piece is not None:
                answer.hand_on(piece)
            if message.ended:
                return message_reply(message.whole(), answer, request)
    return answer.ended("cut", "the answer ended before its last event")


def _parse_object(text: bytes | str) -> Mapping[str, Any]:
    """Return the JSON object in a text. Raises a `ValueError` (`NotTheProtocol`) if there is none."""
    value = orjson.loads(text)
    if not isinstance(value, dict):
        raise NotTheProtocol("what came is not a JSON object")
    return value
