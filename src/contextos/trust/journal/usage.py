"""What a run has used so far, computed from its journal entries, for the budget guard and the DecisionRecord.

Time in which a run waits is not counted: for a person, for the agent of its session, for a driver, or for its turn
(`waited_us` of an answer).
Source: API Contracts, "run_budget"; docs/design/contracts.md, "Wall clock".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from contextos.contracts.journal import Logged
from contextos.contracts.model import UNITS_PER_CENT, final_fields

_WAKING: Final = frozenset(
    {
        "approval.answered",
        "approval.expired",
        "approval.reasked",
        "effect.settled",
        "slot.answered",
        "run.cancel_requested",
        "run.resumed",
        "run.reopened",
        "tool.retry_due",
        "call.asked",
        "session.finished",
        "session.expired",
    }
)
"""The time before such an entry was spent waiting: for a person, for an agent or for a driver."""

_COUNTED: Final = _WAKING | {"context.compiled", "tool.dispatching", "tool.retry_scheduled", "tool.returned"}
"""The kinds of the entries that change what a run has used."""


@final_fields
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


class UsageMeter:
    """What a run has used, from its journal entries `log`, which only grows and begins with the request.

    `read` goes on from the entries that it has counted before. A call counts with its reserved cost until its result
    states the actual cost.
    """

    def __init__(self, log: Sequence[Logged]) -> None:
        self._log, self._counted = log, 1
        self._tokens = self._calls = self._waited_us = 0
        self._cost: dict[str, int] = {}

    def read(self) -> Usage:
        """Return what the run has used up to its last entry."""
        log = self._log
        for at in range(self._counted, len(log)):
            if log[at].kind in _COUNTED:
                self._count(log[at], log[at].at_us - log[at - 1].at_us)
        self._counted = max(self._counted, len(log))
        wall_us = log[-1].at_us - log[0].at_us - self._waited_us if log else 0
        return Usage(self._tokens, self._calls, sum(self._cost.values()), wall_us)

    def _count(self, entry: Logged, since_us: int) -> None:
        kind = entry.kind
        if kind in _WAKING:
            self._waited_us += since_us
        if kind == "tool.retry_scheduled":
            # Under one key a call happens once, however often it is sent: it counts once, at the cost of its last try.
            self._calls -= 1
            self._cost.pop(entry.key, None)
        elif kind == "context.compiled":
            self._tokens += entry.body["budget_report"]["tokens_used_at_compile"]
        elif kind == "tool.dispatching":
            self._calls += 1
            self._cost[entry.key] = cost_units(entry.body["reservation"]["cost_cents"])
        elif kind == "tool.returned":
            self._cost[entry.key] = cost_units(entry.body["cost_cents"])
            # The clock can have been set forward and back during the call.
            self._waited_us += min(entry.body.get("waited_us", 0), since_us)


def usage(log: Sequence[Logged]) -> Usage:
    """Return what a run has used, from its journal entries (see `UsageMeter`)."""
    return UsageMeter(log).read()
