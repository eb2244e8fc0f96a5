"""What a run has used so far, computed from its journal entries, for the budget guard and the DecisionRecord.

Time in which a run waits is not counted: for a person, for a driver, or for its turn (`waited_us` of an answer).
Source: API Contracts, "run_budget"; docs/design/contracts.md, "Wall clock".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from contextos.contracts.journal import Logged
from contextos.contracts.model import UNITS_PER_CENT

_WAKING: Final = frozenset(
    {
        "approval.answered",
        "approval.expired",
        "effect.settled",
        "slot.answered",
        "run.cancel_requested",
        "run.resumed",
        "run.reopened",
        "tool.retry_due",
    }
)
"""The time before such an entry was spent waiting, for a person or for a driver."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has used: tokens, calls, cost in 1/10,000 US cent, and wall clock time without waiting, in
    microseconds.
    """

    tokens: int
    tool_calls: int
    cost_units: int
    wall_clock_us: int

    @property
    def cost_cents(self) -> float | int:
        """Return the cost in US cents, with at most 4 decimals."""
        whole, rest = divmod(self.cost_units, UNITS_PER_CENT)
        return whole if rest == 0 else self.cost_units / UNITS_PER_CENT


def cost_units(cents: float | int) -> int:
    """Convert US cents to whole units of 1/10,000 cent."""
    return round(cents * UNITS_PER_CENT)


def usage(log: Sequence[Logged]) -> Usage:
    """Compute what a run has used from its journal entries, the first of which is its request.

    A call counts with its reserved cost until its result states the actual cost.
    """
    tokens = calls = waited = 0
    cost: dict[str, int] = {}
    for before, entry in pairwise(log):
        kind = entry.kind
        if kind in _WAKING:
            waited += entry.at_us - before.at_us
        if kind == "tool.retry_scheduled":
            # Under one key a call happens once, however often it is sent: it counts once, at the cost of its last try.
            calls -= 1
            cost.pop(entry.key, None)
        elif kind == "context.compiled":
            tokens += entry.body["budget_report"]["tokens_used_at_compile"]
        elif kind == "tool.dispatching":
            calls += 1
            cost[entry.key] = cost_units(entry.body["reservation"]["cost_cents"])
        elif kind == "tool.returned":
            cost[entry.key] = cost_units(entry.body["cost_cents"])
            # The clock can have been set forward and back during the call.
            waited += min(entry.body.get("waited_us", 0), entry.at_us - before.at_us)
    wall = log[-1].at_us - log[0].at_us - waited if log else 0
    return Usage(tokens, calls, sum(cost.values()), wall)
