"""What decisions raise is added up, whether an entry holds one or several."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.entries.kinds import account_of
from contextos.contracts.journal import Logged

FIRST = {"policy_decision_id": "pol_1", "matched_rule_ids": ["R_2", "R_1"], "gates": ["GATE_B"], "asserted": []}
SECOND = {"policy_decision_id": "pol_2", "matched_rule_ids": ["R_1"], "gates": ["GATE_A"], "must_refuse": ["R_1"]}


@pytest.mark.parametrize("bodies", [[{"decisions": [FIRST, SECOND]}], [FIRST, SECOND]], ids=["one entry", "two"])
def test_decisions_of_one_entry_and_of_two_are_the_same(bodies: list[dict[str, Any]]) -> None:
    log = [Logged(seq, "policy.decided", "", 0, "runtime", body, "") for seq, body in enumerate(bodies, 1)]
    account = account_of("run_00000000000000ab", log)
    assert [one["policy_decision_id"] for one in account.decisions] == ["pol_1", "pol_2"]
    assert list(account.matched_rules) == ["R_2", "R_1"]
    assert (account.raised("gates"), account.raised("must_refuse")) == (["GATE_A", "GATE_B"], ["R_1"])
    assert account.raised("asserted") == []
