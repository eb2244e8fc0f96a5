"""LangGraph: waiting is an interrupt, a refusal a message of an error; and a graph that is killed goes on with one
effect.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from contextos.errors import InvalidInput
from contextos.frameworks.langgraph import gate_node
from contextos.frameworks.offers import function_tools
from examples.frameworks import desk, with_langgraph
from tests.frameworks.runs import effects, in_a_session, in_the_docs, measured_governed, measured_twin, workspace


def test_a_graph_that_is_killed_goes_on_with_one_run_one_record_and_one_effect(tmp_path: Path) -> None:
    measured = measured_governed("with_langgraph", tmp_path)
    assert (measured.waiting, measured.after_effect) == (1, 1)
    row = measured.row("LangGraph, governed")
    print(row)
    assert in_the_docs(row)


def test_the_same_graph_without_contextos_rolls_back_twice(tmp_path: Path) -> None:
    row = measured_twin("tests.frameworks.twin_langgraph", tmp_path).row("LangGraph alone")
    print(row)
    assert in_the_docs(row)


THREAD: Any = {"configurable": {"thread_id": "thread_1"}}


def graph_that_calls(gate: Any, *calls: AIMessage) -> Any:
    """A graph whose model says these messages, one after the other, and then that it is done."""

    def model(state: Any) -> dict[str, Any]:
        said = sum(isinstance(one, AIMessage) for one in state["messages"])
        return {"messages": [calls[said] if said < len(calls) else AIMessage("done")]}

    return with_langgraph.graph_of(model, gate_node(gate)).compile(checkpointer=InMemorySaver())


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
        assert "use one of the tools of the session" in texts[1]
        assert "`call_0` was used for another call" in texts[2]
        assert "the arguments are no JSON: expecting" in texts[3]

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
