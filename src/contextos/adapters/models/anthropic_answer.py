"""Reads the answer of a call in Anthropic's Messages protocol: a whole message, or the events of a stream.

A stream adds up to the message that the provider would have sent without one, so both are read by the same function.
The ends of a block, of the message and of the stream are three things: only a message that has its last event is an
answer. The usage of `message_delta` repeats the usage of `message_start`; they are not added.
Source: Anthropic, "Messages", "Streaming messages" (API version 2026-10-21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.adapters.models.anthropic_request import ANSWER_TOOL, MessagesRequest
from contextos.adapters.models.transport import Answer, NotTheProtocol
from contextos.contracts.encoding.codec import loads, own_copy
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.models import ModelOutcome, TokenKind
from contextos.contracts.ports.models import MAX_USAGE_COUNT, ModelReply, ModelUsage, ProposedCall
from contextos.errors import MalformedJson

_MAX_TIER_CHARS: Final = 64
_OUTCOMES_BY_STOP: Final[Mapping[str, tuple[ModelOutcome, str]]] = {
    "end_turn": ("answered", ""),
    "tool_use": ("answered", ""),
    "stop_sequence": ("answered", ""),
    "max_tokens": ("truncated", "the answer reached its limit of tokens"),
    "model_context_window_exceeded": ("truncated", "prompt and answer reached the context window of the model"),
    "refusal": ("refused", "the provider declined to answer"),
    "pause_turn": ("cut", "the provider paused the answer before its end"),
}
_PIECE_FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "text": ("text_delta", "text"),
    "tool_use": ("input_json_delta", "partial_json"),
}
"""By the type of a block: the type of its pieces, and the member with their text. Other blocks keep no pieces."""


def messages_usage(message: Any) -> ModelUsage | None:
    """Return the usage that a message states, with each token counted in one kind; None if it states none, or
    contradicts itself.

    The tier is "" if the standard prices hold, and else names what differs, such as `batch` or `fast+us`.

    >>> messages_usage({"usage": {"input_tokens": 12, "output_tokens": 3}}).counts
    {'input': 12, 'output': 3, 'requests': 1}
    """
    usage = message.get("usage") if isinstance(message, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    reported = _counts(usage, ("input_tokens", "output_tokens", "cache_read_input_tokens"))
    details = _counts(usage.get("output_tokens_details"), ("thinking_tokens",))
    cache_writes = _cache_writes(usage)
    tools = _tool_requests(usage.get("server_tool_use"))
    if reported is None or details is None or cache_writes is None or tools is None:
        return None
    tier, thinking = _tier(usage), details["thinking_tokens"]
    missing = usage.get("input_tokens") is None or usage.get("output_tokens") is None
    if missing or tier is None or thinking > reported["output_tokens"]:
        return None
    counts: dict[TokenKind, int] = {
        "input": reported["input_tokens"],
        "cached_input": reported["cache_read_input_tokens"],
        "cache_write": cache_writes[0],
        "cache_write_1h": cache_writes[1],
        "output": reported["output_tokens"] - thinking,
        "reasoning": thinking,
        "tool_requests": tools,
        "requests": 1,
    }
    used = {kind: count for kind, count in counts.items() if count or kind in ("input", "output")}
    return ModelUsage(used, tier, usage)


def _counts(usage: Any, names: Sequence[str]) -> dict[str, int] | None:
    """Return the counts of these names, 0 for an absent one; None if a value is not a count."""
    if usage is None:
        return dict.fromkeys(names, 0)
    if not isinstance(usage, Mapping):
        return None
    counts = {name: 0 if usage.get(name) is None else usage[name] for name in names}
    return counts if all(type(count) is int and 0 <= count <= MAX_USAGE_COUNT for count in counts.values()) else None


def _cache_writes(usage: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the tokens written to the cache for five minutes and for an hour; None if both forms are there and differ.
    Without a stated lifetime it is five minutes, the default of the provider.
    """
    total = _counts(usage, ("cache_creation_input_tokens",))
    lifetimes = _counts(usage.get("cache_creation"), ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"))
    if total is None or lifetimes is None:
        return None
    stated_total, (short, long) = total["cache_creation_input_tokens"], lifetimes.values()
    if usage.get("cache_creation") is None:
        return stated_total, 0
    if usage.get("cache_creation_input_tokens") is not None and stated_total != short + long:
        return None
    return short, long


def _tool_requests(used: Any) -> int | None:
    """Return the number of billed requests of tools that the provider runs; None if some have no known price. Fetches
    are free.
    """
    counts = _counts(used, tuple(used) if isinstance(used, Mapping) else ())
    if counts is None:
        return None
    searches = counts.pop("web_search_requests", 0)
    counts.pop("web_fetch_requests", None)
    return None if any(counts.values()) else searches


def _tier(usage: Mapping[str, Any]) -> str | None:
    """Return the service tier, speed and region that are not standard, joined by `+`; None if a value is not a name or
    is too long.
    """
    values = [usage.get("service_tier"), usage.get("speed"), usage.get("inference_geo")]
    names = [value for value in values if value not in (None, "", "standard", "global", "not_available")]
    return "+".join(names) if all(isinstance(name, str) and len(name) <= _MAX_TIER_CHARS for name in names) else None


class StreamedMessage:
    """The message that the events of a stream add up to. `begun`: its first event came. `ended`: its last event came.
    `failed`: an error event came.
    """

    def __init__(self) -> None:
        self.begun = self.ended = self.failed = False
        self._message: dict[str, Any] = {}
        self._usage: Any = None
        self._blocks = dict[int, tuple[dict[str, Any], list[str]]]()
        self._open_index: int | None = None

    @property
    def named(self) -> tuple[object, object]:
        """The model and the id that the message states."""
        return self._message.get("model"), self._message.get("id")

    def add(self, event: Any) -> str | None:
        """Add an event. Return the piece of text that it has, "" for a piece of anything else, or None for an event
        without a piece of the answer. Unknown kinds of events, blocks and pieces are left out.

        Raises:
            NotTheProtocol: it is not the event of a message, or it cannot come after the events before it.
        """
        kind = event.get("type") if isinstance(event, Mapping) else None
        if not isinstance(kind, str) or self.ended:
            raise NotTheProtocol("the stream has an event that is not one of a message")
        if kind == "error":
            self.failed = True
        elif kind == "message_start":
            if self.begun:
                raise NotTheProtocol("the message begins a second time")
            self.begun, self._message = True, dict(_object(event, "message"))
            self._usage = self._message.pop("usage", None)
        elif kind == "content_block_start":
            return self._start_block(event)
        elif kind == "content_block_delta":
            return self._add_piece(event)
        elif kind == "content_block_stop":
            self._open_block(event)
            self._open_index = None
        elif kind == "message_delta":
            self._message |= {name: value for name, value in _object(event, "delta").items() if value is not None}
            self._message["usage"] = _final_usage(self._message.get("usage", self._usage), event.get("usage"))
        elif kind == "message_stop":
            self.ended = True
        return None

    def whole(self) -> dict[str, Any]:
        """Return the message after its last event, with the blocks that have their end.

        Raises:
            NotTheProtocol: the message has no beginning, or a block of an answer has no end.
        """
        outcome, _ = _OUTCOMES_BY_STOP.get(str(self._message.get("stop_reason")), ("answered", ""))
        if not self.begun or (self._open_index is not None and outcome == "answered"):
            raise NotTheProtocol("the message ended before its parts")
        content = [_whole_block(*self._blocks[index]) for index in sorted(self._blocks) if index != self._open_index]
        return {**self._message, "content": content}

    def _start_block(self, event: Mapping[str, Any]) -> str:
        index = event.get("index")
        if not self.begun or self._open_index is not None or type(index) is not int or index in self._blocks:
            raise NotTheProtocol("a block of the message begins where none can")
        block = dict(_object(event, "content_block"))
        self._open_index, self._blocks[index] = index, (block, [])
        return text if block.get("type") == "text" and isinstance(text := block.get("text"), str) else ""

    def _add_piece(self, event: Mapping[str, Any]) -> str:
        block, pieces = self._open_block(event)
        kind, name = _PIECE_FORMS.get(str(block.get("type")), ("", ""))
        delta = _object(event, "delta")
        if not kind or delta.get("type") != kind:
            return ""
        piece = delta.get(name)
        if not isinstance(piece, str):
            raise NotTheProtocol("a piece of the message is not a text")
        pieces.append(piece)
        return piece if kind == "text_delta" else ""

    def _open_block(self, event: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        index = event.get("index")
        if self._open_index is None or type(index) is not int or index != self._open_index:
            raise NotTheProtocol("an event names a block that is not open")
        return self._blocks[index]


def _object(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = event.get(name)
    if not isinstance(value, Mapping):
        raise NotTheProtocol(f"an event of the stream has no `{name}`")
    return value


def _final_usage(first_usage: Any, last_usage: Any) -> dict[str, Any] | None:
    """Return the usage of a whole message: the counts in `last_usage` replace those in `first_usage`, which cover only
    a part of the output. None if `last_usage` is missing, or has a smaller count than `first_usage`.
    """
    if not isinstance(last_usage, Mapping):
        return None
    first = dict(first_usage) if isinstance(first_usage, Mapping) else {}
    usage = {name: value for name, value in first.items() if not name.startswith("output_tokens")}
    last = {name: value for name, value in last_usage.items() if value is not None}
    decreased = any(type(usage.get(name)) is type(value) is int and value < usage[name] for name, value in last.items())
    return None if decreased else usage | last


def _whole_block(block: Mapping[str, Any], pieces: Sequence[str]) -> Mapping[str, Any]:
    """Return a block with its pieces joined. Arguments of a tool (`input`) that are not JSON become None."""
    if block.get("type") == "text":
        return {**block, "text": f"{block.get('text') or ''}{''.join(pieces)}"}
    if block.get("type") == "tool_use" and any(pieces):
        try:
            return {**block, "input": loads("".join(pieces))}
        except MalformedJson:
            return {**block, "input": None}
    return block


def message_reply(message: Mapping[str, Any], answer: Answer, request: MessagesRequest) -> ModelReply:
    """Return the reply of a call whose whole message came. Keep its model, id and usage in `answer`.

    Raises:
        NotTheProtocol: it is not a message with a known reason to stop, or a block in it is not valid.
    """
    answer.named(message.get("model"), message.get("id"))
    answer.usage = messages_usage(message)
    if answer.usage is None:
        answer.usage_fault = "its usage is missing, or disagrees with itself"
    reason, content = message.get("stop_reason"), message.get("content")
    if not isinstance(reason, str) or reason not in _OUTCOMES_BY_STOP or not isinstance(content, list):
        raise NotTheProtocol("the answer is not a message with a reason to stop that is known")
    outcome, detail = _OUTCOMES_BY_STOP[reason]
    if outcome != "answered":
        return answer.ended(outcome, detail)
    text, calls = _parts(content, request)
    if reason == "tool_use" and not calls and not request.by_tool:
        raise NotTheProtocol("it stopped for a call of a tool, and there is none")
    return answer.answered(text, calls)


def _parts(content: Sequence[Any], request: MessagesRequest) -> tuple[str, tuple[ProposedCall, ...]]:
    """Return the text and the calls in the blocks of a message. Other blocks, such as thoughts, are left out."""
    texts, calls, answers = list[str](), list[ProposedCall](), list[str]()
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text":
            texts.append(_text_member(block, "text"))
        elif kind == "tool_use":
            tool, args = request.names.own(_text_member(block, "name")), _arguments(block.get("input"))
            if request.by_tool and tool == ANSWER_TOOL:
                answers.append(canonical(args).decode())
            else:
                calls.append(ProposedCall(_text_member(block, "id"), tool, args))
    if len({call.call_id for call in calls}) < len(calls) or len(answers) > 1:
        raise NotTheProtocol("two calls of tools have the same id, or it gave two answers")
    return (answers[0] if answers else "".join(texts)), tuple(calls)


def _arguments(value: Any) -> Mapping[str, Any]:
    try:
        args = own_copy(value)
    except MalformedJson:
        args = None
    if not isinstance(args, Mapping):
        raise NotTheProtocol("the arguments of a call of a tool are not a JSON object")
    return args


def _text_member(block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str) or (not value and name != "text"):
        raise NotTheProtocol(f"a block of the message has no `{name}`")
    return value
