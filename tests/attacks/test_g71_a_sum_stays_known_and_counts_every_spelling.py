"""A call that a sum cannot add up is refused alone, and another spelling of a subject has no sum of its own."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.ports.gates import Done, Refused
from tests.bank import ORDERS, PAY, in_bank, open_gate

DAY = {"aggregate": "sum", "of": "amount", "window_s": 86_400, "capability": PAY}
LIMIT: dict[str, Any] = {
    "rule_id": "R_HOUSE_LIMIT",
    "applies_to": {"capability": PAY},
    "if": {">": [{"+": [{"var": "history.paid"}, {"var": ["args.amount", 0]}]}, 1000]},
    "then": {"allow": False},
}


@pytest.mark.parametrize("amount", [-1, -1_000_000_000, None], ids=["below 0", "far below 0", "missing"])
def test_a_call_that_cannot_be_added_up_closes_the_tool_for_nobody(amount: int | None) -> None:
    async def play(app: Any, paid: list[Any]) -> None:
        first = await open_gate(app, "attacker")
        args = {"order": "ord_1"} | ({} if amount is None else {"amount": amount})
        refused = await first.call(PAY, args, call_id="bad")
        assert isinstance(refused, Refused)
        assert refused.reasons[0].code == "argument_out_of_bounds"
        assert "`history.paid` adds up the argument `amount`" in str(refused)
        assert paid == []
        other = await open_gate(app, "somebody")
        assert isinstance(await other.call(PAY, {"order": "ord_2", "amount": 900}, call_id="good"), Done)
        assert isinstance(await other.call(PAY, {"order": "ord_2", "amount": 101}, call_id="more"), Refused)
        assert paid == [("ord_2", 900)]

    in_bank(play, LIMIT, history={"paid": {**DAY, "over": "tenant"}})


@pytest.mark.parametrize("spelling", [one for one in ORDERS if one not in ("ord_1", "ord_2")])
def test_another_spelling_of_a_subject_has_the_same_sum(spelling: str) -> None:
    async def play(app: Any, paid: list[Any]) -> None:
        gate = await open_gate(app, "spelled")
        assert isinstance(await gate.call(PAY, {"order": "ord_1", "amount": 900}, call_id="first"), Done)
        again = await gate.call(PAY, {"order": spelling, "amount": 200}, call_id="second")
        assert isinstance(again, Refused)
        assert "R_HOUSE_LIMIT" in str(again)
        assert isinstance(await gate.call(PAY, {"order": "ord_2", "amount": 200}, call_id="third"), Done)
        assert paid == [("ord_1", 900), ("ord_2", 200)]

    in_bank(play, LIMIT, history={"paid": {**DAY, "over": "subject", "subject": "order"}})
