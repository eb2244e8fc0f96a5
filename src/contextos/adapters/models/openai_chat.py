"""`OpenAIChat`: the wire `openai`, which is Chat Completions of OpenAI and of every server that speaks it. Profiles of
models that embed use Embeddings instead (`openai_embeddings`).

The limit of an answer is sent as `max_completion_tokens`, which covers reasoning too. A server that knows only the
older name gets that name if the profile has `max_tokens` among its parameters; the lower of both limits holds. An
answer is whole when its choice has a finish reason, and HTTP says that its body is whole.
Source: OpenAI API reference, "Chat Completions"; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from contextos.adapters.models.openai_embeddings import embeddings
from contextos.adapters.models.openai_wire import (
    OPENAI,
    a_list,
    a_mapping,
    a_text,
    answer_events,
    answer_format,
    json_arguments,
    keep_usage,
    proposed,
    whole_answer,
)
from contextos.adapters.models.tool_names import ToolNames
from contextos.adapters.models.transport import Answer, NotTheProtocol, exchange, parameters, request_json, streams
from contextos.adapters.outbound import OutboundClient
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply, OnText

_PATH: Final = "/chat/completions"
_TOTALS: Final = ("prompt_tokens", "completion_tokens")
_PARAMETERS: Final = (
    *("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"),
    *("seed", "reasoning_effort", "verbosity", "max_tokens"),
)


def _same_name(name: str) -> Callable[[object], Mapping[str, Any]]:
    return lambda value: {name: value}


_PARAMETER_FORMS: Final = {name: _same_name(name) for name in _PARAMETERS}


class OpenAIChat:
    """Calls models by Chat Completions, or by Embeddings (`ModelProvider`)."""

    def __init__(self, client: OutboundClient) -> None:
        self._client = client

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        if call.texts:
            return await embeddings(self._client, call)
        names = ToolNames.of(call)
        body = request_json(_request(call, names))

        async def read(answer: Answer) -> ModelReply:
            choice = _Choice(answer, names)
            if streams(call):
                async for event in answer_events(_PATH, body):
                    choice.add(event)
            else:
                choice.take(await whole_answer(_PATH, body))
            return choice.reply()

        return await exchange(self._client, call, OPENAI, read, path=_PATH, on_text=on_text)


def _request(call: ModelCall, names: ToolNames) -> dict[str, Any]:
    body = parameters(call, _PARAMETER_FORMS)
    body |= {"model": call.profile.model, "messages": [_message(message, names) for message in call.messages]}
    if "max_tokens" in body:
        body["max_tokens"] = min(body["max_tokens"], call.max_output_tokens)
    else:
        body["max_completion_tokens"] = call.max_output_tokens
    if call.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": names.sent(tool.name),
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in call.tools
        ]
        body["tool_choice"] = call.tool_choice
    if call.output_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": answer_format(call)}
    if streams(call):
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _message(message: ModelMessage, names: ToolNames) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": names.sent(call.tool), "arguments": json_arguments(call)},
        }
        for call in message.calls
    ]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls}


class _Choice:
    """The only choice of an answer, as far as it was read."""

    def __init__(self, answer: Answer, names: ToolNames) -> None:
        self._answer, self._names = answer, names
        self._text, self._refusal = list[str](), ""
        self._calls = list[list[str]]()
        self._finish: str | None = None

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event of a stream."""
        self._answer.named(event.get("model"), event.get("id"))
        for choice in a_list(event.get("choices"), "`choices`"):
            self._add_choice(choice, "delta")
        if self._finish is not None:  # What some servers report before counts only what there is so far.
            self._add_usage(event)

    def take(self, body: Mapping[str, Any]) -> None:
        """Take an answer that is not streamed."""
        self._answer.named(body.get("model"), body.get("id"))
        self._add_usage(body)
        choices = a_list(body.get("choices"), "`choices`")
        if len(choices) != 1:
            raise NotTheProtocol(f"the answer has {len(choices)} choices, and one was asked for")
        message = self._add_choice(choices[0], "message")
        for index, tool_call in enumerate(a_list(message.get("tool_calls"), "`tool_calls`")):
            self._add_call({**a_mapping(tool_call, "a call of a tool"), "index": index})

    def reply(self) -> ModelReply:
        """Return the reply of the call."""
        answer = self._answer
        if self._finish is None:
            return answer.ended("cut", "the answer ended before its reason to finish")
        if self._finish == "length":
            return answer.ended("truncated", "the answer stopped at its token limit")
        if self._refusal or self._finish == "content_filter":
            return answer.ended("refused", "the model or a filter of the provider declined")
        if self._finish not in ("stop", "tool_calls"):
            return answer.ended("malformed", "the answer has a reason to finish that the protocol does not have")
        calls = proposed([(call_id, name, args) for call_id, name, args in self._calls], self._names.own)
        return answer.answered("".join(self._text), calls)

    def _add_usage(self, report: Mapping[str, Any]) -> None:
        keep_usage(self._answer, report.get("usage"), report.get("service_tier"), _TOTALS)

    def _add_choice(self, value: object, key: str) -> Mapping[str, Any]:
        choice = a_mapping(value, "a choice")
        if choice.get("index", 0) != 0 or self._finish is not None:
            raise NotTheProtocol("the answer has a choice that nobody asked for, or goes on after its end")
        piece = a_mapping(choice.get(key) or {}, f"`{key}`")
        if piece.get("function_call") is not None:
            raise NotTheProtocol("the answer calls a function in the form that was withdrawn")
        if text := a_text(piece.get("content"), "the text"):
            self._text.append(text)
            self._answer.hand_on(text)
        self._refusal += a_text(piece.get("refusal"), "the refusal")
        if key == "delta":
            for tool_call in a_list(piece.get("tool_calls"), "`tool_calls`"):
                self._add_call(a_mapping(tool_call, "a call of a tool"))
        self._finish = a_text(choice.get("finish_reason"), "the reason to finish") or None
        return piece

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        """Add a piece of a call of a tool to the call with its index; the first piece has the id and the name."""
        index, function = piece.get("index"), a_mapping(piece.get("function") or {}, "`function`")
        call_id, name = a_text(piece.get("id"), "an id"), a_text(function.get("name"), "the name of a tool")
        if type(index) is not int or not 0 <= index <= len(self._calls) or piece.get("type") not in ("function", None):
            raise NotTheProtocol("a call of a tool has an index or a type that does not fit")
        if index == len(self._calls):
            self._calls.append([call_id, name, ""])
        elif call_id not in ("", self._calls[index][0]) or name not in ("", self._calls[index][1]):
            raise NotTheProtocol("two calls of tools have the same index")
        self._calls[index][2] += a_text(function.get("arguments"), "the arguments of a call")
        self._answer.began()
