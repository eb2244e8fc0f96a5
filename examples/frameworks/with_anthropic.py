"""A plain loop over Anthropic's messages API whose tools are governed. The first run waits for a person; the second
goes on.

`python examples/frameworks/with_anthropic.py DIR [approve]`, where DIR was made by `contextos demo --keep DIR`, with
`ANTHROPIC_API_KEY` set.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from anthropic import AsyncAnthropic

import contextos
from contextos.contracts.ports.gates import Waiting
from contextos.frameworks.loops import anthropic_answers, anthropic_tools

sys.path.insert(0, str(Path(__file__).parent))
from desk import decorated, opened

MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5")


def tools() -> contextos.FunctionAdapter:
    """The functions of the desk, decorated: the SDK has no tool objects of its own."""
    return decorated()


async def main(directory: Path, approved: bool) -> None:
    saved = directory / "messages.json"
    async with opened(directory, tools, approved=approved) as gate, AsyncAnthropic() as client:
        messages = (
            json.loads(saved.read_text()) if saved.exists() else [{"role": "user", "content": "roll back the api"}]
        )
        while True:
            if messages[-1]["role"] != "assistant":
                reply = await client.messages.create(
                    model=MODEL, max_tokens=1000, messages=messages, tools=anthropic_tools(gate)
                )
                messages.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
                saved.write_text(json.dumps(messages))
            answers = await anthropic_answers(gate, messages[-1])
            if isinstance(answers, Waiting):
                return print("waiting", answers.about)
            if not answers:
                break
            messages += answers
        view = await gate.finish("approved", "rolled back")
        print("finished", view.state, view.run_id)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), approved=sys.argv[2:] == ["approve"]))
