"""The GenAI conventions: names and ids only, and nothing that holds content."""

from __future__ import annotations

from contextos.telemetry import genai

CONTENT = {
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.query.text",
    "gen_ai.retrieval.documents",
    "gen_ai.evaluation.explanation",
}
"""The attributes of the conventions that are opt-in, or that hold text."""


def test_a_call_is_an_execution_of_a_tool() -> None:
    name, attributes = genai.tool_span("adp_orders.lookup", "tool_1")
    assert name == "execute_tool adp_orders.lookup"
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "adp_orders.lookup",
        "gen_ai.tool.call.id": "tool_1",
    }


def test_a_run_is_an_invocation_of_an_agent_also_if_nobody_knows_which() -> None:
    assert genai.agent_span("agt_support")[0] == "invoke_agent agt_support"
    assert genai.agent_span("")[0] == "invoke_agent"


def test_a_score_is_an_evaluation() -> None:
    assert genai.evaluation("policy", 0.5, "fail") == {
        "gen_ai.evaluation.name": "policy",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.evaluation.score.label": "fail",
    }


def test_no_attribute_with_content_has_a_name_here() -> None:
    names = {value for value in vars(genai).values() if isinstance(value, str)}
    assert "gen_ai.operation.name" in names
    assert not names & CONTENT
