"""Define a run's question to a model and the answer, and build what is sent, counted, recorded and sent back.

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
"""The most characters of a refused answer that are sent back to the model."""


@final_fields
class ModelQuestion:
    """A question to a model. `key` is the key of its journal entries, unique in the run. `shown` is the highest
    classification of the content in the messages. `timeout_ms` limits each attempt. `fits` returns the faults of an
    answer, none if it fits. A question that embeds has `texts` and no messages.
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
    """A complete answer: text, calls of tools, or both; and the profile that gave it. `vectors` are the vectors of the
    embedded texts; None if the answer was read from the journal, which stores no vectors.
    """

    text: str
    calls: tuple[ProposedCall, ...]
    profile: str
    vectors: tuple[Vector, ...] | None = None


def asked_body(
    question: ModelQuestion, prompt: bytes, profile: ModelProfile, counts: Sequence[int], most: int, reserved: int
) -> dict[str, Any]:
    """Return the body of `model.asked`: what is recorded of a question before it is sent."""
    body: dict[str, Any] = {
        "request_digest": digest(prompt),
        "wire": profile.wire,
        "model": profile.model,
        "input_tokens": min(sum(counts), most),
        "most_input_tokens": most,
        "reserved_units": reserved,
    }
    text_count = {"texts": len(question.texts)} if question.texts else {}
    return body | text_count | ({"tokenizer": profile.tokenizer} if profile.tokenizer != DEFAULT_TOKENIZER else {})


def prompt_json(question: ModelQuestion) -> dict[str, Any]:
    """Return the content of a question that is sent, independent of the provider's protocol."""
    if question.texts:
        return {"texts": list(question.texts), "as_query": question.as_query}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in question.tools
    ]
    messages = [message_json(message) for message in question.messages]
    return {"messages": messages, "tools": tools, "output_schema": question.output_schema}


def message_json(message: ModelMessage) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.calls:
        body["calls"] = calls_json(message.calls)
    return body | ({"call_id": message.call_id} if message.call_id else {})


def calls_json(calls: Sequence[ProposedCall]) -> list[dict[str, Any]]:
    return [{"call_id": call.call_id, "tool": call.tool, "args": dict(call.args)} for call in calls]


def proposed_calls(stated: Sequence[Mapping[str, Any]]) -> tuple[ProposedCall, ...]:
    return tuple(ProposedCall(**call) for call in stated)


def unasked_calls(question: ModelQuestion, answer: ModelAnswer) -> tuple[str, ...]:
    """Return why the calls of an answer do not fit the question; empty if they do."""
    if not answer.calls:
        return ()
    if not question.tools:
        return ("it calls tools, and no tool is offered",)
    return () if _have_unique_ids(answer.calls) else ("one of its calls has no id, or two have the same",)


def _have_unique_ids(calls: Sequence[ProposedCall]) -> bool:
    return all(call.call_id for call in calls) and len({call.call_id for call in calls}) == len(calls)


def answer_sent_back(question: ModelQuestion, answer: ModelAnswer, findings: Sequence[str]) -> tuple[ModelMessage, ...]:
    """Return the messages that send a refused answer back with the reasons. Calls without an own id each, and a blank
    text without calls, are left out, because a provider would refuse them.
    """
    advice = "\n".join(
        ["Your answer was not taken:", *(f"- {finding}" for finding in findings), "Answer again, whole."]
    )
    text = answer.text[:MAX_SENT_BACK]
    if answer.calls and question.tools and _have_unique_ids(answer.calls):
        refused_answer = ModelMessage("assistant", text, answer.calls)
        return refused_answer, *(ModelMessage("tool", advice, call_id=call.call_id) for call in answer.calls)
    return *((ModelMessage("assistant", text),) if text.strip() else ()), ModelMessage("user", advice)
