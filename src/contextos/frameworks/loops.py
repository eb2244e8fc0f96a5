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
    for call in _listed(_json(message).get("tool_calls") or []):
        said = call.get(str(call.get("type"))) or {}
        calls.append((said.get("name"), said.get("arguments", said.get("input")), call.get("id")))
    answers = await _answers(gate, calls)
    if isinstance(answers, Waiting):
        return answers
    return [{"role": "tool", "tool_call_id": one.call_id, "content": answer_text(one)} for one in answers]


def anthropic_tools(gate: ToolGate) -> list[dict[str, Any]]:
    """Return the tools of a session as Anthropic's messages API takes them.

    Raises:
        InvalidInput: as `offered_tools`.
    """
    return [
        {"name": one.name, "description": one.description, "input_schema": dict(one.input_schema)}
        for one in offered_tools(gate).values()
    ]


async def anthropic_answers(gate: ToolGate, message: Any) -> list[dict[str, Any]] | Waiting:
    """Answer the tool calls of a message of Anthropic's messages API, whose tools are `anthropic_tools(gate)`.

    Return the messages to append: one message with a result for each call, [] if there is no call; or the `Waiting`.

    Raises:
        InvalidInput: `message` is not a message of a model.
        Unavailable: the gate cannot answer now; ask again with the same message.
    """
    content = _json(message).get("content")
    blocks = [] if isinstance(content, str) else _listed(content)
    calls = [(one.get("name"), one.get("input"), one.get("id")) for one in blocks if one.get("type") == "tool_use"]
    answers = await _answers(gate, calls)
    if isinstance(answers, Waiting):
        return answers
    results = [
        {"type": "tool_result", "tool_use_id": one.call_id, "content": answer_text(one), "is_error": is_error(one)}
        for one in answers
    ]
    return [{"role": "user", "content": results}] if results else []


async def _answers(gate: ToolGate, calls: Iterable[tuple[Any, Any, Any]]) -> list[Done | Refused] | Waiting:
    offered, answers = offered_tools(gate), []
    for name, args, call_id in calls:
        answer = await ask(gate, offered, name, args, call_id)
        if isinstance(answer, Waiting):
            return answer
        answers.append(answer)
    return answers


def _json(message: Any) -> Mapping[str, Any]:
    read = message if isinstance(message, Mapping) else getattr(message, "to_dict", dict)()
    if read.get("role") != "assistant":
        raise _no_message(f"the `{type(message).__name__}` is not a message of a model")
    return read


def _listed(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise _no_message("its content is not a list of objects")
    return value


def _no_message(detail: str) -> InvalidInput:
    remedy = "give the message that the client returned, or its `to_dict()`"
    return InvalidInput(Problem("/message", "no_message", detail, remedy))
