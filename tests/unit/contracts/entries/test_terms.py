"""A term is a number for a criterion and its value, and a run has those that its entries state."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.entries.terms import ANY_RUN, LIVE, standing_terms, stated_terms, term
from contextos.contracts.journal import Logged

RECORD = {
    "decision_key": "refund",
    "record_id": "dr_1",
    "subject_ids": ["customer:a", "order:b"],
    "approvals": [{"approver": "usr_1"}],
    "policy_decisions": [{"rule_ids": ["R_1", "R_2"]}, {"rule_ids": ["R_1"]}],
}
REQUEST = {"user": {"user_id": "usr_2"}, "agent": {"agent_id": "agt_1"}, "mode": "sync"}


def entry(kind: str, body: Any) -> Logged:
    return Logged(1, kind, "", 1, "runtime", body, "")


@pytest.mark.parametrize("value", ["", "a" * 9_999, "\0", "\ud800", "x=y", "\u202e", "'; DROP TABLE run_terms"])
def test_a_term_of_any_value_is_a_number_that_every_store_holds(value: str) -> None:
    found = term("subject", value)
    assert -(2**63) <= found < 2**63
    assert found == term("subject", value)
    assert found not in (term("approver", value), term("subject", f"{value}."), ANY_RUN, LIVE)


def test_entries_state_whom_a_decision_is_about_and_who_and_which_rules_made_it() -> None:
    entries = [
        entry("run.received", {"request": REQUEST}),
        entry("context.compiled", {}),
        entry("record.revised", RECORD),
    ]
    assert stated_terms(entries) == {
        term("user", "usr_2"),
        term("agent", "agt_1"),
        term("mode", "sync"),
        term("decision", "refund"),
        term("decision", "dr_1"),
        term("subject", "customer:a"),
        term("subject", "order:b"),
        term("approver", "usr_1"),
        term("rule", "R_1"),
        term("rule", "R_2"),
    }


def test_an_entry_that_was_erased_and_one_of_no_known_kind_state_nothing() -> None:
    assert stated_terms([entry("record.revised", None), entry("run.from_tomorrow", RECORD)]) == set()


def test_a_run_is_live_or_has_the_state_and_the_status_of_its_end() -> None:
    assert standing_terms("executing", "IN_FLIGHT", ended=False) == (LIVE,)
    assert standing_terms("completed", "CLOSED", ended=True) == (term("state", "completed"), term("status", "CLOSED"))
    assert standing_terms("erased", None, ended=True) == (term("state", "erased"),)
