"""Who can edit what a framework saves of an agent that waits turns no approved call into another one, and makes no
effect happen twice or without the answer of a person.

Each agent below looks at a build and then waits for a person about `rollback api prod`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import Runner, RunState
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic_ai import Agent, DeferredToolRequests, ModelMessagesTypeAdapter
from pydantic_ai.models.function import FunctionModel

from contextos.frameworks.langgraph import gate_node
from contextos.frameworks.loops import anthropic_answers, openai_answers
from contextos.frameworks.offers import function_tools
from contextos.frameworks.openai_agents import approve_answered, gate_tools
from contextos.frameworks.pydantic_ai import GateToolset, ask_again
from examples.frameworks import desk, with_langgraph, with_openai_agents, with_pydantic_ai
from tests.frameworks.runs import effects, in_a_session, workspace

WAITING = "call_2"
Edit = Callable[[Any], Any]


class PydanticAI:
    """Its messages, as JSON."""

    def agent(self, gate: Any) -> Any:
        kinds = [str, DeferredToolRequests]
        return Agent(FunctionModel(with_pydantic_ai.scripted), toolsets=[GateToolset(gate)], output_type=kinds)

    async def until_it_waits(self, gate: Any) -> Any:
        return json.loads((await self.agent(gate).run("roll back")).all_messages_json())

    async def go_on(self, gate: Any, saved: Any) -> str:
        history = ModelMessagesTypeAdapter.validate_python(saved)
        again = ask_again(history, gate)
        ended = await self.agent(gate).run(message_history=history, deferred_tool_results=again)
        return ended.all_messages_json().decode()


class LangGraph:
    """Its last message, as JSON, which is put into a thread."""

    thread: Any = {"configurable": {"thread_id": "thread_1"}}

    def graph(self, gate: Any) -> Any:
        shown = [one["function"]["name"] for one in function_tools(gate)]
        graph = with_langgraph.graph_of(with_langgraph.scripted(shown), gate_node(gate))
        return graph.compile(checkpointer=InMemorySaver())

    async def until_it_waits(self, gate: Any) -> Any:
        waits = await self.graph(gate).ainvoke({"messages": [HumanMessage("roll back")]}, self.thread)
        return waits["messages"][-1].model_dump()

    async def go_on(self, gate: Any, saved: Any) -> str:
        graph = self.graph(gate)
        await graph.aupdate_state(self.thread, {"messages": [AIMessage(**saved)]}, as_node="model")
        ended = await graph.ainvoke(None, self.thread)
        if "__interrupt__" in ended:
            ended = await graph.ainvoke(Command(resume=True), self.thread)
        return str(ended["messages"])


class OpenAIAgents:
    """Its `RunState`, as JSON."""

    def agent(self, gate: Any) -> Any:
        return OpenAIAgent("deployer", model=with_openai_agents.Scripted(), tools=gate_tools(gate))

    async def until_it_waits(self, gate: Any) -> Any:
        result = await Runner.run(self.agent(gate), "roll back")
        return json.loads(result.to_state().to_string())

    async def go_on(self, gate: Any, saved: Any) -> str:
        agent = self.agent(gate)
        # Its own check that a call is still the same is by a digest without a key beside it.
        for known in (WAITING, "call_7", "call_8"):
            saved["context"]["tool_invocations"].pop(known, None)
        state = await RunState.from_json(agent, saved)
        await approve_answered(state, gate)
        return str((await Runner.run(agent, state)).to_input_list())


class PlainLoop:
    """Its last message, as JSON."""

    def __init__(self, answers: Any, message: Any) -> None:
        self.answers, self.message = answers, message

    async def until_it_waits(self, gate: Any) -> Any:
        for number, (name, args) in enumerate(desk.CALLS):
            saved = self.message(f"deploy__{name}", args, f"call_{number}")
            await self.answers(gate, saved)
        return saved

    async def go_on(self, gate: Any, saved: Any) -> str:
        return str(await self.answers(gate, saved))


def openai_message(name: str, args: Any, call_id: str) -> Any:
    function = {"name": name, "arguments": json.dumps(args)}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


def anthropic_message(name: str, args: Any, call_id: str) -> Any:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": args}]}


AGENTS: dict[str, Callable[[], Any]] = {
    "pydantic_ai": PydanticAI,
    "langgraph": LangGraph,
    "openai_agents": OpenAIAgents,
    "openai": lambda: PlainLoop(openai_answers, openai_message),
    "anthropic": lambda: PlainLoop(anthropic_answers, anthropic_message),
}


def edited(saved: Any, call: str, edit: Edit) -> Any:
    """What was saved, with `edit` on the arguments of this call, wherever they are."""
    if isinstance(saved, list):
        return [edited(one, call, edit) for one in saved]
    if not isinstance(saved, dict):
        return saved
    changed = {name: edited(one, call, edit) for name, one in saved.items()}
    if call in (saved.get("call_id"), saved.get("id"), saved.get("tool_call_id")):
        holder = changed.get("function", changed)
        for name in ("args", "arguments", "input"):
            if name in holder:
                text = isinstance(holder[name], str)
                args = edit(json.loads(holder[name]) if text else holder[name])
                holder[name] = json.dumps(args) if text else args
    return changed


def renamed(saved: Any, call: str, to: str) -> Any:
    return json.loads(json.dumps(saved).replace(f'"{call}"', f'"{to}"'))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))
    return workspace(tmp_path / "desk")


@pytest.mark.parametrize("framework", AGENTS)
def test_a_call_that_was_changed_after_the_question_is_not_made(framework: str, directory: Path) -> None:
    """A person approves `api prod`; the saved state asks for `payments prod` under the same id."""

    async def play(app: Any, gate: Any) -> None:
        agent = AGENTS[framework]()
        saved = await agent.until_it_waits(gate)
        changed = edited(saved, WAITING, lambda args: {**args, "service": "payments"})
        assert "payments" in str(changed)
        await desk.approve(app, gate, directory)
        read = await agent.go_on(gate, changed)
        assert "`call_2` was used for another call" in read
        assert set(effects(directory.parent)) <= {"api prod"}

    in_a_session(directory, desk.decorated(), play)


@pytest.mark.parametrize("framework", AGENTS)
def test_a_changed_call_under_a_new_id_needs_an_answer_of_its_own(framework: str, directory: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        agent = AGENTS[framework]()
        saved = await agent.until_it_waits(gate)
        changed = edited(saved, WAITING, lambda args: {**args, "env": "staging"})
        await desk.approve(app, gate, directory)
        await agent.go_on(gate, renamed(changed, WAITING, "call_7"))
        assert (await gate.view()).waiting["for"] == "approval"
        assert set(effects(directory.parent)) <= {"api prod"}

    in_a_session(directory, desk.decorated(), play)


@pytest.mark.parametrize("framework", AGENTS)
def test_the_same_call_under_new_ids_has_one_effect(framework: str, directory: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        agent = AGENTS[framework]()
        saved = await agent.until_it_waits(gate)
        await desk.approve(app, gate, directory)
        assert "api in prod is back" in await agent.go_on(gate, saved)
        for new in ("call_7", "call_8"):
            read = await agent.go_on(gate, renamed(saved, WAITING, new))
            assert "the recorded answer of an earlier call" in read
        assert effects(directory.parent) == ["api prod"]

    in_a_session(directory, desk.decorated(), play)
