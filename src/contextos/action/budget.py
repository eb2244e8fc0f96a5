"""Whether one more dispatch stays within the run's budget; asked before the first attempt and before each further one.

Source: API Contracts, "run_budget".
"""

from __future__ import annotations

from dataclasses import dataclass

from contextos.contracts.envelopes.run import RunBudget
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.model import UNITS_PER_CENT


@dataclass(frozen=True, slots=True)
class BudgetUsed:
    """What the run has used so far, as the meter folds it."""

    tool_calls: int
    cost_units: int
    wall_clock_us: int


def exceeded_limit(budget: RunBudget, spent: BudgetUsed, definition: CapabilityDefinition) -> str | None:
    """The limit that one more dispatch would pass; None while it fits."""
    cost = round(definition.cost_cents * UNITS_PER_CENT)
    if spent.tool_calls + 1 > budget.max_tool_calls:
        return f"`max_tool_calls` is {budget.max_tool_calls}"
    if spent.cost_units + cost > round(budget.max_cost_cents * UNITS_PER_CENT):
        return f"`max_cost_cents` is {budget.max_cost_cents}"
    if spent.wall_clock_us > budget.wall_clock_ms * 1_000:
        return f"`wall_clock_ms` is {budget.wall_clock_ms}"
    return None


def with_dispatch(spent: BudgetUsed, definition: CapabilityDefinition) -> BudgetUsed:
    """What will have been used once one more call is dispatched at its declared cost."""
    cost = round(definition.cost_cents * UNITS_PER_CENT)
    return BudgetUsed(spent.tool_calls + 1, spent.cost_units + cost, spent.wall_clock_us)
