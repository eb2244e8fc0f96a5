"""A Pydantic AI agent whose tools are governed. The first run waits for a person; the second goes on from its history.

`python examples/frameworks/with_pydantic_ai.py DIR [approve]`, where DIR was made by `contextos demo --keep DIR`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, ModelMessagesTypeAdapter, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import contextos
from contextos.frameworks.pydantic_ai import GateToolset, ask_again
from contextos.frameworks.wrapping import govern

sys.path.insert(0, str(Path(__file__).parent))
from desk import CALLS, ci_status, opened, rollback

status, undo = Tool(ci_status), Tool(rollback)


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that makes the calls of the desk, whatever is answered."""
    said = sum(isinstance(one, ModelResponse) for one in messages)
    if said == len(CALLS):
        return ModelResponse([TextPart("done")])
    name, args = CALLS[said]
    shown = next(one.name for one in info.function_tools if one.name.endswith(name))
    return ModelResponse([ToolCallPart(shown, args, tool_call_id=f"call_{said}")])


def tools() -> contextos.FunctionAdapter:
    """The agent's own tool objects, governed."""
    return contextos.toolset(
        "deploy",
        [
            govern(status, risk="read", produces="ci", integrity="trusted"),
            govern(undo, risk="irreversible", idempotency="keyed", key="request_key"),
        ],
    )


async def main(directory: Path, approved: bool) -> None:
    saved = directory / "messages.json"
    async with opened(directory, tools, approved=approved) as gate:
        agent = Agent(FunctionModel(scripted), toolsets=[GateToolset(gate)], output_type=[str, DeferredToolRequests])
        history = ModelMessagesTypeAdapter.validate_json(saved.read_bytes()) if saved.exists() else []
        result = await agent.run(
            None if history else "roll back the api",
            message_history=history,
            deferred_tool_results=ask_again(history, gate),
        )
        saved.write_bytes(result.all_messages_json())
        if isinstance(result.output, DeferredToolRequests):
            print("waiting", [call.tool_call_id for call in result.output.approvals])
        else:
            view = await gate.finish("approved", "rolled back")
            print("finished", view.state, view.run_id)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), approved=sys.argv[2:] == ["approve"]))
