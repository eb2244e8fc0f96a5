"""What lint says of a pack that this deployment can never fulfil."""

from __future__ import annotations

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.policy import PolicyBundle
from contextos.packs.deployed import lint_rule_names

RULE = {"if": {"==": [1, 1]}, "then": {"allow": False}}


def bundle(*names: str) -> PolicyBundle:
    rules = [{**RULE, "rule_id": name} for name in names]
    return parse(PolicyBundle, {"bundle_id": "POLICY_X", "policy_dsl": {"language": "jsonlogic", "rules": rules}})


def test_two_rules_of_one_name_are_found_at_the_later_one() -> None:
    assert list(lint_rule_names(bundle("R_ONE", "R_TWO"))) == []
    [found] = lint_rule_names(bundle("R_ONE", "R_TWO", "R_ONE"))
    assert found.pointer == "/policy_dsl/rules/2/rule_id"
    assert "R_ONE" in found.detail
