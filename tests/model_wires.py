"""Models behind the real wires: the official SDKs of the providers against a server of this process that speaks their
protocols. What the model says is a function of what it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from contextos.contracts.envelopes.models import ModelWire
from contextos.contracts.ports.models import ModelCall, ModelReply, OnText
from contextos.workspace.models import Providers
from tests import loopback, model_servers
from tests.messages_words import MessagesWords, fault_of
from tests.model_servers import ChatWords, ResponsesWords, Said, Words

WORDS: Mapping[ModelWire, Words] = {one.wire: one for one in (ChatWords(), ResponsesWords(), MessagesWords())}
PRICES = {"input": "3", "cached_input": "0.3", "output": "15", "reasoning": "15"}
UNITS_OF_AN_ANSWER = 558
"""30 tokens at 3 dollars a million, 60 of the cache at 0.3, and 30 at 15: what each answer here states as its usage."""

Turn = Callable[[Any], Said]
"""From the body of a request to what the model says."""


@dataclass
class Conversation:
    """What a model was asked over one wire, and what it says, one turn after the other."""

    words: Words
    turns: Sequence[Turn]
    bodies: list[Any] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    """The bodies as they came."""
    heads: list[str] = field(default_factory=list)
    host: str = ""

    def answer(self, asked: loopback.Asked) -> loopback.Answer:
        body = json.loads(asked.body)
        self.bodies.append(body)
        self.sent.append(asked.body.decode())
        self.heads.append(str(asked.headers))
        headers = {name.lower(): value for name, value in asked.headers.items()}
        fault = None if asked.path == self.words.path else "Not found"
        if self.words.wire == "anthropic":
            fault = fault_of(model_servers.Asked(asked.path, headers, body))
        if fault or len(self.bodies) > len(self.turns):
            said = {"error": {"type": "invalid_request_error", "message": fault or "nothing is left to say"}}
            return 400, json.dumps(said).encode(), {"Content-Type": "application/json"}
        said_now = self.turns[len(self.bodies) - 1](body)
        if body.get("stream"):
            return 200, b"".join(self.words.events(said_now)), {"Content-Type": "text/event-stream"}
        return 200, json.dumps(self.words.whole(said_now)).encode(), {"Content-Type": "application/json"}

    def text(self, number: int) -> str:
        """All that a request tells the model."""
        return "\n".join(texts(self.bodies[number]))

    def profile(self) -> dict[str, Any]:
        """What a profile of this model states."""
        capabilities = ["structured_output", "tool_calls", "streaming"]
        known = {"wire": self.words.wire, "endpoint": f"http://{self.host}/v1", "capabilities": capabilities}
        return {**known, "prices": {"currency": "USD", "as_of": "2026-11-30", "prices": PRICES}}


@contextmanager
def conversation(wire: ModelWire, turns: Sequence[Turn]) -> Iterator[Conversation]:
    """Serve a model on a free port, until the context is left."""
    made = Conversation(WORDS[wire], turns)
    with loopback.serving(made.answer) as address:
        made.host = address.partition("://")[2].rstrip("/")
        yield made


def texts(body: Any) -> Iterator[str]:
    """The texts in a request, wherever its protocol has them."""
    if isinstance(body, str):
        yield body
    elif isinstance(body, dict | list):
        for one in body.values() if isinstance(body, dict) else body:
            yield from texts(one)


def calling(number: int, *calls: tuple[str, Mapping[str, Any]], text: str = "") -> Turn:
    """A turn that calls tools, and says `text` beside. `number` is that of the turn."""

    def turn(_body: Any) -> Said:
        made = [
            (f"call_{number}_{at}", tool.replace(".", "_"), json.dumps(args)) for at, (tool, args) in enumerate(calls)
        ]
        return Said(text, made)

    return turn


def planning(**changed_step: Any) -> Turn:
    """A turn that answers with the plan of the template that it is sent; in its last step with these members."""

    def turn(body: Any) -> Said:
        lines = [line for text in texts(body) for line in text.splitlines() if line.startswith('{"block":"template"')]
        template = json.loads(lines[0])["content"]
        steps = [{name: one for name, one in step.items() if name != "approval_mode"} for step in template["steps"]]
        plan = {
            "template_id": f"{template['template_id']}@{template['version']}",
            "steps": [*steps[:-1], {**steps[-1], **changed_step}],
            "decision_checkpoints": template["decision_checkpoints"],
        }
        answer = json.dumps(plan)
        # Where the output format of `anthropic` cannot express the schema of a plan, a tool takes the answer.
        by_tool = any(one.get("name") == "give_answer" for one in body.get("tools", ()))
        return Said(calls=[("call_plan", "give_answer", answer)]) if by_tool else Said(answer)

    return turn


class RealWire:
    """The provider of a wire as a deployment that reaches `internal` has it, called with this key. Its SDK, which takes
    seconds to import, is imported before a call has a time limit.
    """

    unsafe = ("unsafe_test_models",)

    def __init__(self, wire: ModelWire, internal: str, key: str) -> None:
        self._provider, self._key = Providers([internal], None)[wire], key

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        return await self._provider.complete(replace(call, key=self._key), on_text)
