"""Conditions that JsonLogic would get wrong: fact checks make their rules indeterminate."""

from __future__ import annotations

import pytest

from contextos.contracts.controls import KnownFacts
from contextos.contracts.envelopes.policy import AppliesTo
from contextos.trust.policy.rule_evaluation import RuleGroup
from contextos.trust.policy.rules import CompiledRule
from tests.policies import ALLOW_AGENTS, FACTS, NOTE, decide, facts, leveled, policy, rule, var

N = var("args.n")


def test_an_answer_that_is_no_boolean_is_no_answer():
    """Lint makes this impossible; if it ever is not, the rule is indeterminate and not false."""
    odd = CompiledRule("R_ODD", (0, "", "R_ODD"), "", (0, 0), AppliesTo(), {"+": [1, 2]}, ())
    outcome = RuleGroup([odd]).evaluate(KnownFacts({}))
    assert (outcome.matched, outcome.indeterminate) == ([], [(odd, ())])


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
