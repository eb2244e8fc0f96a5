"""The plain loop over OpenAI's chat API without ContextOS: the program asks a person, and keeps messages and answer in
files, because the SDK has neither approval nor persistence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionToolParam

from examples.frameworks import desk

TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("ci_status", "rollback")
]


def answered(name: str, args: dict[str, Any], approved: bool) -> str | None:
    """What the model reads of a call; None if a person has to be asked first."""
    if name == "ci_status":
        return desk.ci_status(**args).model_dump_json()
    if args["service"] == "billing":
        return "billing is frozen"
    return desk.rollback(**args) if approved else None


async def main(directory: Path, approved: bool) -> None:
    saved, answer = directory / "messages.json", directory / "approved"
    if approved:
        answer.touch()
    messages = json.loads(saved.read_text()) if saved.exists() else [{"role": "user", "content": "roll back the api"}]
    async with AsyncOpenAI() as client:
        while True:
            if messages[-1]["role"] != "assistant":
                reply = await client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
                messages.append(reply.choices[0].message.to_dict())
                saved.write_text(json.dumps(messages))
            calls = messages[-1].get("tool_calls")
            if not calls:
                return print("finished")
            for call in calls:
                said = answered(call["function"]["name"], json.loads(call["function"]["arguments"]), answer.exists())
                if said is None:
                    return print("waiting")
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
