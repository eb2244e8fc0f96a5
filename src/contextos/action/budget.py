"""Check whether one more tool call fits the run's budget, before each attempt, and whether a reply exceeded it.

Source: API Contracts, "run_budget".
"""

from __future__ import annotations

from contextos.contracts.entries.account import Usage, cost_units
from contextos.contracts.envelopes.run import BudgetInForce
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.ports.calls import CallTime


def exceeded_limit(budget: BudgetInForce, spent: Usage, definition: CapabilityDefinition) -> str | None:
    """Return the name of the budget limit that one more call of this tool would exceed, or None."""
    if spent.tool_calls + 1 > budget.max_tool_calls:
        return "max_tool_calls"
    return overrun_limit(budget, with_dispatch(spent, definition))


def overrun_limit(budget: BudgetInForce, spent: Usage) -> str | None:
    """Return the name of the limit on cost or wall clock that a run is above after a call, or None.

    The cost of a call is known only from its reply, so a run can exceed its limit by the cost of its last calls.
    """
    if spent.cost_units > cost_units(budget.max_cost_cents):
        return "max_cost_cents"
    if spent.wall_clock_us > budget.wall_clock_ms * 1_000:
        return "wall_clock_ms"
    return None


def call_time(budget: BudgetInForce | None, spent: Usage, definition: CapabilityDefinition) -> CallTime:
    """Return how long one more attempt of this call can take. With `budget` None, the run does not limit it."""
    timeout_ms = definition.timeout_s * 1_000
    left_us = max(0, budget.wall_clock_ms * 1_000 - spent.wall_clock_us) if budget else timeout_ms * 1_000
    if budget is None or left_us >= timeout_ms * 1_000:
        return CallTime(timeout_ms * 1_000, timeout_ms)
    # Rounded up, so that the limit has certainly passed when the call is cut off.
    return CallTime(left_us, left_us // 1_000 + 1, budget.stated("wall_clock_ms"))


def with_dispatch(spent: Usage, definition: CapabilityDefinition) -> Usage:
    """Return what the run will have used after one more call of this tool, at the cost that the tool declares."""
    cost = spent.cost_units + cost_units(definition.cost_cents)
    return Usage(spent.tokens, spent.tool_calls + 1, cost, spent.wall_clock_us)
