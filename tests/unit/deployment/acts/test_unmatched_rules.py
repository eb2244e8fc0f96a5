"""Names in rules: what is not known is not looked for, and what is known is resolved."""

from __future__ import annotations

from typing import Any

from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.envelopes.policy import PolicyBundle
from contextos.deployment.acts.unmatched_rules import TenantNames, unmatched_names


def bundle(**rule: Any) -> PolicyBundle:
    one = {"rule_id": "R_A", "if": {"==": [{"var": "user.role"}, "clerk"]}, "then": {"allow": False}, **rule}
    return PolicyBundle.model_validate(
        {"bundle_id": "POLICY_A", "policy_dsl": {"language": "jsonlogic", "rules": [one]}}
    )


def test_without_knowledge_only_the_form_of_a_name_is_judged() -> None:
    found = unmatched_names(bundle(applies_to={"capability": "bank.pay", "intent": "pay"}), TenantNames())
    assert (found.never, found.later) == ([], [])
    [problem] = unmatched_names(bundle(applies_to={"capability": "bank.*"}), TenantNames()).never
    assert (problem.pointer, problem.code) == ("/policy_dsl/rules/0/applies_to/capability", "never_matches")


def test_what_is_known_to_be_absent_is_listed_with_the_nearest_name() -> None:
    known = TenantNames(definitions={}, packs=[], held=HeldRoles(users=("clerks",)))
    found = unmatched_names(bundle(applies_to={"capability": "bank.pay", "intent": "pay"}), known)
    assert [one.pointer.rpartition("/")[2] for one in found.later] == ["capability", "intent", "1"]
    assert found.later[-1].remedy == "did you mean `clerks`?"
