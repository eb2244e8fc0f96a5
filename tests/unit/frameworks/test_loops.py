"""The messages that a plain loop hands over: whose calls are asked for, and what is no message of a model."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from contextos.contracts.ports.gates import Done
from contextos.errors import InvalidInput
from contextos.frameworks.loops import anthropic_answers, openai_answers
from tests.unit.frameworks.test_offers import gate_of


@pytest.mark.parametrize(
    "message",
    [
        None,
        "done",
        {"role": "user", "content": "roll back"},
        {"role": "assistant", "content": None, "tool_calls": [7]},
        {"role": "assistant", "content": [7], "tool_calls": "x"},
    ],
    ids=["nothing", "text", "user", "call_that_is_none", "content_that_is_none"],
)
def test_what_is_no_message_of_a_model_is_refused(message: Any) -> None:
    for answers in (openai_answers, anthropic_answers):
        with pytest.raises(InvalidInput, match="give the message that the client returned"):
            asyncio.run(answers(None, message))  # type: ignore[arg-type]


def gate_that_records(asked: list[Any]) -> Any:
    async def call(name: str, args: Any, *, call_id: str) -> Done:
        asked.append((name, args, call_id))
        return Done(call_id, {"result": True})

    gate = gate_of("shop.look")
    return SimpleNamespace(tools=gate.tools, described_tools=gate.described_tools, call=call)


def test_a_message_without_calls_has_no_answers() -> None:
    gate = gate_of("shop.look")
    assert asyncio.run(openai_answers(gate, ChatCompletionMessage(role="assistant", content="done"))) == []
    assert asyncio.run(anthropic_answers(gate, {"role": "assistant", "content": "done"})) == []


def test_a_custom_call_of_openai_reaches_the_gate_with_its_text() -> None:
    """The gate has no such tools, so a real one refuses it, on record."""
    asked: list[Any] = []
    custom = {"id": "call_0", "type": "custom", "custom": {"name": "shell", "input": "7"}}
    answers = asyncio.run(openai_answers(gate_that_records(asked), {"role": "assistant", "tool_calls": [custom]}))
    assert asked == [("shell", "7", "call_0")]
    assert answers == [{"role": "tool", "tool_call_id": "call_0", "content": '{"result":true}'}]


def test_only_the_uses_of_tools_are_calls_of_anthropic() -> None:
    asked: list[Any] = []
    content = [
        {"type": "thinking", "thinking": "let me look"},
        {"type": "server_tool_use", "id": "srv_0", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "call_0", "name": "shop__look", "input": {"order": "a"}},
    ]
    answers = asyncio.run(anthropic_answers(gate_that_records(asked), {"role": "assistant", "content": content}))
    assert asked == [("shop.look", {"order": "a"}, "call_0")]
    assert isinstance(answers, list)
    assert len(answers[0]["content"]) == 1
