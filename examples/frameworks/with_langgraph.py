"""A LangGraph agent whose tools are governed. The first run waits for a person; the second goes on with its thread.

`python examples/frameworks/with_langgraph.py DIR [approve]`, where DIR was made by `contextos demo --keep DIR`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

import contextos
from contextos.frameworks.langgraph import gate_condition, gate_node
from contextos.frameworks.offers import function_tools
from contextos.frameworks.wrapping import govern

sys.path.insert(0, str(Path(__file__).parent))
from desk import CALLS, ci_status, opened, rollback

status, undo = tool(ci_status), tool(rollback)


def tools() -> contextos.FunctionAdapter:
    """The agent's own tool objects, governed."""
    return contextos.toolset(
        "deploy",
        [
            govern(status, risk="read", produces="ci", integrity="trusted"),
            govern(undo, risk="irreversible", idempotency="keyed", key="request_key"),
        ],
    )


def scripted(shown: list[str]) -> Any:
    """The node of a model that makes the calls of the desk, whatever is answered.

    A real one is `model.bind_tools(function_tools(gate))`.
    """

    def model(state: MessagesState) -> dict[str, Any]:
        said = sum(isinstance(one, AIMessage) for one in state["messages"])
        if said == len(CALLS):
            return {"messages": [AIMessage("done")]}
        name, args = CALLS[said]
        call = {"name": next(one for one in shown if one.endswith(name)), "args": args, "id": f"call_{said}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    return model


def graph_of(model: Any, tools_node: Any) -> StateGraph[Any]:
    """The loop of an agent: the model, its tools, the model again."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", tools_node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", gate_condition)
    graph.add_edge("tools", "model")
    return graph


async def go_on(graph: Any, asked: str) -> dict[str, Any]:
    """Begin the thread, or resume it where it was interrupted."""
    thread = {"configurable": {"thread_id": "thread_1"}}
    begun = (await graph.aget_state(thread)).values
    return await graph.ainvoke(Command(resume=True) if begun else {"messages": [HumanMessage(asked)]}, thread)


async def main(directory: Path, approved: bool) -> None:
    async with (
        opened(directory, tools, approved=approved) as gate,
        AsyncSqliteSaver.from_conn_string(str(directory / "threads.db")) as threads,
    ):
        shown = [one["function"]["name"] for one in function_tools(gate)]
        graph = graph_of(scripted(shown), gate_node(gate)).compile(checkpointer=threads)
        result = await go_on(graph, "roll back the api")
        if "__interrupt__" in result:
            print("waiting", [one.value["about"] for one in result["__interrupt__"]])
        else:
            view = await gate.finish("approved", "rolled back")
            print("finished", view.state, view.run_id)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), approved=sys.argv[2:] == ["approve"]))
