"""Check whether one more dispatch fits the run's budget. Called before the first attempt and before each retry.

Source: API Contracts, "run_budget".
"""

from __future__ import annotations

from dataclasses import dataclass

from contextos.contracts.envelopes.run import RunBudget
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.model import UNITS_PER_CENT


@dataclass(frozen=True, slots=True)
class BudgetUsed:
    """What the run has used so far: dispatched calls, cost in 1/10,000 US cent, and wall clock in microseconds."""

    tool_calls: int
    cost_units: int
    wall_clock_us: int


def exceeded_limit(budget: RunBudget, spent: BudgetUsed, definition: CapabilityDefinition) -> str | None:
    """Return the limit that one more dispatch would exceed, or None."""
    cost = round(definition.cost_cents * UNITS_PER_CENT)
    if spent.tool_calls + 1 > budget.max_tool_calls:
        return f"`max_tool_calls` is {budget.max_tool_calls}"
    if spent.cost_units + cost > round(budget.max_cost_cents * UNITS_PER_CENT):
        return f"`max_cost_cents` is {budget.max_cost_cents}"
    if spent.wall_clock_us > budget.wall_clock_ms * 1_000:
        return f"`wall_clock_ms` is {budget.wall_clock_ms}"
    return None


def with_dispatch(spent: BudgetUsed, definition: CapabilityDefinition) -> BudgetUsed:
    """Return the usage after one more dispatch, at the declared cost of the capability."""
    cost = round(definition.cost_cents * UNITS_PER_CENT)
    return BudgetUsed(spent.tool_calls + 1, spent.cost_units + cost, spent.wall_clock_us)
