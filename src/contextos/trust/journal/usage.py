"""What a run has used, as a fold of its journal: the one source for budget guards, records and wall clock.

An answer says by `waited_us` how long it was there while others had the turns. Source: API Contracts, "run_budget";
shared/design/contracts.md, "Wall clock: time spent waiting does not count".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from contextos.contracts.journal import Logged
from contextos.contracts.model import UNITS_PER_CENT

_WAKING: Final = frozenset(
    {"approval.answered", "approval.expired", "effect.settled", "slot.answered", "run.cancel_requested", "run.resumed"}
)
"""The gap before one of these is waiting, for a person or for a driver, and not work."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, dispatches, cost in 1/10,000 cent, and wall clock in microseconds without waiting."""

    tokens: int
    tool_calls: int
    cost_units: int
    wall_clock_us: int

    @property
    def cost_cents(self) -> float | int:
        """US cents with at most 4 decimals."""
        whole, rest = divmod(self.cost_units, UNITS_PER_CENT)
        return whole if rest == 0 else self.cost_units / UNITS_PER_CENT


def cost_units(cents: float | int) -> int:
    """US cents as integers of 1/10,000 cent."""
    return round(cents * UNITS_PER_CENT)


def usage(log: Sequence[Logged]) -> Usage:
    """Fold the entries of a run, of which the first is its request.

    A dispatch counts what it reserved until its outcome says what it cost.
    """
    tokens = calls = waited = 0
    cost: dict[str, int] = {}
    for before, entry in pairwise(log):
        kind = entry.kind
        if kind in _WAKING:
            waited += entry.at_us - before.at_us
        elif kind == "context.compiled":
            tokens += entry.body["budget_report"]["tokens_used_at_compile"]
        elif kind == "tool.dispatching":
            calls += 1
            cost[entry.key] = cost_units(entry.body["reservation"]["cost_cents"])
        elif kind == "tool.returned":
            cost[entry.key] = cost_units(entry.body["cost_cents"])
            # A clock may have been put forward and back meanwhile.
            waited += min(entry.body.get("waited_us", 0), entry.at_us - before.at_us)
    wall = log[-1].at_us - log[0].at_us - waited if log else 0
    return Usage(tokens, calls, sum(cost.values()), wall)
