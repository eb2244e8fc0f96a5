"""A budget permits exactly its limit, and costs are counted without rounding errors."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.action.budget import exceeded_limit, with_dispatch
from contextos.contracts.entries.account import Usage
from contextos.contracts.envelopes.run import BudgetInForce
from contextos.contracts.envelopes.tool import CapabilityDefinition


def budget(**limits: Any) -> BudgetInForce:
    return BudgetInForce.model_construct(**{"max_tool_calls": 10, "max_cost_cents": 1.0, "wall_clock_ms": 10, **limits})


def costing(cents: float) -> CapabilityDefinition:
    return CapabilityDefinition.model_construct(cost_cents=cents)


@pytest.mark.parametrize(
    ("spent", "cost", "limit"),
    [
        (Usage(0, 9, 0, 0), 0, None),
        (Usage(0, 10, 0, 0), 0, "max_tool_calls"),
        (Usage(0, 0, 0, 0), 1.0, None),
        (Usage(0, 0, 1, 0), 1.0, "max_cost_cents"),
        (Usage(0, 0, 0, 10_000), 0, None),
        (Usage(0, 0, 0, 10_001), 0, "wall_clock_ms"),
    ],
)
def test_the_limit_itself_is_permitted_and_one_more_is_not(spent: Usage, cost: float, limit: str | None) -> None:
    exceeded = exceeded_limit(budget(), spent, costing(cost))
    assert (exceeded is None) if limit is None else (exceeded is not None and limit in exceeded)


def test_ten_tenths_of_a_cent_are_one_cent() -> None:
    spent = Usage(0, 0, 0, 5)
    for _ in range(9):
        spent = with_dispatch(spent, costing(0.1))
    assert exceeded_limit(budget(), spent, costing(0.1)) is None
    assert spent == Usage(0, 9, spent.cost_units, 5)
    assert exceeded_limit(budget(max_tool_calls=99), with_dispatch(spent, costing(0.1)), costing(0.0001)) is not None
