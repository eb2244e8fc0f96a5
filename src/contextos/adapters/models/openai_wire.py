"""The parts that both protocols of OpenAI share: the SDK, errors, parameters, schemas, arguments and usage.

The SDK sends the request and splits the answer into events. The content of the events is read here, since the SDK does
not validate it.
Source: OpenAI API reference, "Errors", "Structured outputs", "Prompt caching"; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import httpx2
import orjson
from openai import AsyncOpenAI, AsyncStream, OpenAIError

from contextos.adapters.models.transport import Answer, NotTheProtocol, Sdk, sdk_arguments
from contextos.contracts.encoding.codec import loads
from contextos.contracts.envelopes.models import ModelOutcome, TokenKind
from contextos.contracts.ports.models import MAX_PROPOSED_CALLS, MAX_USAGE_COUNT, ModelCall, ModelUsage, ProposedCall
from contextos.errors import MalformedJson

_STRICT_DEPTH: Final = 10
_STRICT_PROPERTIES: Final = 5_000
_STRICT_ENUM: Final = 1_000
_STRICT_WORDS: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "exclusiveMaximum"}
    | {"exclusiveMinimum", "format", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf"}
    | {"pattern", "properties", "required", "title", "type"}
)
_STRICT_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)

_OUTCOMES_BY_CODE: Final[Mapping[str, ModelOutcome]] = {
    "context_length_exceeded": "too_large",
    "string_above_max_length": "too_large",
    "request_too_large": "too_large",
    "content_filter": "refused",
    "content_policy_violation": "refused",
    "invalid_prompt": "refused",
    "bio_policy": "refused",
    "cyber_policy_violation": "refused",
    "misalignment_policy_violation": "refused",
    "insufficient_quota": "overloaded",
    "rate_limit_exceeded": "overloaded",
    "model_not_found": "unknown_model",
    "DeploymentNotFound": "unknown_model",
    "invalid_api_key": "unauthorized",
    "data_residency_mismatch": "rejected",
    "server_error": "unavailable",
}
_TOO_LARGE: Final = ("maximum context length", "context window", "context length")
"""Phrases in the errors of compatible servers that have no code for a prompt that does not fit."""


def error_outcome(body: Mapping[str, Any]) -> ModelOutcome | None:
    """Return the outcome that an error states, or None. `body` is `{"error": {...}}`, or the value of `error` alone."""
    error = body.get("error") if isinstance(body.get("error"), Mapping) else body
    assert isinstance(error, Mapping), "one of both is an object"
    for key in ("code", "type"):
        if isinstance(code := error.get(key), str) and code in _OUTCOMES_BY_CODE:
            return _OUTCOMES_BY_CODE[code]
    message = error.get("message")
    if isinstance(message, str) and any(phrase in message for phrase in _TOO_LARGE):
        return "too_large"
    return None


OPENAI: Final = Sdk((OpenAIError,), error_outcome)


@cache
def _client() -> AsyncOpenAI:
    """Return the client of the SDK. A value that it takes from the environment is overridden here or never sent."""
    unused: dict[str, Any] = {"admin_api_key": "not-sent", "organization": "", "project": "", "webhook_secret": ""}
    return AsyncOpenAI(**sdk_arguments(), **unused)


async def whole_answer(path: str, body: bytes) -> Mapping[str, Any]:
    """Send a request that does not ask for a stream, and return its answer."""
    answer = await _client().post(path, cast_to=httpx2.Response, content=body)
    return a_mapping(answer.json(), "the answer")


async def answer_events(path: str, body: bytes) -> AsyncIterator[Mapping[str, Any]]:
    """Send a request, and yield the events of its answer as they arrive."""
    stream = await _client().post(path, cast_to=object, content=body, stream=True, stream_cls=AsyncStream[object])
    async for event in stream:
        yield a_mapping(event, "an event")


def answer_format(call: ModelCall) -> dict[str, Any]:
    """Return the format of an answer: the name of its JSON Schema, the schema, and whether the provider enforces it."""
    assert call.output_schema is not None, "a schema is asked for"
    return {"name": "answer", "schema": call.output_schema, "strict": is_strict(call.output_schema)}


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Return whether a JSON Schema is in the subset that OpenAI can hold an answer to.

    The root is an object. Every object lists all its properties as `required` and allows no other property. Only some
    keywords of JSON Schema are allowed, and references stay in the schema.

    >>> is_strict({"type": "object", "properties": {}, "required": [], "additionalProperties": False})
    True
    >>> is_strict({"type": "object"})
    False
    """
    counts = {"properties": 0, "enum": 0}
    fits = schema.get("type") == "object" and "anyOf" not in schema and _is_strict(schema, 1, counts)
    return fits and counts["properties"] <= _STRICT_PROPERTIES and counts["enum"] <= _STRICT_ENUM


def _is_strict(schema: object, depth: int, counts: dict[str, int]) -> bool:
    if not isinstance(schema, Mapping) or depth > _STRICT_DEPTH or not schema.keys() <= _STRICT_WORDS:
        return False
    if not str(schema.get("$ref", "#")).startswith("#") or schema.get("format", "date") not in _STRICT_FORMATS:
        return False
    if not schema.keys() & {"type", "$ref", "anyOf", "enum", "const"}:
        return False
    properties = schema.get("properties", {})
    is_object = "object" in (kinds if isinstance(kinds := schema.get("type"), list) else [kinds])
    if is_object and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties)
    ):
        return False
    counts["properties"] += len(properties)
    counts["enum"] += len(schema.get("enum", ()))
    subschemas = [*properties.values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]
    if "items" in schema:
        subschemas.append(schema["items"])
    return all(_is_strict(subschema, depth + 1, counts) for subschema in subschemas)


