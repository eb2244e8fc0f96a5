"""`slots agent`: the selection agent as it is published, to be copied into an agent's document."""

from __future__ import annotations

import json
from importlib.resources import files

from contextos.cli.command_context import JsonOption
from contextos.cli.terminal import print_result


def slots_agent_command(as_json: JsonOption = False) -> int:
    """Print the selection agent, an Open Agent Spec flow."""
    flow = files("contextos.slots").joinpath("selection_agent.json").read_text("utf-8")
    print_result(json.loads(flow), flow.splitlines(), as_json=as_json)
    return 0
