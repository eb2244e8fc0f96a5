"""Pydantic AI: waiting is a deferred call, a refusal a retry; and an agent that is killed goes on with one effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, Tool
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import contextos
from contextos.frameworks.pydantic_ai import GateToolset, ask_again
from contextos.frameworks.wrapping import govern
from examples.frameworks import desk, with_pydantic_ai
from tests.frameworks.runs import effects, in_a_session, in_the_docs, measured_governed, measured_twin, workspace

pytestmark = pytest.mark.slow


def test_an_agent_that_is_killed_goes_on_with_one_run_one_record_and_one_effect(tmp_path: Path) -> None:
    measured = measured_governed("with_pydantic_ai", tmp_path)
    assert (measured.waiting, measured.after_effect) == (1, 1)
    row = measured.row("Pydantic AI, governed")
    print(row)
    assert in_the_docs(row)


@pytest.mark.soak
def test_the_same_agent_without_contextos_rolls_back_twice(tmp_path: Path) -> None:
    row = measured_twin("tests.frameworks.twin_pydantic_ai", tmp_path).row("Pydantic AI alone")
    print(row)
    assert in_the_docs(row)


async def called(toolset: GateToolset[None], name: str, args: Any, call_id: str) -> Any:
    """One call by the toolset, as an agent makes it."""
    context: Any = type("Context", (), {"tool_call_id": call_id, "max_retries": 1})()
    tools = await toolset.get_tools(context)
    return await toolset.call_tool(name, args, context, tools[name])


def answers(run: Any) -> dict[str, str]:
    """What the model read about each of its calls."""
    parts = [part for message in run.all_messages() for part in message.parts]
    answered = [one for one in parts if isinstance(one, ToolReturnPart | RetryPromptPart)]
    return {one.tool_call_id: str(one.content) for one in answered}


def with_an_agent(directory: Path, play: Any, deploy: Any = None) -> None:
    async def inside(app: Any, gate: Any) -> None:
        agent = Agent(
            FunctionModel(with_pydantic_ai.scripted),
            toolsets=[GateToolset(gate)],
            output_type=[str, DeferredToolRequests],
        )
        await play(app, gate, agent)

    in_a_session(directory, deploy or with_pydantic_ai.tools(), inside)


def test_a_resumed_call_that_nobody_approved_waits_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any, agent: Any) -> None:
        first = await agent.run("roll back")
        assert [call.tool_call_id for call in first.output.approvals] == ["call_2"]
        assert first.output.metadata["call_2"]["waits_for"] == "approval"
        assert "policy denies" in answers(first)["call_1"]
        history = first.all_messages()
        again = await agent.run(message_history=history, deferred_tool_results=ask_again(history, gate))
        assert [call.tool_call_id for call in again.output.approvals] == ["call_2"]
        assert effects(tmp_path) == []

    with_an_agent(directory, play)


def test_a_changed_call_under_a_waiting_id_is_refused_and_the_model_reads_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any, agent: Any) -> None:
        history = (await agent.run("roll back")).all_messages()
        await desk.approve(app, gate, directory)
        last = next(one for one in reversed(history) if isinstance(one, ModelResponse))
        last.tool_calls[0].args = {"service": "payments", "env": "prod"}
        ended = await agent.run(message_history=history, deferred_tool_results=ask_again(history, gate))
        assert ended.output == "done"
        assert "`call_2` was used for another call; use a new call id" in answers(ended)["call_2"]
        # The engine may have made the call that was approved.
        assert set(effects(tmp_path)) <= {"api prod"}

    with_an_agent(directory, play)


def test_arguments_that_no_json_can_hold_are_a_refusal_for_the_model(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any, agent: Any) -> None:
        for args in ({"service": float("inf")}, {"service": "\ud800"}, ["api"]):
            with pytest.raises(ModelRetry, match=r"the arguments are not (JSON|an object)"):
                await called(GateToolset(gate), "deploy__ci_status", args, "call_9")
        with pytest.raises(ModelRetry, match="the call id is not printable ASCII"):
            await called(GateToolset(gate), "deploy__ci_status", {"service": "api"}, "nüll")

    with_an_agent(workspace(tmp_path / "desk"), play)


def test_a_member_that_is_there_twice_is_a_refusal_for_the_model(tmp_path: Path) -> None:
    def twice(messages: Any, info: Any) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart(str(messages[-1].parts))])
        return ModelResponse([ToolCallPart("deploy__ci_status", '{"service": "a", "service": "api"}', "call_1")])

    async def play(app: Any, gate: Any, agent: Any) -> None:
        told = await Agent(FunctionModel(twice), toolsets=[GateToolset(gate)]).run("look")
        assert "the arguments are not JSON" in told.output
        assert "has this key twice" in told.output

    with_an_agent(workspace(tmp_path / "desk"), play)


def test_a_write_that_refuses_in_the_words_of_the_framework_did_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = workspace(tmp_path / "desk")

    def rollback(service: str, env: str) -> str:
        """Put the build before back into service."""
        raise ModelRetry("there is no build before this one")

    deploy = contextos.toolset(
        "deploy",
        [
            govern(Tool(desk.ci_status), risk="read", produces="ci", integrity="trusted"),
            govern(Tool(rollback), risk="irreversible", idempotency="none"),
        ],
    )

    async def play(app: Any, gate: Any, agent: Any) -> None:
        first = await agent.run("roll back")
        await desk.approve(app, gate, directory)
        history = first.all_messages()
        last = await agent.run(message_history=history, deferred_tool_results=ask_again(history, gate))
        assert last.output == "done"
        assert "model_retry: there is no build before this one" in answers(last)["call_2"]
        record = (await gate.finish("denied", "no build")).record
        assert record["effects"] == []

    with_an_agent(directory, play, deploy)


def test_the_model_reads_that_an_answer_is_that_of_an_earlier_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any, agent: Any) -> None:
        history = (await agent.run("roll back")).all_messages()
        await desk.approve(app, gate, directory)
        await agent.run(message_history=history, deferred_tool_results=ask_again(history, gate))
        again = await called(GateToolset(gate), "deploy__rollback", {"service": "api", "env": "prod"}, "call_9")
        assert again == 'the recorded answer of an earlier call: {"result":"api in prod is back"}'
        assert effects(tmp_path) == ["api prod"]

    with_an_agent(directory, play)


def test_only_calls_of_the_gate_are_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any, agent: Any) -> None:
        assert ask_again([], gate) is None
        history = (await agent.run("roll back")).all_messages()
        last = next(one for one in reversed(history) if isinstance(one, ModelResponse))
        foreign = ToolCallPart("pay_everybody", {}, tool_call_id="call_foreign")
        mixed = [*history[: history.index(last)], ModelResponse(parts=[*last.parts, foreign])]
        again = ask_again(mixed, gate)
        assert again is not None
        assert set(again.approvals) == {"call_2"}

    with_an_agent(directory, play)


def test_a_session_that_is_over_ends_the_call_without_a_retry(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any, agent: Any) -> None:
        await gate.finish("denied", "no")
        with pytest.raises(ToolFailed, match="open a new session"):
            await called(GateToolset(gate), "deploy__ci_status", {"service": "api"}, "call_9")

    with_an_agent(workspace(tmp_path / "desk"), play)
