"""Any deny wins, the strictest mode wins, and a rule that does not enforce only restricts."""

from __future__ import annotations

from tests.policies import ALLOW_AGENTS, LOOKUP, NOTE, REFUND, decide, facts, leveled, policy, rule

DENY = rule("R_DENY", True, allow=False)


def test_a_deny_wins_over_every_allow_at_every_level() -> None:
    policies = policy(leveled(ALLOW_AGENTS), leveled(DENY, level="pack", bundle_id="POLICY_B"))
    decision = decide(policies, facts(), NOTE)
    assert (decision.allowed, decision.reason, decision.denying_rule_ids) == (False, "denied_by_rule", ("R_DENY",))


def test_nothing_allows_a_write_and_only_a_granted_read_is_allowed_by_default() -> None:
    assert decide(policy(), facts(), NOTE).reason == "no_rule_allows"
    assert decide(policy(), facts(), LOOKUP).reason == "allowed_by_default"
    assert decide(policy(), facts(), LOOKUP, granted=False).reason == "no_rule_allows"


def test_an_observed_bundle_changes_nothing_and_is_named() -> None:
    policies = policy(leveled(ALLOW_AGENTS), leveled(DENY, level="tenant", bundle_id="POLICY_B", mode="observe"))
    decision = decide(policies, facts(), NOTE)
    assert (decision.allowed, decision.observed) == (True, ("R_DENY",))


def test_a_rule_that_does_not_enforce_never_allows() -> None:
    assert decide(policy(leveled(rule("R_SOFT", True, non_enforcing=True))), facts(), NOTE).reason == "no_rule_allows"


def test_a_prohibited_capability_is_denied_although_a_rule_allows_it() -> None:
    prohibits = rule("R_P", True, prohibits=[NOTE.capability_id])
    other = rule("R_Q", True, prohibits=[LOOKUP.capability_id])
    decision = decide(policy(leveled(ALLOW_AGENTS, prohibits, other)), facts(), NOTE)
    assert (decision.reason, decision.denying_rule_ids) == ("prohibited", ("R_P",))


def test_a_rule_that_exceeds_the_declared_mode_denies() -> None:
    strict = rule("R_M", True, approval_mode="destructive")
    assert decide(policy(leveled(ALLOW_AGENTS, strict)), facts(), NOTE).reason == "mode_above_declared"


def test_a_destructive_call_needs_a_gate_at_execute() -> None:
    policies = policy(leveled(ALLOW_AGENTS))
    assert decide(policies, facts(), REFUND).reason == "gate_missing"
    assert decide(policies, facts(), REFUND, point="plan").allowed
