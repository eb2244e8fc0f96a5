"""Pydantic AI: waiting is a deferred call, a refusal a retry; and an agent that is killed goes on with one effect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import contextos
from contextos.errors import ConflictingRequest
from contextos.frameworks.pydantic_ai import GateToolset, ask_again
from examples.frameworks import desk, with_pydantic_ai
from tests.frameworks.runs import effects, in_the_docs, measured_governed, measured_twin, workspace


def test_an_agent_that_is_killed_goes_on_with_one_run_one_record_and_one_effect(tmp_path: Path) -> None:
    measured = measured_governed("with_pydantic_ai", tmp_path)
    assert (measured.waiting, measured.after_effect) == (1, 1)
    row = measured.row("Pydantic AI, governed")
    print(row)
    assert in_the_docs(row)


def test_the_same_agent_without_contextos_rolls_back_twice(tmp_path: Path) -> None:
    row = measured_twin("tests.frameworks.twin_pydantic_ai", tmp_path).row("Pydantic AI alone")
    print(row)
    assert in_the_docs(row)


async def in_a_session(directory: Path, play: Any) -> None:
    deploy = with_pydantic_ai.tools()
    async with contextos.open(directory, adapters=[deploy]) as app:
        gate = await desk.session(app, deploy, directory, "thread_1")
        agent = Agent(
            FunctionModel(with_pydantic_ai.scripted),
            toolsets=[GateToolset(gate)],
            output_type=[str, DeferredToolRequests],
        )
        await play(app, gate, agent)


def test_a_resumed_call_that_nobody_approved_waits_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any, agent: Any) -> None:
        first = await agent.run("roll back")
        assert [call.tool_call_id for call in first.output.approvals] == ["call_2"]
        assert first.output.metadata["call_2"]["waits_for"] == "approval"
        (refused,) = [
            part
            for message in first.all_messages()
            for part in message.parts
            if isinstance(part, ToolReturnPart) and part.tool_call_id == "call_1"
        ]
        assert "policy denies" in str(refused.content)
        history = first.all_messages()
        again = await agent.run(message_history=history, deferred_tool_results=ask_again(history, gate))
        assert [call.tool_call_id for call in again.output.approvals] == ["call_2"]
        assert effects(tmp_path) == []

    asyncio.run(in_a_session(directory, play))


def test_a_history_whose_waiting_call_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any, agent: Any) -> None:
        history = (await agent.run("roll back")).all_messages()
        await desk.approve(app, gate, directory)
        last = next(one for one in reversed(history) if isinstance(one, ModelResponse))
        last.tool_calls[0].args = {"service": "payments", "env": "prod"}
        with pytest.raises(ConflictingRequest):
            await agent.run(message_history=history, deferred_tool_results=ask_again(history, gate))
        # The engine may have made the call that was approved.
        assert set(effects(tmp_path)) <= {"api prod"}

    asyncio.run(in_a_session(directory, play))


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

    asyncio.run(in_a_session(directory, play))


def test_a_session_that_is_over_ends_the_call_without_a_retry(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any, agent: Any) -> None:
        await gate.finish("denied", "no")
        toolset: GateToolset[None] = GateToolset(gate)
        context: Any = type("Context", (), {"tool_call_id": "call_9", "max_retries": 1})()
        tools = await toolset.get_tools(context)
        with pytest.raises(ToolFailed, match="open a new session"):
            await toolset.call_tool("deploy__ci_status", {"service": "api"}, context, tools["deploy__ci_status"])

    asyncio.run(in_a_session(workspace(tmp_path / "desk"), play))
