"""What a model is shown of an answer that was not taken, and what the digest of a question covers."""

from __future__ import annotations

from dataclasses import replace

from contextos.action.models.questions import ModelAnswer, ModelQuestion, answer_sent_back, prompt_json, unasked_calls
from contextos.contracts.model import changed
from contextos.contracts.ports.models import ModelMessage, ModelTool, ProposedCall

TOOL = ModelTool("look", "Looks.", {"type": "object"})
ASKED = ModelQuestion("judge.plan", "k", (ModelMessage("user", "go"),), "INTERNAL", 1_000, lambda _: (), tools=(TOOL,))
CALLED = ModelAnswer("I look", (ProposedCall("c1", "look", {"a": 1}), ProposedCall("c2", "look", {})), "p@1.0.0")


def test_an_answer_with_calls_goes_back_with_a_result_for_each() -> None:
    said, *results = answer_sent_back(ASKED, CALLED, ["it is late"])
    assert (said.role, said.text, said.calls) == ("assistant", "I look", CALLED.calls)
    assert [(one.role, one.call_id) for one in results] == [("tool", "c1"), ("tool", "c2")]
    assert "it is late" in results[0].text


def test_calls_that_no_provider_would_take_go_back_as_text() -> None:
    twice = replace(CALLED, calls=(CALLED.calls[0], CALLED.calls[0]))
    assert [one.role for one in answer_sent_back(ASKED, twice, ["x"])] == ["assistant", "user"]
    assert [one.role for one in answer_sent_back(ASKED, replace(twice, text=" "), ["x"])] == ["user"]
    assert unasked_calls(ASKED, twice) == ("one of its calls has no id, or two have the same",)
    assert unasked_calls(changed(ASKED, tools=()), CALLED) == ("it calls tools, and no tool is offered",)
    assert unasked_calls(ASKED, CALLED) == ()


def test_a_query_and_a_text_that_is_found_are_two_questions() -> None:
    texts = changed(ASKED, operation="embed", messages=(), tools=(), texts=("a", "b"))
    assert prompt_json(texts) == {"texts": ["a", "b"], "as_query": False}
    assert prompt_json(changed(texts, as_query=True)) != prompt_json(texts)
    assert "texts" not in prompt_json(ASKED)
