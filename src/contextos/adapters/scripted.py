"""`ScriptedAdapter`: a public test double of the `Adapter` port that replays given answers and records its calls.

Its coroutines never suspend, so a simulator can drive it without an event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext

Answer = AdapterReply | Mapping[str, Any] | Exception | None
"""An output, a whole reply or an error to raise. None is for a lookup that finds no call with the key."""


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call of the test adapter. `lookup` is the idempotency key if it was a lookup, and
    None for a call.
    """

    capability: str
    args: Mapping[str, Any]
    context: CallContext
    lookup: str | None = None


class ScriptedAdapter:
    """A test adapter that returns prepared answers for each tool, in order.

    Raises:
        AssertionError: from a call or a lookup for which no answer is left.
    """

    def __init__(
        self,
        definition: AdapterDefinition,
        script: Mapping[str, Sequence[Answer]],
        lookups: Mapping[str, Sequence[Answer]] | None = None,
    ) -> None:
        self._definition = definition
        self._script = {name: deque(answers) for name, answers in script.items()}
        self._lookups = {name: deque(answers) for name, answers in (lookups or {}).items()}
        self.calls: list[Call] = []

    def describe(self) -> AdapterDefinition:
        return self._definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.calls.append(Call(capability, dict(args), context))
        reply = _next(self._script, capability)
        assert reply is not None, f"the script of `{capability}` has no answer for a call; None answers lookups only"
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        self.calls.append(Call(capability, {}, context, idempotency_key))
        return _next(self._lookups, capability)


def _next(script: Mapping[str, deque[Answer]], capability: str) -> AdapterReply | None:
    assert script.get(capability), f"the script of `{capability}` is over; give it more answers"
    answer = script[capability].popleft()
    if isinstance(answer, Exception):
        raise answer
    return AdapterReply(output=dict(answer)) if isinstance(answer, Mapping) else answer
