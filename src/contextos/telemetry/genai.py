"""The names of OpenTelemetry's GenAI conventions, in one place because they are not stable yet.

Pinned to the state of 2026-05 of the repository `semantic-conventions-genai` (status Development). Only names and ids
are used: the opt-in attributes with content (messages, instructions, arguments, results) have no name here, so nothing
can set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OPERATION_NAME: Final = "gen_ai.operation.name"
AGENT_ID: Final = "gen_ai.agent.id"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
ERROR_TYPE: Final = "error.type"

EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
"""The event of one score of a run."""

COMPONENT_OPERATIONS: Final[Mapping[str, str]] = {
    "intelligence.retrieval": "retrieval",
    "intelligence.memory_recall": "search_memory",
    "decision.planner": "plan",
}
"""The operation of a component whose span is one of the conventions."""


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


def evaluation(axis: str, score: float, label: str) -> dict[str, str | float]:
    """Return the attributes of the event of one score; `label` is `pass` or `fail`."""
    return {EVALUATION_NAME: axis, EVALUATION_SCORE: score, EVALUATION_LABEL: label}
