"""What does not lint, and the traps of JsonLogic that lint and fact checks close."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from datalogic_py import DataHandle

from contextos.contracts.envelopes.policy import AppliesTo
from contextos.errors import InvalidArtifact
from contextos.trust.policy.conditions import analyse_condition
from contextos.trust.policy.rule_evaluation import RuleGroup
from contextos.trust.policy.rules import CompiledRule
from tests.policies import ALLOW_AGENTS, FACTS, LOOKUP, NOTE, REFUND, decide, facts, leveled, policy, rule, var


def codes(*bundles: Any, **more: Any) -> list[str]:
    with pytest.raises(InvalidArtifact) as refused:
        policy(*bundles, **more)
    assert all(problem.remedy and problem.pointer for problem in refused.value.problems)
    return [problem.code for problem in refused.value.problems]


def nested(depth: int) -> Any:
    node: Any = True
    for _ in range(depth):
        node = {"!": [node]}
    return node


N = var("args.n")


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ({"vr": "user.role"}, "unknown_operator"),
        ({"exists": ["user", "role"]}, "unknown_operator"),
        ({"val": ["user", "role"]}, "unknown_operator"),
        ({"cat": ["a", "b"]}, "unknown_operator"),
        ({"a": 1, "b": 2}, "not_an_operation"),
        ({}, "not_an_operation"),
        ({"some": [var("user.roles"), {"==": [var(""), "x"]}]}, "iterator"),
        ({"reduce": [var("user.roles"), True, 0]}, "iterator"),
        (var({"if": [True, "user.role", "user.tier"]}), "computed_path"),
        (var([]), "argument_count"),
        (var(1), "computed_path"),
        (var(""), "unknown_fact"),
        (var("user..role"), "unknown_fact"),
        (var("model.name"), "unknown_fact"),
        ({"missing": ["user.role"]}, "not_a_condition"),
        ({"!": [{"missing": [N]}]}, "computed_path"),
        ({"!": [{"missing_some": ["user.role"]}]}, "argument_count"),
        ({"==": [N, var("args.m")]}, "type_not_derivable"),
        ({"==": [N, None]}, "type_not_derivable"),
        ({"==": ["1", 1]}, "type_not_derivable"),
        ({"==": [N, [1]]}, "type_not_derivable"),
        ({"==": [N, 1, 1]}, "argument_count"),
        ({"in": [var("user.role"), var("user.roles")]}, "type_not_derivable"),
        ({"in": [var("user.role"), "agent,lead"]}, "type_not_derivable"),
        ({"in": [var("user.role"), []]}, "type_not_derivable"),
        ({"in": [var("user.role")]}, "argument_count"),
        ({"==": [{}, 1]}, "not_an_operation"),
        ({"in": [var("user.role"), ["a", 1]]}, "type_not_derivable"),
        ({">": [N, "3000"]}, "type_mismatch"),
        ({">": [N]}, "argument_count"),
        ({"and": []}, "argument_count"),
        ({"and": [3, True]}, "type_mismatch"),
        ({"and": [{"+": [N, 1]}, True]}, "type_mismatch"),
        ({"and": [N, {">": [N, 1]}]}, "type_mismatch"),
        ({"<": [var(["args.n", "0"]), 3]}, "type_mismatch"),
        ({"<": [var(["args.n", None]), 3]}, "type_mismatch"),
        ({"if": [True, True]}, "argument_count"),
        ({"if": [True, 1, False]}, "type_mismatch"),
        ("yes", "type_mismatch"),
        (1, "type_mismatch"),
        (None, "not_a_literal"),
        ([True], "not_a_literal"),
        ({">": [N, float("nan")]}, "not_a_literal"),
        ({">": [N, 2**60]}, "not_a_literal"),
        ({">": [{"/": [N, 0]}, 1]}, "divisor"),
        ({">": [{"%": [N, N]}, 1]}, "divisor"),
        ({">": [{"*": [N] * 20}, 1]}, "overflow"),
        ({">": [{"/": [N, 5e-324]}, 1]}, "overflow"),
        (nested(21), "condition_too_large"),
        (nested(2000), "condition_too_large"),
        ({"in": [N, list(range(600))]}, "condition_too_large"),
    ],
)
def test_a_condition_that_could_fail_open_does_not_lint(condition, code):
    assert code in [problem.code for problem in analyse_condition(condition).problems]


def test_problems_point_into_the_bundle():
    bad = rule("R_BAD", {"and": [True, {">": [N, "3000"]}]})
    with pytest.raises(InvalidArtifact) as refused:
        policy(leveled(ALLOW_AGENTS, bad))
    (problem,) = refused.value.problems
    assert problem.pointer == "/policy_dsl/rules/1/if/and/1/>/1"
    assert "`R_BAD` of `POLICY_A`" in problem.detail


def test_reads_name_every_fact_with_its_type():
    condition = {
        "and": [
            {"in": ["lead", var("user.roles")]},
            {"in": ["refund", var("request.message")]},
            {"<": [var(["args.n", 0]), 3]},
            {"!": [{"missing": ["args.note"]}]},
            var("evidence.ok"),
            {"==": [var("user.a"), var("user.b")]},
            {"if": [{"missing_some": [1, ["args.m"]]}, True, False]},
        ]
    }
    found = analyse_condition(condition, {"user.roles": "array", "request.message": "string", "user.a": "number"})
    assert found.problems == ()
    assert found.reads == {
        "user.roles": "array<string>",
        "request.message": "string",
        "args.n": "number",
        "args.note": None,
        "evidence.ok": "boolean",
        "user.a": "number",
        "user.b": "number",
        "args.m": None,
    }
    assert {fact.path for fact in found.facts if not fact.required} == {"args.n", "args.note", "args.m"}


def test_a_branch_gives_its_type_to_what_it_is_compared_with():
    choice = {"if": [var("user.lead"), var("user.limit"), 100]}
    assert analyse_condition({"==": [var("args.n"), choice]}).reads == {
        "args.n": "number",
        "user.lead": "boolean",
        "user.limit": "number",
    }
    assert analyse_condition({"==": [var("args.n"), {"+": [var("args.m"), 1]}]}).reads == {
        "args.n": "number",
        "args.m": "number",
    }


def test_more_rules_than_the_limit_are_refused(monkeypatch):
    monkeypatch.setattr("contextos.trust.policy.rules.MAX_RULES", 1)
    assert codes(leveled(rule("R_1", True), rule("R_2", True))) == ["too_many"]


def test_an_answer_that_is_no_boolean_is_no_answer():
    """Lint makes this impossible; if it ever is not, the rule is indeterminate and not false."""
    odd = CompiledRule("R_ODD", (0, "", "R_ODD"), "", (0, 0), AppliesTo(), {"+": [1, 2]}, ())
    outcome = RuleGroup([odd], None, frozenset(), frozenset()).ask({}, DataHandle({}))
    assert (outcome.matched, outcome.indeterminate) == ([], [(odd, ())])


def test_a_declared_fact_must_be_read_and_used_as_declared():
    assert "fact_not_read" in codes(leveled(rule("R_1", {">": [N, 1]}, facts={"args.m": "number"})))
    assert "type_mismatch" in codes(leveled(rule("R_1", {">": [N, 1]}, facts={"args.n": "string"})))


@pytest.mark.parametrize(
    ("made", "more", "code"),
    [
        (rule("R_1", {">": [N, 1]}, applies_to={"point": "compile"}), {}, "point_too_early"),
        (rule("R_1", {">": [N, 1]}, applies_to={"point": "plan"}), {}, "point_too_early"),
        (rule("R_1", var("evidence.ok"), applies_to={"point": "plan"}), {}, "point_too_early"),
        (rule("R_1", True, requires_approval_gate="GATE_NOWHERE"), {}, "unknown_gate"),
        (rule("R_1", True, approval_mode="delegated"), {}, "mode_not_bounded"),
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
        (rule("R_1", {"!": [{"missing": ["request.attachments"]}]}), {}, "asserted_fact"),
        (rule("R_1", {"==": [var("request.anything"), 1]}), {}, "asserted_fact"),
        (rule("R_1", {"==": [var("run.metadata.note"), "x"]}), {}, "asserted_fact"),
        (
            rule("R_1", var("request.context.vip"), allow=False, requires_approval_gate="GATE_LEGAL"),
            {},
            "asserted_fact",
        ),
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
def test_a_rule_of_above_cannot_be_restated_below():
    above = leveled(rule("R_1", True, allow=False))
    passable = rule("R_1", True, allow=False, non_enforcing=True)
    for weaker in (rule("R_1", False, allow=False), rule("R_1", True), passable):
        assert codes(above, leveled(weaker, level="pack", bundle_id="POLICY_B")) == ["duplicate_rule"]


def test_one_bundle_in_two_versions_is_refused():
    one = leveled(rule("R_1", True))
    assert codes(one, replace(one, version="1.0.1")) == ["duplicate_bundle"]
    assert codes(one, replace(one, digest="sha256:" + "1" * 64)) == ["duplicate_bundle"]
    policy(one, replace(one, level="pack"))


@pytest.mark.parametrize(
    ("condition", "path", "values"),
    [
        ({"<": [N, 3000]}, "args.n", [..., None, "2", "", True, [], {}, 1e300]),
        ({">": [N, 3000]}, "args.n", [..., None, "4000", True, [4000], -1e17]),
        ({"==": [var("args.ok"), True]}, "args.ok", [..., None, "true", 1, "1", [True]]),
        ({"!=": [var("args.ok"), True]}, "args.ok", [..., None, "false", 0]),
        ({"!": [var("args.ok")]}, "args.ok", [..., None, "", 0, []]),
        ({"in": [var("args.s"), ["a", "b"]]}, "args.s", [..., None, 1, ["a"]]),
        ({"!": [{"in": ["x", var("args.l")]}]}, "args.l", [..., None, "xyz", [1], [None], ["a", 1], {}]),
        ({"!": [{"in": ["x", var("args.t")]}]}, "args.t", [..., None, ["y"], 1]),
        ({"<": [var(["args.n", 0]), 3000]}, "args.n", [None, "2", True]),
        ({"!": [{"missing": ["args.n"]}]}, "args.n", [None]),
        ({"or": [True, {">": [N, 1]}]}, "args.n", [..., None, "x"]),
        ({"if": [{"missing": ["args.n"]}, True, {">": [N, 1]}]}, "args.n", [None, "2"]),
        ({"<": [var("args.deep.n"), 1]}, "args.deep", [..., None, "x", 1, [0]]),
        ({"<": [var(["args.deep.n", 0]), 1]}, "args.deep", [None, "x", 1]),
        ({"!!": [{"missing": ["args.deep.n"]}]}, "args.deep", [None, "x"]),
    ],
)
def test_the_traps_of_jsonlogic_are_indeterminate(condition, path, values):
    """`null > 3000` is false, `"4000" > 3000` and `"true" == true` are true, and a missing fact is below 3000."""
    declared = {"args.l": "array", "args.t": "string"}.items()
    made = rule("R_T", condition, allow=False, facts={name: kind for name, kind in declared if name in str(condition)})
    policies = policy(leveled(ALLOW_AGENTS, made))
    good = {"n": 5000, "ok": True, "s": "c", "l": ["x"], "t": "xyz", "deep": {"n": 5}}
    for value in values:
        changed = facts(args=dict(good), **{path.replace(".", "__"): value})
        decision = decide(policies, changed, NOTE)
        assert decision.reason == "indeterminate", value
        assert decision.indeterminate[0].rule_id == "R_T"
        assert decision.indeterminate[0].facts[0].startswith(path)


def test_absence_is_allowed_only_where_the_author_says_so():
    policies = policy(
        leveled(
            ALLOW_AGENTS,
            rule("R_D", {">": [{"var": ["args.d", 0]}, 1]}, allow=False),
            rule("R_M", {"if": [{"missing": ["args.m"]}, False, {">": [var("args.m"), 1]}]}, allow=False),
        )
    )
    assert decide(policies, FACTS, NOTE).allowed
    assert decide(policies, facts(args__d=2), NOTE).denying_rule_ids == ("R_D",)
    assert decide(policies, facts(args__m=2), NOTE).denying_rule_ids == ("R_M",)


def test_an_absent_fact_read_without_its_guard_is_indeterminate():
    unguarded = rule("R_U", {"or": [{">": [N, 1]}, {"!!": [{"missing": "args.n"}]}]}, allow=False)
    decision = decide(policy(leveled(ALLOW_AGENTS, unguarded)), FACTS, NOTE)
    assert (decision.reason, decision.indeterminate[0].facts) == ("indeterminate", ("args.n",))


def test_a_rule_beyond_the_budget_of_operations_is_indeterminate():
    endless = rule("R_B", {"in": ["x", var("args.l")]}, allow=False, facts={"args.l": "array"})
    policies = policy(leveled(ALLOW_AGENTS, endless))
    assert decide(policies, facts(args__l=["y"] * 10), NOTE).allowed
    decision = decide(policies, facts(args__l=["y"] * 1_100_000), NOTE)
    assert (decision.reason, decision.indeterminate[0].rule_id) == ("indeterminate", "R_B")


def test_dotted_keys_are_not_paths():
    policies = policy(leveled(rule("R_1", {"==": [var("user.role"), "admin"]})))
    hostile = facts(user={"role": "intern", "role.x": "admin"}) | {"user": {"role": "intern"}}
    hostile["request"]["user.role"] = "admin"
    assert decide(policies, hostile, NOTE).reason == "no_rule_allows"
