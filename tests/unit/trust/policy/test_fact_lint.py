"""A rule's facts and scope against the vocabulary: each finding has its place and the nearest right name."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.policy import AppliesTo
from contextos.contracts.facts import Vocabulary
from contextos.trust.policy.conditions import analyse_condition
from contextos.trust.policy.fact_lint import lint_facts, lint_scope


def found(condition: Any, **applies: Any) -> list[tuple[str, str, str]]:
    facts = analyse_condition(condition, {"user.roles": "array"} if "roles" in str(condition) else {}).facts
    problems = lint_facts(facts, condition, AppliesTo(**applies), Vocabulary(), ("if",))
    return [(problem.pointer, problem.code, problem.remedy) for problem in problems]


def test_a_condition_on_facts_that_exist_has_no_finding() -> None:
    assert found({"and": [{"==": [{"var": "user.role"}, "x"]}, {"in": ["a", {"var": "user.roles"}]}]}) == []


@pytest.mark.parametrize("read", [{"var": "user.rol"}, {"var": ["user.rol", "x"]}])
def test_an_unknown_fact_is_found_at_its_operand(read: Any) -> None:
    ((where, code, remedy),) = found({"==": [read, "x"]})
    assert (where.startswith("/if/==/0/var"), code, remedy) == (True, "unknown_fact", "write `user.role`")


def test_history_that_no_bundle_declares_does_not_exist() -> None:
    ((_, code, remedy),) = found({">": [{"var": "history.refunds.sum"}, 1]})
    assert (code, "declare it in `history`" in remedy) == ("unknown_fact", True)


def test_another_type_and_a_point_at_which_a_fact_is_not_known_are_found() -> None:
    assert [code for _, code, _ in found({"==": [{"var": "user.role"}, 5]})] == ["type_mismatch"]
    assert [code for _, code, _ in found({"==": [{"var": "args.n"}, 5]}, point="compile")] == ["unknown_at_point"]


def test_facts_that_are_never_known_together_are_found() -> None:
    def both(one: str, other: str) -> list[str]:
        return [code for _, code, _ in found({"and": [{"==": [{"var": path}, "x"]} for path in (one, other)]})]

    assert both("memory.entity", "args.n") == ["unknown_at_point"]
    assert both("model.model", "memory.entity") == ["unknown_at_point"]
    assert both("model.model", "user.role") == both("args.n", "capability.capability_id") == []


def test_a_scope_names_environments_that_exist() -> None:
    def codes(**applies: Any) -> list[str]:
        return [one.code for one in lint_scope(AppliesTo(**applies), Vocabulary(), ("applies_to",))]

    assert codes(point="execute", environment="prod") == []
    assert codes(environment="service") == ["unknown_environment"]
