"""The LangGraph agent of the example without ContextOS: the framework's own `interrupt` for the approval, its own tool
node, and its threads in SQLite.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from examples.frameworks import desk
from examples.frameworks.with_langgraph import go_on, graph_of, scripted


@tool
def rollback(service: str, env: Literal["prod", "staging"]) -> str:
    """Put the build before back into service."""
    if service == "billing":
        raise ToolException("billing is frozen")
    if interrupt({"roll back": service}) is not True:
        raise ToolException("nobody approved")
    return desk.rollback(service, env)


async def main(directory: Path, approved: bool) -> None:
    answer = directory / "approved"
    if approved:
        answer.touch()
    async with AsyncSqliteSaver.from_conn_string(str(directory / "threads.db")) as threads:
        node = ToolNode([tool(desk.ci_status), rollback], handle_tool_errors=True)
        graph = graph_of(scripted(["ci_status", "rollback"]), node).compile(checkpointer=threads)
        # This resumes whatever the thread was interrupted for.
        result = await go_on(graph, "roll back the api")
        print("waiting" if "__interrupt__" in result else "finished")
