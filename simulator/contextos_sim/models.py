"""Simulated models that plan a refund, or choose its calls: a profile that is asked first, and a dearer one.

While there are faults they fail in every way that a provider can, answer nonsense, and state no usage, nonsense or more
than was reserved. The same conversation can have another answer, so an answer that is asked for again is found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, get_args

from contextos.contracts.envelopes.models import ModelOutcome
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText, ProposedCall
from contextos_sim import example
from contextos_sim.faults import Faults
from contextos_sim.ports import Host
from contextos_sim.scheduler import pause

INPUT_UNITS, OUTPUT_UNITS = 3, 15
"""What a token costs in 1/10,000 US cent; the dearer profile costs twice as much."""
ROUTING: Final = "routing.refund@1.0.0"
FAILURES: Final[tuple[ModelOutcome, ...]] = tuple(one for one in get_args(ModelOutcome) if one != "answered")
_PROFILES: Final = {"model.first": 1, "model.second": 2}
MODELS: Final = tuple(_PROFILES)
RATES: Final = (0.02, 0.1, 0.3)
ANSWERS_US: Final = (1_000, 500_000, 2_000_000)
"""How long an answer takes. Without the long ones hardly two calls of a world would be made at once."""


class AskedChecker(Protocol):
    """What the models report to: each call, when it arrives."""

    def model_called(self, call: ModelCall) -> None: ...


def artifacts() -> list[dict[str, Any]]:
    """Return the profiles, and the rules that name them."""
    own: dict[str, Any] = {"version": "1.0.0", "tenant": example.EXAMPLE_TENANT}
    profiles = [
        {
            "profile_id": name,
            "wire": "scripted",
            "model": name,
            "capabilities": ["structured_output", "tool_calls"],
            "context_window": 200_000,
            "max_output_tokens": 1_000,
            "regions": ["eu"],
            "data_class": "RESTRICTED",
            "retention": "none",
            "max_concurrent": 2,
            "prices": {
                "currency": "USD",
                "as_of": "2026-11-01",
                "prices": {"input": str(INPUT_UNITS * times), "output": str(OUTPUT_UNITS * times)},
            },
            **own,
        }
        for name, times in _PROFILES.items()
    ]
    candidates = [{"profile": f"{name}@1.0.0", "weight": int(not at)} for at, name in enumerate(_PROFILES)]
    rule = {"rule_id": "R_refund", "operation": "judge.plan", "candidates": candidates, "max_attempts": 4}
    return [*profiles, {"rules_id": "routing.refund", "rules": [rule], **own}]


def units_of(model: str, usage: Mapping[str, int]) -> int:
    """Return what usage costs, computed from the scenario and not by the runtime."""
    return _PROFILES[model] * (INPUT_UNITS * usage["input"] + OUTPUT_UNITS * usage["output"])


@dataclass(slots=True)
class SimulatedModels:
    """The provider of both models (`ModelProvider`), as one simulated process reaches it.

    `rate` is how often it fails while there are faults.
    """

    host: Host
    faults: Faults
    rng: Random
    rate: float
    checker: AskedChecker

    async def complete(self, call: ModelCall, _on_text: OnText | None = None) -> ModelReply:
        """Answer a call, or fail. The process can die before the call arrives, and before its answer does."""
        await self.host.enter("models.call")
        self.checker.model_called(call)
        reply = self._reply(call)
        await pause(self.rng.choice(ANSWERS_US))
        await self.host.enter("models.reply")
        return reply

    def _reply(self, call: ModelCall) -> ModelReply:
        usage = self._usage()
        if self.faults.on and self.rng.random() < self.rate:
            outcome = self.rng.choice((*FAILURES, "overloaded", "unavailable", "cut", "timed_out"))
            retry_ms = self.rng.choice((0, 0, 2_000, 10**15))
            return ModelReply(outcome, usage=usage, billed=self.rng.random() < 0.7, retry_after_ms=retry_ms)
        if self.faults.on and self.rng.random() < self.rate / 3:
            raise RuntimeError("a simulated provider has a defect")
        if self.faults.on and self.rng.random() < self.rate / 2:
            nonsense = self.rng.choice(("I cannot do that.", "{}", '{"steps": [{"tool": "adp_payments.drain"}]}', ""))
            return ModelReply("answered", nonsense, usage=usage)
        if call.tools:
            return ModelReply("answered", calls=(self._next_call(call),), usage=usage)
        return ModelReply("answered", json.dumps(example.plan()), usage=usage)

    def _usage(self) -> ModelUsage | None:
        stated = self.rng.choice(("usual", "usual", "none", "dear", "nonsense", "other tier"))
        if not self.faults.on or stated == "usual" or self.rng.random() > 2 * self.rate:
            return ModelUsage({"input": self.rng.randrange(3_000), "output": self.rng.randrange(200)})
        if stated == "dear":
            return ModelUsage({"input": self.rng.randrange(60_000), "output": 2_000})
        if stated == "other tier":
            return ModelUsage({"input": 1_000, "output": 10}, "gold")
        return None if stated == "none" else ModelUsage({"input": -7, "output": 2})

    def _next_call(self, call: ModelCall) -> ProposedCall:
        """The next call of the refund by what the conversation says was done."""
        asked = call.messages[1].text
        order, amount = re.search(r"order_id\W+(\w+)", asked), re.search(r"refund_amount\W+(\d+)", asked)
        assert order is not None and amount is not None, "the prompt has the request"
        about: dict[str, Any] = {"order_id": order[1]}
        paid = {**about, "amount_inr": int(amount[1]), "currency": "INR"}
        wanted = {
            "adp_orders.lookup": about,
            "adp_policy.eval": {**about, "amount_inr": int(amount[1])},
            "adp_payments.issue_refund": paid,
        }
        results = [json.loads(one.text)["content"] for one in call.messages if one.text.startswith('{"block":"result"')]
        done = {made["tool"] for made in results if made["status"] == "done"}
        undone = [one for one in wanted if one not in done]
        if not undone or len(results) > 5:
            outcome = "escalated" if undone else "approved"
            return ProposedCall("end", "finish", {"outcome": outcome, "reason": "simulated"})
        return ProposedCall(f"c{len(results)}", undone[0], wanted[undone[0]])
