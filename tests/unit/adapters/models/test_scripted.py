"""Models whose answers a script lists."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from contextos.adapters.models.scripted import ScriptedModels
from contextos.contracts.envelopes.models import ModelProfile
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply, ModelUsage
from contextos.errors import InvalidInput
from tests.modelled import profile

CALL = ModelCall(ModelProfile.model_validate(profile()), (ModelMessage("user", "go"),), 100, 1_000, 1_000, ())


def ask(models: ScriptedModels, call: ModelCall = CALL, **of: Any) -> ModelReply:
    return asyncio.run(models.complete(call, **of))


def test_the_answers_of_a_model_come_in_order() -> None:
    models = ScriptedModels({"large": [{"text": "a"}, {"text": {"b": 1}}]})
    assert [ask(models).text, ask(models).text] == ["a", '{"b":1}']
    assert ask(models).outcome == "unknown_model", "the script is over"


def test_in_another_process_the_conversation_says_how_far_it_is() -> None:
    later = replace(CALL, messages=(*CALL.messages, ModelMessage("assistant", "a"), ModelMessage("user", "on")))
    assert ask(ScriptedModels({"large": [{"text": "a"}, {"text": "b"}]}), later).text == "b"


def test_an_answer_states_calls_usage_and_what_became_of_it() -> None:
    answer = {"calls": [{"tool": "a.b", "args": {"c": 1}}], "usage": {"input": 3}, "outcome": "refused"}
    seen: list[str] = []
    reply = ask(ScriptedModels({"large": [answer]}), on_text=seen.append)
    assert (reply.outcome, reply.usage, seen) == ("refused", ModelUsage({"input": 3}), [""])
    assert [(one.call_id, one.tool, one.args) for one in reply.calls] == [("call_0_0", "a.b", {"c": 1})]


@pytest.mark.parametrize("script", [{"large": "a"}, {"large": ["a"]}])
def test_what_is_no_script_is_refused(script: Any) -> None:
    with pytest.raises(InvalidInput, match="are not a list of objects"):
        ScriptedModels(script)
