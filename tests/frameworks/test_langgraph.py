"""LangGraph: waiting is an interrupt, a refusal a message of an error; and a graph that is killed goes on with one
effect.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Command

from contextos.errors import InvalidInput
from contextos.frameworks.langgraph import gate_node, langchain_tools
from contextos.frameworks.offers import function_tools
from examples.frameworks import desk, with_langgraph
from tests.frameworks.runs import effects, in_a_session, in_the_docs, measured_governed, measured_twin, workspace

pytestmark = pytest.mark.slow


def test_a_graph_that_is_killed_goes_on_with_one_run_one_record_and_one_effect(tmp_path: Path) -> None:
    measured = measured_governed("with_langgraph", tmp_path)
    assert (measured.waiting, measured.after_effect) == (1, 1)
    row = measured.row("LangGraph, governed")
    print(row)
    assert in_the_docs(row)


@pytest.mark.soak
def test_the_same_graph_without_contextos_rolls_back_twice(tmp_path: Path) -> None:
    row = measured_twin("tests.frameworks.twin_langgraph", tmp_path).row("LangGraph alone")
    print(row)
    assert in_the_docs(row)


THREAD: Any = {"configurable": {"thread_id": "thread_1"}}


def graph_that_calls(gate: Any, *calls: AIMessage) -> Any:
    return graph_with(gate_node(gate), *calls)


def graph_with(node: Any, *calls: AIMessage) -> Any:
    """A graph whose model says these messages, one after the other, and then that it is done."""

    def model(state: Any) -> dict[str, Any]:
        said = sum(isinstance(one, AIMessage) for one in state["messages"])
        return {"messages": [calls[said] if said < len(calls) else AIMessage("done")]}

    return with_langgraph.graph_of(model, node).compile(checkpointer=InMemorySaver())


def call(name: str, args: Any, call_id: str) -> Any:
    return {"name": f"deploy__{name}", "args": args, "id": call_id}


BEGIN = {"messages": [HumanMessage("roll back")]}


def test_a_resumed_graph_that_nobody_approved_is_interrupted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any) -> None:
        prod, staging = ({"service": "api", "env": env} for env in ("prod", "staging"))
        looks = AIMessage("", tool_calls=[call("ci_status", {"service": "api"}, "call_0")])
        both = AIMessage("", tool_calls=[call("rollback", prod, "call_1"), call("rollback", staging, "call_2")])
        graph = graph_that_calls(gate, looks, both)
        for resumed in (BEGIN, Command(resume=True), Command(resume="yes, do it")):
            waits = await graph.ainvoke(resumed, THREAD)
            (question,) = waits["__interrupt__"]
            assert (question.value["waits_for"], question.value["about"]) == ("approval", "call_1")
            assert effects(tmp_path) == []
        await desk.approve(app, gate, directory)
        waits = await graph.ainvoke(Command(resume=True), THREAD)
        (question,) = waits["__interrupt__"]
        assert question.value["about"] == "call_2", (
            "the resume that approved the first call says nothing about this one"
        )
        assert effects(tmp_path) == ["api prod"]
        await desk.approve(app, gate, directory)
        ended = await graph.ainvoke(Command(resume=True), THREAD)
        assert ended["messages"][-1].content == "done"
        assert effects(tmp_path) == ["api prod", "api staging"]

    in_a_session(directory, with_langgraph.tools(), play)


def test_a_refusal_and_calls_that_are_none_are_messages_of_an_error(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        wrong = AIMessage(
            "",
            tool_calls=[
                call("rollback", {"service": "billing", "env": "prod"}, "call_0"),
                call("pay_everybody", {}, "call_1"),
                call("ci_status", {"service": "api"}, "call_0"),
            ],
            invalid_tool_calls=[
                {"name": "deploy__rollback", "args": '{"service"', "id": "call_3", "error": None, "type": None}
            ],
        )
        ended = await graph_that_calls(gate, wrong).ainvoke(BEGIN, THREAD)
        answers = ended["messages"][2:-1]
        assert [one.tool_call_id for one in answers] == ["call_0", "call_1", "call_0", "call_3"]
        assert [one.status for one in answers] == ["error"] * 4
        texts = [one.content for one in answers]
        assert "policy denies" in texts[0]
        assert "use one of deploy__ci_status, deploy__rollback" in texts[1]
        assert "`call_0` was used for another call" in texts[2]
        assert "the arguments are not JSON: expecting" in texts[3]

    in_a_session(workspace(tmp_path / "desk"), with_langgraph.tools(), play)


def test_calls_that_are_all_invalid_are_answered(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        broken = {"name": "deploy__rollback", "args": '{"service"', "id": "call_0", "error": None, "type": None}
        ended = await graph_that_calls(gate, AIMessage("", invalid_tool_calls=[broken])).ainvoke(BEGIN, THREAD)
        [_, _, answer, last] = ended["messages"]
        assert (answer.tool_call_id, answer.status, last.content) == ("call_0", "error", "done")
        assert "the arguments are not JSON" in answer.content

    in_a_session(workspace(tmp_path / "desk"), with_langgraph.tools(), play)


def test_a_model_is_shown_the_tools_under_names_without_a_dot(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        shown = {one["function"]["name"]: one["function"] for one in function_tools(gate)}
        assert set(shown) == {"deploy__ci_status", "deploy__rollback"}
        assert set(shown["deploy__rollback"]["parameters"]["properties"]) == {"service", "env"}
        assert shown["deploy__ci_status"]["description"] == "The newest build of a service."

    in_a_session(workspace(tmp_path / "desk"), with_langgraph.tools(), play)


def test_a_state_can_be_an_object(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        said = AIMessage("", tool_calls=[call("ci_status", {"service": "api"}, "call_0")])
        answered = await gate_node(gate)(SimpleNamespace(messages=[said]))
        assert answered["messages"][0].content == '{"commit":"0f1e2d3c","green":true}'

    in_a_session(workspace(tmp_path / "desk"), with_langgraph.tools(), play)


def test_a_node_that_does_not_follow_a_model_is_refused(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        for messages in ([], [HumanMessage("roll back")]):
            with pytest.raises(InvalidInput, match="run this node after the model"):
                await gate_node(gate)({"messages": messages})

    in_a_session(workspace(tmp_path / "desk"), with_langgraph.tools(), play)


def by_tool_node(gate: Any, *calls: AIMessage) -> Any:
    return graph_with(ToolNode(langchain_tools(gate)), *calls)


def by_prebuilt_agent(gate: Any, *calls: AIMessage) -> Any:
    """An agent that makes its own nodes: each call of a message is a task of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has moved to another package
        return create_react_agent(Says(said=list(calls)), langchain_tools(gate), checkpointer=InMemorySaver())


