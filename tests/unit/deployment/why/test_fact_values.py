"""The value of a fact is found where the journal has it, and is never that of another piece of evidence."""

from __future__ import annotations

from typing import Any

from contextos.contracts.journal import Logged
from contextos.deployment.why.fact_values import FactValue, fact_value

PRODUCED = {"deploy.impact": ("impact",)}


def read(seq: int, kind: str, body: Any, key: str = "") -> Logged:
    return Logged(seq, kind, key, 5, "runtime", body, "")


def returned(seq: int, ref: str, output: Any) -> Logged:
    envelope = {"capability_id": "deploy.impact", "citations": [{"evidence_ref": ref}], "output": output}
    return read(seq, "tool.returned", {"outcome": "returned", "envelope": envelope})


def value(path: str, *log: Logged) -> FactValue | None:
    decided = read(9, "policy.decided", {"point": "execute"}, "execute/0/s1")
    ordered = sorted([*log, decided], key=lambda entry: entry.seq)
    return fact_value(path, ordered, decided, "deploy.rollback", PRODUCED)


def test_of_two_pieces_of_evidence_that_differ_the_frozen_one_is_used_or_none() -> None:
    two = returned(1, "tool:1", {"customers": 3}), returned(2, "tool:2", {"customers": 90})
    assert value("evidence.impact.customers", *two) is None
    assert value("evidence.impact.customers", two[0]) == FactValue(3, 1)
    frozen = {"items": [{"name": "impact", "evidence_ref": "tool:1"}]}
    later = read(12, "evidence.frozen", frozen, "0/s1")
    assert value("evidence.impact.customers", *two, later) == FactValue(3, 1)
    other_call = read(12, "evidence.frozen", frozen, "0/s2")
    assert value("evidence.impact.customers", *two, other_call) is None


def test_evidence_whose_name_has_dots_is_found_and_what_came_later_is_not_used() -> None:
    item = {"name": "policy.eval", "evidence_ref": "kg:1", "value": {"eligible": False}}
    assert value("evidence.policy.eval.eligible", read(1, "evidence.retrieved", [item])) == FactValue(False, 1)
    assert value("evidence.policy.eval.eligible", read(10, "evidence.retrieved", [item])) is None
    assert value("evidence.policy.eval.other", read(1, "evidence.retrieved", [item])) is None


def test_arguments_are_those_of_this_call() -> None:
    def asked(seq: int, amount: int) -> Logged:
        return read(seq, "call.asked", {"tool": "deploy.rollback", "args": {"amount": amount}})

    assert value("args.amount", asked(1, 5), asked(3, 7)) == FactValue(7, 3)
    assert value("args.amount", asked(11, 7)) is None, "the agent asked for it later"
    assert value("args.amount", read(11, "approval.asked", {"args": {"amount": 8}}, "0/s1")) == FactValue(8, 11)
    assert value("args.amount", read(11, "approval.asked", {"args": {"amount": 8}}, "0/s2")) is None


def test_facts_of_other_roots_are_not_made_up() -> None:
    assert value("history.sum", returned(1, "tool:1", {"sum": 1})) is None
    assert value("user.role", read(1, "identity.resolved", {"principals": None})) is None