def a_mapping(value: object, what: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises `NotTheProtocol` for anything else."""
    if not isinstance(value, Mapping):
        raise NotTheProtocol(f"{what} is not a JSON object")
    return value


def a_list(value: object, what: str) -> Sequence[Any]:
    """Return a list; an absent one is empty. Raises `NotTheProtocol` for anything else."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise NotTheProtocol(f"{what} is not a list")
    return value


def a_text(value: object, what: str) -> str:
    """Return a text; an absent one is empty. Raises `NotTheProtocol` for anything else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise NotTheProtocol(f"{what} is not text")
    return value


def proposed(calls: Sequence[tuple[str, str, str]], own: Callable[[str], str]) -> tuple[ProposedCall, ...]:
    """Return the tool calls of an answer. `calls` has the id, name and JSON of the arguments of each; `own` maps the
    name that the provider got to the tool's own name.

    Raises:
        NotTheProtocol: a call has no id, no name, or arguments that are not a JSON object; two calls have the same id;
            or there are too many calls.
    """
    if len(calls) > MAX_PROPOSED_CALLS:
        raise NotTheProtocol(f"the answer has more than {MAX_PROPOSED_CALLS} calls of tools")
    proposals = list[ProposedCall]()
    for call_id, name, arguments in calls:
        if not call_id or not name:
            raise NotTheProtocol("a call of a tool has no id or no name")
        try:
            args = loads(arguments or "{}")
        except MalformedJson:
            raise NotTheProtocol("the arguments of a call are not JSON") from None
        proposals.append(ProposedCall(call_id, own(name), a_mapping(args, "the value of the arguments of a call")))
    if len({call.call_id for call in proposals}) < len(proposals):
        raise NotTheProtocol("two calls of tools have the same id")
    return tuple(proposals)


def json_arguments(call: ProposedCall) -> str:
    """Return the arguments of an earlier call as JSON."""
    return orjson.dumps(dict(call.args)).decode()


_PROMPT_DETAILS: Final = frozenset({"cached_tokens", "cache_write_tokens", "cache_write_tokens_details", "text_tokens"})
_COMPLETION_DETAILS: Final = frozenset(
    {"reasoning_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens", "text_tokens"}
)
_CACHE_WRITES: Final = frozenset({"ttl_30m_tokens"})


def keep_usage(answer: Answer, reported: object, tier: object, names: tuple[str, str], *, answers: bool = True) -> None:
    """Keep the usage that a provider reports in `answer`, with each token counted in one kind. `names` has the names of
    its totals for the prompt and for the completion; without `answers` (embeddings) the second can be absent.

    The prompt includes tokens read from and written to a cache, and the completion includes reasoning. A usage that
    contradicts itself, or counts tokens of an unknown kind, is not kept; `usage_fault` then has the reason.
    """
    if reported is None:
        return
    try:
        answer.usage, answer.usage_fault = _usage(a_mapping(reported, "the usage"), tier, *names, answers), ""
    except NotTheProtocol as fault:
        answer.usage, answer.usage_fault = None, f"its usage is not used: {fault}"


def _usage(
    reported: Mapping[str, Any], tier: object, prompt_name: str, completion_name: str, answers: bool
) -> ModelUsage:
    prompt = _count(reported, prompt_name, required=True)
    completion = _count(reported, completion_name, required=answers)
    prompt_details, completion_details = (_part(reported, f"{name}_details") for name in (prompt_name, completion_name))
    cached, stored = _count(prompt_details, "cached_tokens"), _count(prompt_details, "cache_write_tokens")
    reasoning = _count(completion_details, "reasoning_tokens")
    if cached + stored > prompt or reasoning > completion:
        raise NotTheProtocol("a part of it is larger than the whole")
    if "total_tokens" in reported and _count(reported, "total_tokens") != prompt + completion:
        raise NotTheProtocol("its total is not the sum of its parts")
    _refuse_unpriced(_part(prompt_details, "cache_write_tokens_details"), _CACHE_WRITES)
    _refuse_unpriced(prompt_details, _PROMPT_DETAILS)
    _refuse_unpriced(completion_details, _COMPLETION_DETAILS)
    if tier is not None and not isinstance(tier, str):
        raise NotTheProtocol("its service tier is not a text")
    parts: Mapping[TokenKind, int] = {"cached_input": cached, "cache_write": stored, "reasoning": reasoning}
    counts: dict[TokenKind, int] = {"input": prompt - cached - stored, "output": completion - reasoning, "requests": 1}
    counts |= {kind: count for kind, count in parts.items() if count}
    return ModelUsage(counts, "" if tier in (None, "default") else tier, dict(reported))


def _part(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = usage.get(name)
    return {} if part is None else a_mapping(part, "a part of the usage")


def _refuse_unpriced(part: Mapping[str, Any], priced: frozenset[str]) -> None:
    """Raise `NotTheProtocol` if a part of the usage counts tokens of a kind that is not in `priced`."""
    if any(count not in (None, 0) for name, count in part.items() if name not in priced):
        raise NotTheProtocol("it counts tokens of a kind that has no price")


def _count(usage: Mapping[str, Any], name: str, *, required: bool = False) -> int:
    count = usage.get(name)
    if count is None and not required:
        return 0
    if type(count) is not int or not 0 <= count <= MAX_USAGE_COUNT:
        raise NotTheProtocol("one of its counts is not a number of tokens")
    return count
