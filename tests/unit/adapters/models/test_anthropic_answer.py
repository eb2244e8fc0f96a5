"""A stream adds up to the message that would have come whole, and a part of it is never the whole."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contextos.adapters.models.anthropic import messages_outcome
from contextos.adapters.models.anthropic_answer import StreamedMessage, message_reply, messages_usage
from contextos.adapters.models.anthropic_request import MessagesRequest
from contextos.adapters.models.tool_names import ToolNames
from contextos.adapters.models.transport import Answer, NotTheProtocol
from contextos.contracts.ports.models import ModelReply
from tests.messages_words import message, stream_of, text, tool_use

REQUEST = MessagesRequest({}, ToolNames(["crm.read"]))
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | WORDS, lambda inner: st.lists(inner, max_size=3))
COUNTS = st.integers(0, 10_000)


@st.composite
def a_message(draw: st.DrawFn) -> dict[str, Any]:
    texts = st.builds(text, WORDS)
    thoughts = st.builds(lambda thought: {"type": "thinking", "thinking": thought, "signature": ""}, WORDS)
    calls = st.builds(tool_use, st.sampled_from(["crm_read", "other"]), st.dictionaries(WORDS, JSON, max_size=3))
    blocks = draw(st.lists(texts | thoughts | calls, max_size=5))
    for number, block in enumerate(blocks):
        if block["type"] == "tool_use":
            block["id"] = f"toolu_{number}"
    stops = ["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn", "model_context_window_exceeded", "new"]
    output = draw(COUNTS)
    usage = {
        "input_tokens": draw(COUNTS),
        "cache_read_input_tokens": draw(COUNTS),
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": draw(st.integers(0, output))},
    }
    return message(blocks, draw(st.sampled_from(stops)), usage=usage)


def became(stated: Any) -> ModelReply | str:
    answer = Answer(None)
    try:
        reply = message_reply(stated, answer, REQUEST)
    except NotTheProtocol as fault:
        return f"{fault} {answer.usage and answer.usage.counts}"
    assert reply.usage is None or sum(reply.usage.counts.values()) == 1 + sum(
        stated["usage"][name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    return reply


@given(a_message())
def test_a_stream_is_read_as_the_message_that_it_adds_up_to(stated: dict[str, Any]) -> None:
    streamed, pieces = StreamedMessage(), list[str]()
    for event in json.loads(json.dumps(stream_of(stated))):
        assert not streamed.ended
        pieces.append(streamed.add(event) or "")
    assert streamed.ended
    found, expected = became(streamed.whole()), became(stated)
    if isinstance(expected, ModelReply) and isinstance(found, ModelReply):
        assert (found.outcome, found.text, found.calls) == (expected.outcome, expected.text, expected.calls)
        assert found.usage is not None
        assert found.usage.counts == (expected.usage and expected.usage.counts)
        assert found.outcome != "answered" or found.text == "".join(pieces)
    else:
        assert found == expected


@given(a_message(), st.data())
def test_a_stream_that_lost_any_event_but_a_ping_or_a_piece_is_not_read_as_more(
    stated: dict[str, Any], data: st.DataObject
) -> None:
    stream = stream_of(stated)
    lost = data.draw(st.sampled_from(range(len(stream))))
    streamed = StreamedMessage()
    try:
        for event in [*stream[:lost], *stream[lost + 1 :]]:
            streamed.add(event)
        found = became(streamed.whole()) if streamed.ended else "cut"
    except NotTheProtocol:
        return
    if stream[lost]["type"] in ("content_block_start", "content_block_stop", "message_start"):
        assert not isinstance(found, ModelReply) or found.outcome != "answered"
    if stream[lost]["type"] in ("message_delta", "message_stop"):
        assert not isinstance(found, ModelReply)


NAMES = st.sampled_from(
    [
        "type",
        "index",
        "message",
        "content_block",
        "delta",
        "usage",
        "content",
        "stop_reason",
        "text",
        "partial_json",
        "name",
        "id",
        "input",
        "input_tokens",
        "output_tokens",
        "output_tokens_details",
        "cache_creation",
        "service_tier",
        "server_tool_use",
        "speed",
        "error",
        "details",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | NAMES,
    lambda inner: st.dictionaries(NAMES, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=8,
)


def changed(value: Any, draw: st.DataObject) -> Any:
    """The value with something else in one place of it."""
    if not isinstance(value, dict | list) or not value or draw.draw(st.integers(0, 3)) == 0:
        return draw.draw(ANYTHING)
    at = draw.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[at] = changed(value[at], draw)
    return copy


@given(a_message(), st.data())
def test_whatever_comes_is_a_reply_or_not_the_protocol(stated: dict[str, Any], data: st.DataObject) -> None:
    became_of(changed(stated, data))
    streamed = StreamedMessage()
    with suppress(NotTheProtocol):
        stream = stream_of(stated)
        at = data.draw(st.sampled_from(range(len(stream))))
        for event in [*stream[:at], changed(stream[at], data), *stream[at + 1 :]]:
            streamed.add(event)
            if streamed.failed and isinstance(event, dict):
                messages_outcome(event)
            if streamed.ended:
                became_of(streamed.whole())
                break


def became_of(stated: Any) -> None:
    answer = Answer(None)
    with suppress(NotTheProtocol):
        reply = message_reply(stated if isinstance(stated, dict) else {}, answer, REQUEST)
        assert reply.outcome == "answered" or not (reply.text or reply.calls)
    usage = messages_usage(stated)
    assert usage is None or all(type(count) is int and count >= 0 for count in usage.counts.values())
