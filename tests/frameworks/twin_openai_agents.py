"""The agent of the OpenAI Agents SDK of the example without ContextOS: the SDK's own approval, its `RunState` in a
file.

The state keeps an approval only if it is saved again before the run goes on, so the program keeps the person's answer
in a file too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from agents import Agent, Runner, RunState, function_tool

from examples.frameworks import desk
from examples.frameworks.with_openai_agents import Scripted


async def asks(run: Any, arguments: dict[str, Any], call_id: str) -> bool:
    return arguments["service"] != "billing"


@function_tool(needs_approval=asks)
def rollback(service: str, env: Literal["prod", "staging"]) -> str:
    """Put the build before back into service."""
    if service == "billing":
        raise ValueError("billing is frozen")
    return desk.rollback(service, env)


async def main(directory: Path, approved: bool) -> None:
    saved, answer = directory / "state.json", directory / "approved"
    if approved:
        answer.touch()
    agent = Agent("deployer", model=Scripted(), tools=[function_tool(desk.ci_status), rollback])
    start: Any = "roll back the api"
    if saved.exists():
        start = await RunState.from_json(agent, json.loads(saved.read_text()))
        if answer.exists():
            for item in start.get_interruptions():
                # This approves the calls that the state ends with, whatever they are.
                start.approve(item)
    result = await Runner.run(agent, start)
    if result.interruptions:
        saved.write_text(json.dumps(result.to_state().to_json()))
    print("waiting" if result.interruptions else "finished")
