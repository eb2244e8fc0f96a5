"""The plain loop over Anthropic's messages API without ContextOS: the program asks a person, and keeps messages and
answer in files, because the SDK has neither approval nor persistence.
"""

from __future__ import annotations

import json
from pathlib import Path

from anthropic import AsyncAnthropic
from anthropic.types import ToolParam

from tests.frameworks.twin_openai import answered

TOOLS: list[ToolParam] = [{"name": name, "input_schema": {"type": "object"}} for name in ("ci_status", "rollback")]


async def main(directory: Path, approved: bool) -> None:
    saved, answer = directory / "messages.json", directory / "approved"
    if approved:
        answer.touch()
    messages = json.loads(saved.read_text()) if saved.exists() else [{"role": "user", "content": "roll back the api"}]
    async with AsyncAnthropic() as client:
        while True:
            if messages[-1]["role"] != "assistant":
                reply = await client.messages.create(model="scripted", max_tokens=1000, messages=messages, tools=TOOLS)
                messages.append({"role": "assistant", "content": [one.to_dict() for one in reply.content]})
                saved.write_text(json.dumps(messages))
            calls = [one for one in messages[-1]["content"] if one["type"] == "tool_use"]
            if not calls:
                return print("finished")
            results = []
            for call in calls:
                said = answered(call["name"], call["input"], answer.exists())
                if said is None:
                    return print("waiting")
                results.append({"type": "tool_result", "tool_use_id": call["id"], "content": said})
            messages.append({"role": "user", "content": results})
