"""An agent of the OpenAI Agents SDK whose tools are governed. The first run waits for a person; the second goes on from
its state.

`python examples/frameworks/with_openai_agents.py DIR [approve]`, where DIR was made by `contextos demo --keep DIR`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, RunState, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import contextos
from contextos.frameworks.openai_agents import approve_answered, gate_tools
from contextos.frameworks.wrapping import govern

sys.path.insert(0, str(Path(__file__).parent))
from desk import CALLS, ci_status, opened, rollback

# The SDK sends traces, with all arguments and answers, to OpenAI unless it is switched off.
set_tracing_disabled(True)

status, undo = function_tool(ci_status), function_tool(rollback)


class Scripted(Model):
    """A model that makes the calls of the desk, whatever is answered."""

    async def get_response(self, *rest: Any, **asked: Any) -> Any:
        items, shown = asked["input"], [one.name for one in asked["tools"]]
        said = sum(isinstance(one, dict) and one.get("type") == "function_call" for one in items)
        if said == len(CALLS):
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output: Any = ResponseOutputMessage(
                id="msg_1", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            name, args = CALLS[said]
            full = next(one for one in shown if one.endswith(name))
            output = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{said}", name=full, arguments=json.dumps(args)
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


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
    saved = directory / "state.json"
    async with opened(directory, tools, approved=approved) as gate:
        agent = Agent("deployer", model=Scripted(), tools=gate_tools(gate))
        start: Any = "roll back the api"
        if saved.exists():
            start = await RunState.from_json(agent, json.loads(saved.read_text()))
            await approve_answered(start, gate)
        result = await Runner.run(agent, start)
        if result.interruptions:
            saved.write_text(json.dumps(result.to_state().to_json()))
            print("waiting", [item.call_id for item in result.interruptions])
        else:
            view = await gate.finish("approved", "rolled back")
            print("finished", view.state, view.run_id)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), approved=sys.argv[2:] == ["approve"]))
