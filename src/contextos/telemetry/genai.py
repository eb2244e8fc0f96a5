"""The names of OpenTelemetry's GenAI conventions, in one place because they are not stable yet.

Pinned to the state of 2026-05 of the repository `semantic-conventions-genai` (status Development). Only names and ids
are used: the opt-in attributes with content (messages, instructions, arguments, results) have no name here, so nothing
can set them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

OPERATION_NAME: Final = "gen_ai.operation.name"
AGENT_ID: Final = "gen_ai.agent.id"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
ERROR_TYPE: Final = "error.type"

EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
"""The event of one score of a run."""

COMPONENT_OPERATIONS: Final[Mapping[str, str]] = {
    "intelligence.retrieval": "retrieval",
    "intelligence.memory_recall": "search_memory",
    "decision.planner": "plan",
}
"""The operation of each component whose span the conventions define."""


PROMPT_KINDS: Final = ("input", "cached_input", "cache_write", "cache_write_1h")
"""The kinds of usage that are tokens of a prompt."""
_TOKENS: Final[Mapping[str, Sequence[str]]] = {
    INPUT_TOKENS: PROMPT_KINDS,
    CACHE_READ_TOKENS: ("cached_input",),
    CACHE_WRITE_TOKENS: ("cache_write", "cache_write_1h"),
    OUTPUT_TOKENS: ("output", "reasoning"),
    REASONING_TOKENS: ("reasoning",),
}
_PROVIDERS: Final = {"openai_responses": "openai"}


def agent_span(agent_id: str) -> tuple[str, dict[str, str]]:
    """Return the name and the attributes of the span of a run: an agent is invoked.

    >>> agent_span("agt_support")[0]
    'invoke_agent agt_support'
    """
    return f"invoke_agent {agent_id}".rstrip(), {OPERATION_NAME: "invoke_agent", AGENT_ID: agent_id}


def tool_span(capability_id: str, tool_call_id: str) -> tuple[str, dict[str, str]]:
    """Return the name and the attributes of the span of a call.

    >>> tool_span("adp_orders.lookup", "tool_a6fa08b0fad459f8")[0]
    'execute_tool adp_orders.lookup'
    """
    attributes = {OPERATION_NAME: "execute_tool", TOOL_NAME: capability_id, TOOL_CALL_ID: tool_call_id}
    return f"execute_tool {capability_id}", attributes


def model_span(wire: str, model: str, *, embeds: bool) -> tuple[str, dict[str, str]]:
    """Return the name and the attributes of the span of a call of a model. The provider is named by its protocol.

    >>> model_span("openai_responses", "gpt-5", embeds=False)[0]
    'chat gpt-5'
    """
    provider, name = _PROVIDERS.get(wire, wire), "embeddings" if embeds else "chat"
    return f"{name} {model}", {OPERATION_NAME: name, PROVIDER_NAME: provider, REQUEST_MODEL: model}


def token_usage(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the attributes of billed usage by kind. In them the tokens of a cache also count as input.

    >>> token_usage({"input": 10, "cached_input": 90, "output": 5})[INPUT_TOKENS]
    100
    """
    counts_by_name = {name: [counts[kind] for kind in kinds if kind in counts] for name, kinds in _TOKENS.items()}
    return {name: sum(values) for name, values in counts_by_name.items() if values}


def evaluation(axis: str, score: float, label: str) -> dict[str, str | float]:
    """Return the attributes of the event of one score; `label` is `pass` or `fail`."""
    return {EVALUATION_NAME: axis, EVALUATION_SCORE: score, EVALUATION_LABEL: label}
