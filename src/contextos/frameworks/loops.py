"""Plain loops over the SDKs of OpenAI and Anthropic: the tool calls of a model's message become calls of a gate.

The message can be the SDK's object, or its JSON as the program keeps it. Nothing of either SDK is imported.
The gate is asked for all calls of a message, in order, up to the first call that waits. When the wait is over, ask
again with the same message, in any process: the calls that were made give their recorded answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from contextos.contracts.ports.gates import Done, Refused, ToolGate, Waiting
from contextos.errors import InvalidInput, Problem
from contextos.frameworks.offers import answer_text, ask, is_error, offered_tools


async def openai_answers(gate: ToolGate, message: Any) -> list[dict[str, Any]] | Waiting:
    """Answer the tool calls of a message of OpenAI's chat API, whose tools are `function_tools(gate)`.

    Return a tool message for each call, to be appended to the messages, or the `Waiting` if the session waits.

    Raises:
        InvalidInput: `message` is not a message of a model.
        Unavailable: the gate cannot answer now; ask again with the same message.
    """
    calls = []
    for call in _require_objects(_message_json(message).get("tool_calls") or []):
        function = call.get(str(call.get("type"))) or {}
        calls.append((function.get("name"), function.get("arguments", function.get("input")), call.get("id")))
    answers = await _ask_all(gate, calls)
    if isinstance(answers, Waiting):
        return answers
    return [{"role": "tool", "tool_call_id": answer.call_id, "content": answer_text(answer)} for answer in answers]


def anthropic_tools(gate: ToolGate) -> list[dict[str, Any]]:
    """Return the tools of a session as Anthropic's messages API takes them.

    Raises:
        InvalidInput: as `offered_tools`.
    """
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
        for tool in offered_tools(gate).values()
    ]


async def anthropic_answers(gate: ToolGate, message: Any) -> list[dict[str, Any]] | Waiting:
    """Answer the tool calls of a message of Anthropic's messages API, whose tools are `anthropic_tools(gate)`.

    Return the messages to append: one message with a result for each call, [] if there is no call; or the `Waiting`.

    Raises:
        InvalidInput: `message` is not a message of a model.
        Unavailable: the gate cannot answer now; ask again with the same message.
    """
    content = _message_json(message).get("content")
    blocks = [] if isinstance(content, str) else _require_objects(content)
    calls = [(part.get("name"), part.get("input"), part.get("id")) for part in blocks if part.get("type") == "tool_use"]
    answers = await _ask_all(gate, calls)
    if isinstance(answers, Waiting):
        return answers
    results = [
        {"type": "tool_result", "tool_use_id": item.call_id, "content": answer_text(item), "is_error": is_error(item)}
        for item in answers
    ]
    return [{"role": "user", "content": results}] if results else []


async def _ask_all(gate: ToolGate, calls: Iterable[tuple[Any, Any, Any]]) -> list[Done | Refused] | Waiting:
    offered, answers = offered_tools(gate), []
    for name, args, call_id in calls:
        answer = await ask(gate, offered, name, args, call_id)
        if isinstance(answer, Waiting):
            return answer
        answers.append(answer)
    return answers


def _message_json(message: Any) -> Mapping[str, Any]:
    fields = message if isinstance(message, Mapping) else getattr(message, "to_dict", dict)()
    if fields.get("role") != "assistant":
        raise _bad_message(f"the `{type(message).__name__}` is not a message of a model")
    return fields


def _require_objects(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise _bad_message("its content is not a list of objects")
    return value


def _bad_message(detail: str) -> InvalidInput:
    remedy = "give the message that the client returned, or its `to_dict()`"
    return InvalidInput(Problem("/message", "no_message", detail, remedy))
