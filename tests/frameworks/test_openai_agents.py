"""The OpenAI Agents SDK: waiting is a tool that needs approval, a refusal a text; and an agent that is killed goes on
with one effect.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, RunState, UserError
from openai.types.responses import ResponseFunctionToolCall

from contextos.errors import Unavailable
from contextos.frameworks.openai_agents import approve_answered, gate_tools
from examples.frameworks import desk, with_openai_agents
from tests.frameworks.runs import effects, in_a_session, in_the_docs, measured_governed, measured_twin, workspace

pytestmark = pytest.mark.slow


def test_an_agent_that_is_killed_goes_on_with_one_run_one_record_and_one_effect(tmp_path: Path) -> None:
    measured = measured_governed("with_openai_agents", tmp_path)
    assert (measured.waiting, measured.after_effect) == (1, 1)
    row = measured.row("OpenAI Agents SDK, governed")
    print(row)
    assert in_the_docs(row)


@pytest.mark.soak
def test_the_same_agent_without_contextos_rolls_back_twice(tmp_path: Path) -> None:
    row = measured_twin("tests.frameworks.twin_openai_agents", tmp_path).row("OpenAI Agents SDK alone")
    print(row)
    assert in_the_docs(row)


class Says(with_openai_agents.Scripted):
    """A model whose first message makes these calls. The second one says that it is done."""

    def __init__(self, *calls: tuple[str, str, str]) -> None:
        self.calls = [
            ResponseFunctionToolCall(type="function_call", call_id=call_id, name=f"deploy__{name}", arguments=args)
            for name, args, call_id in calls
        ]

    async def get_response(self, *rest: Any, **asked: Any) -> Any:
        said = any(isinstance(one, dict) and one.get("type") == "function_call" for one in asked["input"])
        done: Any = {**asked, "input": [{"type": "function_call"}] * len(desk.CALLS)}
        response = await super().get_response(**done)
        if not said:
            response.output = list(self.calls)
        return response


def agent_of(gate: Any, model: Any) -> Any:
    return Agent("deployer", model=model, tools=gate_tools(gate))


def answers(result: Any) -> dict[str, str]:
    """What the model read about each of its calls."""
    items = result.to_input_list()
    return {one["call_id"]: one["output"] for one in items if one.get("type") == "function_call_output"}


async def reloaded(agent: Any, result: Any) -> Any:
    """The state of an interrupted run, as another process reads it."""
    return await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))


STATUS = '{"service": "api"}'
PROD, STAGING = (json.dumps({"service": "api", "env": env}) for env in ("prod", "staging"))


def test_a_resumed_agent_that_nobody_approved_is_interrupted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any) -> None:
        agent = agent_of(gate, with_openai_agents.Scripted())
        result = await Runner.run(agent, "roll back")
        for _ in range(2):
            assert [item.call_id for item in result.interruptions] == ["call_2"]
            assert "policy denies" in answers(result)["call_1"]
            assert effects(tmp_path) == []
            state = await reloaded(agent, result)
            assert not await approve_answered(state, gate)
            result = await Runner.run(agent, state)
        state = await reloaded(agent, result)
        state.approve(state.get_interruptions()[0])
        with pytest.raises(UserError, match="waits for `approval` about the call `call_2`") as raised:
            await Runner.run(agent, state)
        assert isinstance(raised.value.__cause__, Unavailable)
        assert effects(tmp_path) == [], "an approval in the state approves nothing"
        await desk.approve(app, gate, directory)
        state = await reloaded(agent, result)
        assert await approve_answered(state, gate)
        ended = await Runner.run(agent, state)
        assert ended.final_output == "done"
        assert effects(tmp_path) == ["api prod"]

    in_a_session(directory, with_openai_agents.tools(), play)


def test_calls_of_one_message_wait_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any) -> None:
        await Runner.run(agent_of(gate, Says(("ci_status", STATUS, "call_0"))), "look")
        agent = agent_of(gate, Says(("rollback", PROD, "call_1"), ("rollback", STAGING, "call_2")))
        result = await Runner.run(agent, "roll back")
        assert {item.call_id for item in result.interruptions} == {"call_1", "call_2"}
        for left in (1, 0):
            await desk.approve(app, gate, directory)
            state = await reloaded(agent, result)
            assert await approve_answered(state, gate)
            result = await Runner.run(agent, state)
            assert len(result.interruptions) == left
        assert result.final_output == "done"
        assert sorted(effects(tmp_path)) == ["api prod", "api staging"]

    in_a_session(directory, with_openai_agents.tools(), play)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"service"', "the arguments are not JSON: "),
        ("[]", "the arguments are not an object"),
        ('{"service": NaN}', "the arguments are not JSON: "),
        ('{"service": 123456789012345678901234567890}', "the arguments are not JSON: "),
    ],
    ids=["cut", "list", "nan", "large_number"],
)
def test_arguments_that_are_none_are_refused_and_the_model_reads_why(arguments: str, told: str, tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        agent = agent_of(gate, Says(("ci_status", arguments, "call_0")))
        result = await Runner.run(agent, "look")
        if result.interruptions:
            # The SDK interrupts for arguments that it cannot read, without asking.
            state = await reloaded(agent, result)
            assert await approve_answered(state, gate)
            result = await Runner.run(agent, state)
        assert result.final_output == "done"
        assert told in answers(result)["call_0"]

    in_a_session(workspace(tmp_path / "desk"), with_openai_agents.tools(), play)


def test_a_key_that_is_there_twice_reaches_the_gate_as_the_sdk_reads_it(tmp_path: Path) -> None:
    """What was judged before the call and what is answered after it are one call."""

    async def play(app: Any, gate: Any) -> None:
        twice = '{"service": "billing", "service": "api"}'
        result = await Runner.run(agent_of(gate, Says(("ci_status", twice, "call_0"))), "look")
        assert answers(result)["call_0"] == '{"commit":"0f1e2d3c","green":true}'

    in_a_session(workspace(tmp_path / "desk"), with_openai_agents.tools(), play)


def test_a_session_that_is_over_is_a_text_for_the_model(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        await gate.finish("denied", "no")
        result = await Runner.run(agent_of(gate, Says(("ci_status", STATUS, "call_0"))), "look")
        assert "open a new session" in answers(result)["call_0"]

    in_a_session(workspace(tmp_path / "desk"), with_openai_agents.tools(), play)
