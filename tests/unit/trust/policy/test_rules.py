"""A bundle with a rule that would loosen a decision, or that cannot run, does not compile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextos.errors import InvalidArtifact
from tests.policies import ALLOW_AGENTS, LOOKUP, NOTE, REFUND, decide, facts, leveled, policy, rule, var


def codes(*bundles: Any, **more: Any) -> list[str]:
    with pytest.raises(InvalidArtifact) as refused:
        policy(*bundles, **more)
    assert all(problem.remedy and problem.pointer for problem in refused.value.problems)
    return [problem.code for problem in refused.value.problems]


N = var("args.n")


def test_problems_point_into_the_bundle():
    bad = rule("R_BAD", {"and": [True, {">": [N, "3000"]}]})
    with pytest.raises(InvalidArtifact) as refused:
        policy(leveled(ALLOW_AGENTS, bad))
    (problem,) = refused.value.problems
    assert problem.pointer == "/policy_dsl/rules/1/if/and/1/>/1"
    assert "`R_BAD` of `POLICY_A`" in problem.detail


def test_more_rules_than_the_limit_are_refused(monkeypatch):
    monkeypatch.setattr("contextos.trust.policy.rules.MAX_RULES", 1)
    assert codes(leveled(rule("R_1", True), rule("R_2", True))) == ["too_many"]


def test_a_declared_fact_must_be_read_and_used_as_declared():
    assert "fact_not_read" in codes(leveled(rule("R_1", {">": [N, 1]}, facts={"args.m": "number"})))
    assert "type_mismatch" in codes(leveled(rule("R_1", {">": [N, 1]}, facts={"args.n": "string"})))


@pytest.mark.parametrize(
    ("made", "more", "code"),
    [
        (rule("R_1", {">": [N, 1]}, applies_to={"point": "compile"}), {}, "unknown_at_point"),
        (rule("R_1", {">": [N, 1]}, applies_to={"point": "plan"}), {}, "unknown_at_point"),
        (rule("R_1", var("evidence.ok"), applies_to={"point": "plan"}), {}, "unknown_at_point"),
        (rule("R_1", True, requires_approval_gate="GATE_NOWHERE"), {}, "unknown_gate"),
        (rule("R_1", True, approval_mode="delegated"), {}, "mode_not_bounded"),
        (
            rule("R_1", True, approval_mode="destructive", applies_to={"point": "compile"}, allow=False),
            {},
            "not_enforced",
        ),
        (
            rule("R_1", True, approval_mode="delegated", arg_constraints={"n": {"required": True}}),
            {},
            "mode_not_bounded",
        ),
        (
            rule("R_1", True, approval_mode="delegated", arg_constraints={"n": {"max": 1, "unless_approved": True}}),
            {},
            "mode_not_bounded",
        ),
        (
            rule("R_1", True, approval_mode="delegated", arg_constraints={"n": {"max": 1, "required": False}}),
            {},
            "mode_not_bounded",
        ),
        (
            rule("R_1", True, approval_mode="destructive", applies_to={"capability": NOTE.capability_id}),
            {"declared": {NOTE.capability_id: "local_write"}},
            "mode_above_declared",
        ),
        (rule("R_1", True, arg_constraints={"n": {"pattern": "(?=a)"}}), {}, "pattern_refused"),
        (rule("R_1", True, arg_constraints={"n": {"pattern": "((a{100}){100}){100}"}}), {}, "pattern_refused"),
        (rule("R_1", True, arg_constraints={"n": {}}), {}, "empty_constraint"),
        (rule("R_1", True, arg_constraints={"n": {"min": 2, "max": 1}}), {}, "empty_range"),
        (rule("R_1", True, arg_constraints={"n": {"enum": []}}), {}, "empty_enum"),
        (rule("R_1", var("request.context.vip")), {}, "asserted_fact"),
        (rule("R_1", {"in": ["x", var("request.message")]}, facts={"request.message": "string"}), {}, "asserted_fact"),
        (rule("R_1", {"!": [{"missing": ["request.context.note"]}]}), {}, "asserted_fact"),
        (
            rule("R_1", var("request.context.vip"), allow=False, requires_approval_gate="GATE_LEGAL"),
            {},
            "asserted_fact",
        ),
        (rule("R_1", True, applies_to={"point": "memory"}, prohibits=["a.b"]), {}, "not_enforced"),
        (rule("R_1", True, applies_to={"point": "memory", "capability": "a.b"}), {}, "not_enforced"),
        (rule("R_1", {"==": [var("memory.entity"), "x"]}, allow=False, approval_mode="delegated"), {}, "not_enforced"),
        (rule("R_1", True, applies_to={"point": "model"}, prohibits=["a.b"]), {}, "not_enforced"),
        (rule("R_1", {"==": [var("model.wire"), "openai"]}, requires=["a"]), {}, "not_enforced"),
        (rule("R_1", True, applies_to={"point": "model"}, requires_approval_gate="GATE_LEGAL"), {}, "not_enforced"),
        (rule("R_1", True, allow=False, applies_to={"point": "model"}, approval_mode="read_only"), {}, "not_enforced"),
        (rule("R_GUARD_X", True), {}, "reserved_id"),
        (rule("R_1", True, applies_to={"capability": "a.b"}, prohibits=["c.d"]), {}, "prohibits_unasked"),
        (rule("R_1", True), {"must_refuse": ["R_2"]}, "unknown_rule"),
        (rule("R_1", True, non_enforcing=True), {"must_refuse": ["R_1"]}, "unknown_rule"),
        (rule("R_1", True), {"must_escalate": [7]}, "unknown_rule"),
        (rule("R_1", True), {"must_refuse": [{"vr": 1}]}, "unknown_operator"),
        (rule("R_1", True), {"must_refuse": ["R_1"] * 101}, "too_many"),
    ],
)
def test_a_rule_that_would_loosen_or_cannot_run_does_not_lint(made, more, code):
    assert codes(leveled(made), **more) == [code]


def test_an_asserted_fact_may_deny_and_may_be_accepted():
    vip = facts(request__context__vip=True)
    denying = policy(leveled(rule("R_1", var("request.context.vip"), allow=False)))
    assert decide(denying, vip, LOOKUP).reason == "denied_by_rule"
    accepting = policy(leveled(rule("R_1", var("request.context.vip")), accept_asserted=["request.context.vip"]))
    accepted = decide(accepting, vip, NOTE)
    assert (accepted.allowed, accepted.asserted) == (True, ("request.context.vip",))
    validated = policy(leveled(rule("R_1", {"==": [var("request.channel"), "email"]})))
    assert decide(validated, facts(request__channel="email"), NOTE).asserted == ()


def test_a_known_declaration_makes_lint_of_modes_exact():
    equal = rule("R_1", True, approval_mode="delegated", applies_to={"capability": REFUND.capability_id})
    policy(leveled(equal), declared={REFUND.capability_id: "delegated"})
    assert codes(leveled(equal), declared={REFUND.capability_id: "destructive"}) == ["mode_not_bounded"]


@pytest.mark.requirement("P-OBSERVE")
def test_observing_is_legal_only_below_a_level_that_enforces():
    watching = leveled(rule("R_1", True), level="tenant", mode="observe")
    assert codes(watching) == ["observe_not_covered"]
    assert codes(leveled(rule("R_1", True), mode="observe")) == ["observe_not_covered"]
    beside = leveled(rule("R_2", True), level="tenant", bundle_id="POLICY_B")
    assert codes(watching, beside) == ["observe_not_covered"]
    policy(watching, leveled(rule("R_2", True), bundle_id="POLICY_B"))


@pytest.mark.requirement("P-LEVELS")
def test_a_rule_of_a_stronger_level_cannot_be_redefined_below():
    above = leveled(rule("R_1", True, allow=False))
    passable = rule("R_1", True, allow=False, non_enforcing=True)
    for weaker in (rule("R_1", False, allow=False), rule("R_1", True), passable):
        assert codes(above, leveled(weaker, level="pack", bundle_id="POLICY_B")) == ["duplicate_rule"]


def test_one_bundle_in_two_versions_is_refused():
    one = leveled(rule("R_1", True))
    assert codes(one, replace(one, version="1.0.1")) == ["duplicate_bundle"]
    assert codes(one, replace(one, digest="sha256:" + "1" * 64)) == ["duplicate_bundle"]
    policy(one, replace(one, level="pack"))
