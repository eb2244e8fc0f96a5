"""What a model is asked and what it answers, as a run states them: what is sent, counted, recorded and sent back.

Source: docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.jcs import digest
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import DEFAULT_TOKENIZER, ModelOperation, ModelProfile
from contextos.contracts.model import final_fields
from contextos.contracts.ports.models import ModelMessage, ModelTool, ProposedCall, Vector

MAX_SENT_BACK: Final = 8_192
"""How many characters of an answer that was not taken a model is shown again."""


@final_fields
class ModelQuestion:
    """What a model is asked. `key` is that of its entries, unique in the run. `shown` is the highest classification of
    what the messages show. `timeout_ms` is the time for each attempt. `fits` returns what is wrong with an answer;
    nothing where it fits. A question that embeds has `texts` and no messages.
    """

    operation: ModelOperation
    key: str
    messages: tuple[ModelMessage, ...]
    shown: Classification
    timeout_ms: int
    fits: Callable[[ModelAnswer], Sequence[str]]
    tools: tuple[ModelTool, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    texts: tuple[str, ...] = ()
    as_query: bool = False


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer that is whole: text, calls of tools, or both; and the profile that gave it. `vectors` are those of the
    texts that were embedded; None where the answer was read from the journal, which has no vector.
    """

    text: str
    calls: tuple[ProposedCall, ...]
    profile: str
    vectors: tuple[Vector, ...] | None = None


def asked_body(
    question: ModelQuestion, prompt: bytes, profile: ModelProfile, counts: Sequence[int], most: int, reserved: int
) -> dict[str, Any]:
    """What is recorded of a question before it is sent."""
    asked: dict[str, Any] = {
        "request_digest": digest(prompt),
        "wire": profile.wire,
        "model": profile.model,
        "input_tokens": min(sum(counts), most),
        "most_input_tokens": most,
        "reserved_units": reserved,
    }
    named = {"texts": len(question.texts)} if question.texts else {}
    return asked | named | ({"tokenizer": profile.tokenizer} if profile.tokenizer != DEFAULT_TOKENIZER else {})


def prompt_json(question: ModelQuestion) -> dict[str, Any]:
    """What is sent, apart from how the protocol of the provider writes it."""
    if question.texts:
        return {"texts": list(question.texts), "as_query": question.as_query}
    tools = [
        {"name": one.name, "description": one.description, "input_schema": one.input_schema} for one in question.tools
    ]
    messages = [message_json(one) for one in question.messages]
    return {"messages": messages, "tools": tools, "output_schema": question.output_schema}


def message_json(message: ModelMessage) -> dict[str, Any]:
    stated: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.calls:
        stated["calls"] = calls_json(message.calls)
    return stated | ({"call_id": message.call_id} if message.call_id else {})


def calls_json(calls: Sequence[ProposedCall]) -> list[dict[str, Any]]:
    return [{"call_id": one.call_id, "tool": one.tool, "args": dict(one.args)} for one in calls]


def proposed_calls(stated: Sequence[Mapping[str, Any]]) -> tuple[ProposedCall, ...]:
    return tuple(ProposedCall(**one) for one in stated)


def unasked_calls(question: ModelQuestion, answer: ModelAnswer) -> tuple[str, ...]:
    """Why the calls of an answer are not those of a question."""
    if not answer.calls:
        return ()
    if not question.tools:
        return ("it calls tools, and no tool is offered",)
    return () if _are_named(answer.calls) else ("one of its calls has no id, or two have the same",)


def _are_named(calls: Sequence[ProposedCall]) -> bool:
    return all(one.call_id for one in calls) and len({one.call_id for one in calls}) == len(calls)


def answer_sent_back(question: ModelQuestion, answer: ModelAnswer, findings: Sequence[str]) -> tuple[ModelMessage, ...]:
    """What a model receives about an answer that was not taken. Of its calls and its empty text is sent back what a
    provider would take.
    """
    why = "\n".join(["Your answer was not taken:", *(f"- {one}" for one in findings), "Answer again, whole."])
    text = answer.text[:MAX_SENT_BACK]
    if answer.calls and question.tools and _are_named(answer.calls):
        said = ModelMessage("assistant", text, answer.calls)
        return said, *(ModelMessage("tool", why, call_id=one.call_id) for one in answer.calls)
    return *((ModelMessage("assistant", text),) if text.strip() else ()), ModelMessage("user", why)
