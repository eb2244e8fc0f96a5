"""Policy is asked before the budget: a run that a rule denies says so, and does not end as exhausted."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.run import RuntimeHints
from contextos.contracts.ports.gates import Done, Refused
from tests.bank import PAY, in_bank, open_gate

DENIED: dict[str, Any] = {
    "rule_id": "R_HOUSE_NO",
    "applies_to": {"capability": PAY},
    "if": {">": [{"var": ["args.amount", 0]}, 1000]},
    "then": {"allow": False},
    "rationale": "nobody pays as much",
}


@pytest.mark.parametrize("hints", [{"max_tool_calls": 1}, {"max_tool_calls": 1, "max_cost_cents": 0}])
def test_what_a_rule_denies_is_denied_by_the_rule_whatever_the_budget_has_left(hints: dict[str, int]) -> None:
    async def play(app: Any, paid: list[Any]) -> None:
        gate = await open_gate(app, "spent", hints=RuntimeHints(**hints))
        assert isinstance(await gate.call(PAY, {"order": "ord_1", "amount": 1}, call_id="one"), Done)
        denied = await gate.call(PAY, {"order": "ord_1", "amount": 5000}, call_id="two")
        assert isinstance(denied, Refused)
        assert (denied.reasons[0].code, "R_HOUSE_NO" in str(denied)) == ("policy_denied", True)
        assert not denied.ended
        within = await gate.call(PAY, {"order": "ord_1", "amount": 2}, call_id="three")
        assert isinstance(within, Refused)
        assert within.reasons[0].code == "budget_exhausted"
        assert paid == [("ord_1", 1)]

    in_bank(play, DENIED)
