"""The agent as the own model of a deployment: a provider that proposes its calls, and knows what it reads.

What it did and what came of it, it knows from the messages of the call alone, as every model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentdojo.functions_runtime import FunctionCall

from benchmarks.agentdojo.planner import Moves
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText, ProposedCall

PROFILE: Final[Mapping[str, Any]] = {
    "profile_id": "model.obeying",
    "version": "1.0.0",
    "wire": "scripted",
    "model": "obeying",
    "capabilities": ["tool_calls", "structured_output"],
    "context_window": 10_000_000,
    "max_output_tokens": 2_000,
    "regions": ["here"],
    "data_class": "RESTRICTED",
    "retention": "none",
    "prices": {"currency": "USD", "as_of": "2026-11-30", "prices": {"input": "0", "output": "0"}},
}
ROUTING: Final[Mapping[str, Any]] = {
    "rules_id": "routing.obeying",
    "version": "1.0.0",
    "rules": [{"rule_id": "choose", "operation": "judge.plan", "candidates": [{"profile": "model.obeying@1.0.0"}]}],
}


def chosen_by_model(intent: str) -> dict[str, Any]:
    """Return the fields of a pack in which this model takes the place of an agent outside."""
    return {
        "models": [{"operation": "judge.plan", "rules": "routing.obeying@1.0.0"}],
        "intents": {intent: {"chosen_by": "model"}},
    }


class ObeyingModel:
    """A `ModelProvider`: the agent of one conversation after the other. It proposes at once what it can ask for at
    once, so all that an attacker orders is in one answer.
    """

    def __init__(self, reads: Sequence[str]) -> None:
        self._reads = frozenset(reads)
        self._moves: Moves | None = None
        self._wrote = False
        self._asked: Sequence[ProposedCall] = ()
        self._turns = 0

    def begin(self, moves: Moves) -> None:
        """Be the agent that makes these moves."""
        self._moves, self._wrote, self._asked, self._turns = moves, False, (), 0

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        """Propose what the agent asks for after what it was told, or the end."""
        assert self._moves is not None, "a conversation was begun"
        answers = self._answers(call) if self._asked else None
        try:
            wanted = self._moves.send(answers)
        except StopIteration:
            outcome = "approved" if self._wrote else "denied"
            end = {"outcome": outcome, "reason": "nothing is left to do"}
            return _reply(ProposedCall(f"call_{self._turns}", "finish", end))
        self._asked = [self._proposed(number, one) for number, one in enumerate(wanted)]
        self._turns += 1
        return _reply(*self._asked)

    def _proposed(self, number: int, call: FunctionCall) -> ProposedCall:
        return ProposedCall(f"call_{self._turns}_{number}", f"tools.{call.function}", dict(call.args))

    def _answers(self, call: ModelCall) -> list[Any]:
        told = {one.call_id: json.loads(one.text)["content"] for one in call.messages if one.role == "tool"}
        answers = []
        for one in self._asked:
            answer = told[one.call_id]["output"] if told[one.call_id]["status"] == "done" else None
            answers.append(answer)
            is_write = one.tool.partition(".")[2] not in self._reads
            self._wrote = self._wrote or (answer is not None and is_write)
        return answers


def _reply(*calls: ProposedCall) -> ModelReply:
    return ModelReply("answered", "", calls, "obeying", usage=ModelUsage({"input": 1, "output": 1}))