class Says(BaseChatModel):
    """A chat model that says these messages, and then that it is done."""

    said: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        assert {one.name for one in tools} == {"deploy__ci_status", "deploy__rollback"}
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        turn = sum(isinstance(one, AIMessage) for one in messages)
        message = self.said[turn] if turn < len(self.said) else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.parametrize("made_by", [by_tool_node, by_prebuilt_agent])
def test_the_tools_of_a_session_work_in_the_nodes_of_the_framework(
    made_by: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any) -> None:
        billing, prod, staging = (
            {"service": service, "env": env}
            for service, env in (("billing", "prod"), ("api", "prod"), ("api", "staging"))
        )
        looks = [call("ci_status", {"service": "api"}, "call_0")]
        rolls = [("call_1", billing), ("call_2", prod), ("call_3", staging)]
        both = [call("rollback", args, call_id) for call_id, args in rolls]
        graph = made_by(gate, AIMessage("", tool_calls=looks), AIMessage("", tool_calls=both))
        result = await graph.ainvoke(BEGIN, THREAD)
        for done in (0, 1):
            for _ in range(2):
                assert {one.value["waits_for"] for one in result["__interrupt__"]} == {"approval"}
                assert len(effects(tmp_path)) == done
                resume = {one.id: True for one in result["__interrupt__"]}
                result = await graph.ainvoke(Command(resume=resume), THREAD)
            await desk.approve(app, gate, directory)
            resume = {one.id: True for one in result["__interrupt__"]}
            result = await graph.ainvoke(Command(resume=resume), THREAD)
        assert "__interrupt__" not in result
        assert sorted(effects(tmp_path)) == ["api prod", "api staging"]
        answers = {one.tool_call_id: one for one in result["messages"] if isinstance(one, ToolMessage)}
        assert answers["call_0"].content == '{"commit":"0f1e2d3c","green":true}'
        assert answers["call_1"].status == "error"
        assert "policy denies" in answers["call_1"].content
        assert [answers[one].status for one in ("call_0", "call_2", "call_3")] == ["success"] * 3

    in_a_session(directory, with_langgraph.tools(), play)


def test_a_tool_of_a_session_needs_the_call_of_a_model_and_an_event_loop(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        status = next(one for one in langchain_tools(gate) if one.name == "deploy__ci_status")
        with pytest.raises(InvalidInput, match="whose id the session needs"):
            await status.ainvoke({"service": "api"})
        with pytest.raises(InvalidInput, match="`ainvoke`"):
            status.invoke({"service": "api"})

    in_a_session(workspace(tmp_path / "desk"), with_langgraph.tools(), play)
