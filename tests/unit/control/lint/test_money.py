"""Which arguments of a tool are amounts of money."""

from __future__ import annotations

from typing import Any

import pytest

import contextos
from contextos.control.lint.money import money_of


@contextos.write(risk="irreversible", idempotency="none", destinations=[])
def settle(totalAmount: str, fee_inr: int, tip: float | None = None, note: str = "", sumOf: bool = False) -> str:
    """Pay."""
    return "paid"


@contextos.write(risk="reversible", idempotency="none", destinations=[])
def scale(payment_id: str, replicas: int, discounted: float, amounts_seen: bool) -> str:
    """No money."""
    return "done"


@contextos.read(integrity="trusted")
def balance(amount: int) -> int:
    """A read moves nothing."""
    return amount


@pytest.mark.parametrize(("tool", "amounts"), [(settle, ["totalAmount", "fee_inr", "tip"]), (scale, []), (balance, [])])
def test_an_amount_is_seen_by_its_name_and_a_number_by_more_names(tool: Any, amounts: list[str]) -> None:
    [capability] = contextos.toolset("bank", [tool]).describe().capabilities
    assert money_of(capability) == amounts


@pytest.mark.parametrize(
    "schema", [{"type": ["integer", "null"]}, {"oneOf": [{"type": "number"}, {"type": "null"}]}, {"type": "integer"}]
)
def test_an_amount_that_can_be_null_is_an_amount(schema: dict[str, Any]) -> None:
    [capability] = contextos.toolset("bank", [settle]).describe().capabilities
    foreign = capability.model_copy(update={"input_schema": {"type": "object", "properties": {"fee": schema}}})
    assert money_of(foreign) == ["fee"]
