"""A history fact means one thing, and counts effects that exist."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from contextos.contracts.envelopes.policy import HistoryFact, LeveledBundle, PolicyBundle
from contextos.contracts.facts import Vocabulary
from contextos.trust.policy.history_lint import lint_history

SCHEMA = {"properties": {"amount": {"type": "integer"}, "note": {"type": "string"}}, "additionalProperties": False}


def fact(**more: Any) -> dict[str, Any]:
    return {"capability": "adp.pay", "aggregate": "count", "over": "user", "window_s": 60} | more


def codes(*facts: tuple[str, dict[str, Any]], mode: str = "destructive") -> list[str]:
    rule = {"rule_id": "R_ONE", "if": True, "then": {"allow": False}}
    leveled = [
        LeveledBundle(
            "pack",
            PolicyBundle.model_validate(
                {
                    "bundle_id": f"POLICY_{number}",
                    "history": {name: one},
                    "policy_dsl": {"language": "jsonlogic", "rules": [rule]},
                }
            ),
            "1.0.0",
            f"sha256:{number}",
        )
        for number, (name, one) in enumerate(facts)
    ]
    return [one.code for one in lint_history(leveled, {"adp.pay": mode}, Vocabulary({"adp.pay": SCHEMA}))]


def test_a_fact_that_counts_is_accepted_and_may_be_declared_twice_alike() -> None:
    total = fact(aggregate="sum", of="amount", over="subject", subject="note")
    assert codes(("paid", fact()), ("paid", fact()), ("total", total)) == []


def test_what_would_not_count_is_named() -> None:
    assert codes(("paid", fact()), ("paid", fact(window_s=61))) == ["duplicate_history"]
    assert codes(("a.b", fact())) == ["bad_name"]
    assert codes(("paid", fact()), mode="read_only") == ["history_of_a_read"]
    assert codes(("paid", fact(over="subject", subject="order"))) == ["unknown_argument"]
    assert codes(("paid", fact(aggregate="sum", of="note"))) == ["not_a_number"]


@pytest.mark.parametrize("half", [{"aggregate": "sum"}, {"of": "amount"}, {"over": "subject"}, {"subject": "note"}])
def test_a_half_declared_fact_is_refused(half: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HistoryFact.model_validate(fact(**half))
