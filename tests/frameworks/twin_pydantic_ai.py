"""The Pydantic AI agent of the example without ContextOS: the framework's own approval, its messages in a file.

The framework keeps no approvals, so the program keeps the person's answer in a file too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter, RunContext
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry
from pydantic_ai.models.function import FunctionModel

from contextos.frameworks.pydantic_ai import unanswered_calls
from examples.frameworks import desk
from examples.frameworks.with_pydantic_ai import scripted


def rollback(ctx: RunContext[None], service: str, env: Literal["prod", "staging"]) -> str:
    """Put the build before back into service."""
    if service == "billing":
        raise ModelRetry("billing is frozen")
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return desk.rollback(service, env)


def approve_all(messages: list[Any]) -> DeferredToolResults:
    return DeferredToolResults(approvals={call.tool_call_id: True for call in unanswered_calls(messages)})


async def main(directory: Path, approved: bool) -> None:
    agent = Agent(FunctionModel(scripted), tools=[desk.ci_status, rollback], output_type=[str, DeferredToolRequests])
    saved, answer = directory / "messages.json", directory / "approved"
    if approved:
        answer.touch()
    history = ModelMessagesTypeAdapter.validate_json(saved.read_bytes()) if saved.exists() else []
    result = await agent.run(
        None if history else "roll back the api",
        message_history=history,
        # This approves the calls at the end of the messages, whatever they are.
        deferred_tool_results=approve_all(history) if answer.exists() else None,
    )
    saved.write_bytes(result.all_messages_json())
    print("waiting" if isinstance(result.output, DeferredToolRequests) else "finished")
