"""What the policy engine decides: defaults, levels, combination, modes, points, guardrails."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.controls import KnownFacts
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.policy import APPROVAL_MODES, POINTS, CapabilityView, PolicyDecision
from contextos.errors import InvalidInput
from tests.policies import (
    ALLOW_AGENTS,
    CAPABILITIES,
    EXAMPLE,
    FACTS,
    ID,
    LOOKUP,
    NOTE,
    REFUND,
    SMALL,
    WRONG,
    bundle_sets,
    decide,
    facts,
    leveled,
    paths_in,
    policy,
    put,
    rule,
    var,
)

EARLY = {root: value for root, value in FACTS.items() if root not in ("args", "evidence", "history", "provenance")}


@pytest.mark.requirement("P-DEFAULT")
def test_an_empty_set_allows_only_granted_reads():
    empty = policy()
    assert decide(empty, FACTS, LOOKUP).reason == "allowed_by_default"
    assert decide(empty, FACTS, LOOKUP, granted=False).reason == "no_rule_allows"
    for view in (NOTE, REFUND, None):
        assert decide(empty, FACTS, view, granted=True).reason == "no_rule_allows"


def test_the_planned_example_delegates_small_refunds_and_gates_large_ones():
    policies = policy(leveled(*EXAMPLE))
    small = decide(policies, facts(args__amount_inr=3000))
    assert (small.allowed, small.effective_approval_mode, small.gates) == (True, "delegated", ())
    assert small.arg_constraints["amount_inr"][0].max == 3000
    large = decide(policies, facts(args__amount_inr=3001))
    assert (large.allowed, large.effective_approval_mode) == (True, "destructive")
    assert large.gates == ("GATE_FINANCE_APPROVAL",)
    assert decide(policies, facts(evidence__identity_verified=False)).denying_rule_ids == ("R_IDENTITY",)
    intern = EARLY | {"user": {"role": "intern"}}
    assert decide(policies, intern, point="compile").reason == "no_rule_allows"


@pytest.mark.parametrize("point", POINTS)
def test_a_rule_that_reads_arguments_waits_until_they_exist(point):
    policies = policy(leveled(ALLOW_AGENTS, SMALL))
    matched = decide(policies, EARLY, point=point).matched_rule_ids
    if point == "execute":
        assert decide(policies, EARLY, point=point).indeterminate[0].facts == ("args.amount_inr",)
    else:
        assert matched == ("R_AGENTS",)
        assert decide(policies, EARLY, point=point).reason == "allowed"


def test_at_plan_only_literal_arguments_are_evaluated():
    policies = policy(leveled(ALLOW_AGENTS, SMALL, rule("R_EUR", {"==": [var("args.currency"), "EUR"]}, allow=False)))
    literal_amount = decide(policies, EARLY | {"args": {"amount_inr": 10}}, point="plan")
    assert literal_amount.matched_rule_ids == ("R_AGENTS", "R_SMALL")
    assert decide(policies, EARLY | {"args": {"currency": "EUR"}}, point="plan").reason == "denied_by_rule"
    assert decide(policies, EARLY | {"args": {"amount_inr": "10"}}, point="plan").reason == "indeterminate"


def test_a_gate_is_only_missed_at_execute():
    policies = policy(leveled(ALLOW_AGENTS))
    assert decide(policies, FACTS).reason == "gate_missing"
    assert decide(policies, FACTS, point="compile").reason == "allowed"


@pytest.mark.requirement("P-LEVELS")
@pytest.mark.parametrize("level", ["tenant", "pack"])
def test_a_platform_deny_cannot_be_undone_below(level):
    deny = leveled(rule("R_NO", True, allow=False))
    allow = leveled(
        rule("R_YES", True), rule("R_YES_TOO", True, non_enforcing=True), level=level, bundle_id="POLICY_B", priority=9
    )
    decision = decide(policy(deny, allow), FACTS, NOTE)
    assert (decision.reason, decision.denying_rule_ids) == ("denied_by_rule", ("R_NO",))


@pytest.mark.requirement("P-LEVELS")
def test_an_equal_rule_at_a_lower_level_changes_nothing():
    deny = rule("R_NO", True, allow=False)
    below = leveled(deny, rule("R_YES", True), level="pack", bundle_id="POLICY_B", mode="observe")
    for order in ((leveled(deny), below), (below, leveled(deny))):
        decision = decide(policy(*order), FACTS, NOTE)
        assert (decision.reason, decision.observed) == ("denied_by_rule", ("R_YES",))


@pytest.mark.requirement("P-OBSERVE")
def test_what_observes_is_reported_and_never_counts():
    watching = leveled(
        rule("R_YES", True),
        rule("R_NO", True, allow=False),
        rule("R_UNSURE", var("evidence.absent")),
        rule("R_NOT", False),
        level="tenant",
        bundle_id="POLICY_B",
        mode="observe",
    )
    decision = decide(policy(leveled(rule("R_OTHER", False)), watching), FACTS, NOTE)
    assert decision.reason == "no_rule_allows"
    assert sorted(decision.observed) == ["R_NO", "R_UNSURE", "R_YES"]
    assert (decision.matched_rule_ids, decision.bundle_ids) == ((), ("POLICY_A", "POLICY_B"))


def test_a_rule_that_is_not_enforced_is_passed_over_and_can_only_tighten():
    passable = rule("R_P", {"==": [var("tenant.tier"), "gold"]}, non_enforcing=True)
    policies = policy(leveled(passable))
    assert decide(policies, FACTS, NOTE).reason == "no_rule_allows"
    assert decide(policies, FACTS, NOTE).matched_rule_ids == ("R_P",)
    assert decide(policies, facts(tenant__tier=None), NOTE).passed_over == ("R_P",)
    firm = leveled(rule("R_YES", True), dict(passable, then={"allow": False}))
    assert decide(policy(firm), FACTS, NOTE).reason == "denied_by_rule"
    assert decide(policy(firm), facts(tenant__tier=1), NOTE).reason == "allowed"


@pytest.mark.requirement("P-COMBINE")
def test_gates_needs_prohibitions_and_bounds_are_united():
    one = rule("R_1", True, requires=["a", "b"], requires_approval_gate="GATE_LEGAL", arg_constraints={"x": {"max": 3}})
    two = rule(
        "R_2",
        True,
        requires=["b", "c"],
        prohibits=["adp_x.y"],
        requires_approval_gate="GATE_FINANCE_APPROVAL",
        arg_constraints={"x": {"max": 2}, "y": {"required": True}},
    )
    same = rule("R_3", True, arg_constraints={"x": {"max": 3}})
    decision = decide(policy(leveled(one, two, same)), FACTS)
    assert decision.gates == ("GATE_LEGAL", "GATE_FINANCE_APPROVAL")
    assert (decision.requires, decision.prohibits) == (("a", "b", "c"), ("adp_x.y",))
    maxima = {name: [bound.max for bound in bounds] for name, bounds in decision.arg_constraints.items()}
    assert maxima == {"x": [3, 2], "y": [None]}


def test_a_prohibited_capability_is_denied():
    policies = policy(leveled(ALLOW_AGENTS, rule("R_P", True, prohibits=[NOTE.capability_id])))
    assert decide(policies, FACTS, NOTE).reason == "prohibited"
    assert decide(policies, FACTS, LOOKUP).reason == "allowed"


@pytest.mark.requirement("P-COMBINE")
def test_of_several_modes_the_strictest_counts():
    bound = {"x": {"max": 1}}
    low = rule("R_LOW", True, approval_mode="read_only", arg_constraints=bound)
    high = rule("R_HIGH", True, approval_mode="network", arg_constraints=bound)
    assert decide(policy(leveled(low)), FACTS).effective_approval_mode == "read_only"
    assert decide(policy(leveled(low, high)), FACTS).effective_approval_mode == "network"
    above = decide(policy(leveled(high)), FACTS, NOTE)
    assert (above.allowed, above.reason) == (False, "mode_above_declared")


def test_a_mode_lowered_without_a_bound_is_denied_even_where_lint_was_disabled():
    free = rule("R_FREE", True, approval_mode="local_write", applies_to={"capability": REFUND.capability_id})
    policies = policy(leveled(free), declared={REFUND.capability_id: "local_write"})
    decision = decide(policies, FACTS)
    assert (decision.reason, decision.effective_approval_mode) == ("mode_not_bounded", "destructive")


def test_guardrails_win_over_every_allow():
    condition = {">": [var("history.refunds.count"), 5]}
    named = rule("R_NAMED", var("request.context.vip"))
    bundle = leveled(ALLOW_AGENTS, named, accept_asserted=["request.context.vip"])
    policies = policy(bundle, must_refuse=["R_NAMED"], must_escalate=[condition])
    quiet = decide(policies, FACTS, NOTE)
    assert (quiet.reason, quiet.must_refuse, quiet.must_escalate) == ("allowed", (), ())
    refused = decide(policies, facts(request__context__vip=True), NOTE)
    assert (refused.reason, refused.must_refuse) == ("must_refuse", ("R_NAMED",))
    unsure = decide(policies, facts(request__context__vip="true"), NOTE)
    assert (unsure.reason, unsure.indeterminate[0].facts) == ("must_refuse", ("request.context.vip",))
    escalated = decide(policies, facts(history__refunds__count=6), NOTE)
    assert (escalated.allowed, len(escalated.must_escalate)) == (True, 1)
    no_history = decide(policies, facts(history__refunds=...), NOTE)
    assert (no_history.allowed, len(no_history.must_escalate)) == (False, 1)


def test_an_active_must_escalate_is_no_allow():
    assert decide(policy(must_escalate=[{"!": [False]}]), FACTS, NOTE).reason == "no_rule_allows"


def test_a_rule_that_does_not_apply_is_not_asked():
    others = [
        rule("R_1", var("evidence.nothing"), applies_to={"intent": "sales.quote"}),
        rule("R_2", var("evidence.nothing"), applies_to={"capability": LOOKUP.capability_id}),
        rule("R_3", var("evidence.nothing"), applies_to={"environment": "dev"}),
        rule("R_4", var("evidence.nothing"), applies_to={"point": "commit"}),
    ]
    assert decide(policy(leveled(ALLOW_AGENTS, *others)), FACTS, NOTE).reason == "allowed"


@pytest.mark.parametrize("applies", [{"intent": "support.refund"}, {"environment": "prod"}])
@pytest.mark.parametrize("value", [..., None, 7, ""])
def test_a_rule_whose_selecting_fact_is_unknown_is_indeterminate(applies, value):
    policies = policy(leveled(ALLOW_AGENTS, rule("R_NO", False, allow=False, applies_to=applies)))
    path = "request.intent" if "intent" in applies else "run.environment"
    assert decide(policies, FACTS, NOTE).reason == "allowed"
    unknown = decide(policies, facts(**{path.replace(".", "__"): value}), NOTE)
    assert (unknown.reason, unknown.indeterminate[0].facts) == ("indeterminate", (path,))


def test_two_intents_that_disagree_are_none():
    policies = policy(leveled(ALLOW_AGENTS, rule("R_NO", False, allow=False, applies_to={"intent": "support.refund"})))
    assert decide(policies, facts(run__intent="support.refund"), NOTE).reason == "allowed"
    assert decide(policies, facts(run__intent="sales.quote"), NOTE).reason == "indeterminate"


def test_the_record_says_which_asserted_facts_an_allow_relied_on():
    vip = rule("R_VIP", {"!": [var("request.context.vip")]})
    policies = policy(leveled(vip, accept_asserted=["request.context.vip"]))
    assert decide(policies, FACTS, NOTE).asserted == ("request.context.vip",)
    assert decide(policies, facts(request__context__vip=True), NOTE).asserted == ()


def of_roots(roots):
    return content_address({name: content_address(value) for name, value in roots.items()})


def test_the_digest_is_that_of_the_digests_of_all_roots_with_the_capability():
    policies = policy(leveled(ALLOW_AGENTS))
    assert decide(policies, FACTS).facts_digest == of_roots(FACTS | {"capability": REFUND.facts})
    assert decide(policies, FACTS, None).facts_digest == of_roots(FACTS)
    assert decide(policies, EARLY, point="plan").facts_digest == of_roots(EARLY | {"capability": REFUND.facts})
    assert decide(policies, {}, None).facts_digest == of_roots({})


def test_facts_that_were_made_of_others_are_as_those_that_were_made_anew():
    """The digest of a root is kept, and its value is what a later fact replaces."""
    facts = KnownFacts(FACTS)
    digest, more = facts.digest(), facts.also({"args": {"amount": 1}, "user": {"role": "other"}})
    anew = KnownFacts(FACTS | {"args": {"amount": 1}, "user": {"role": "other"}})
    assert (more, more.digest(REFUND)) == (anew, anew.digest(REFUND))
    assert (facts, facts.digest()) == (FACTS, digest)


@pytest.mark.parametrize(
    "bad", [{"capability": {}}, {"mood": {}}, {"user": {"score": float("nan")}}, {"user": {"n": 2**60}}]
)
def test_facts_that_are_no_facts_are_refused(bad):
    with pytest.raises(InvalidInput):
        decide(policy(), bad)


@pytest.mark.requirement("P-COMBINE")
@given(bundle_sets(), st.sampled_from(POINTS), st.sampled_from(CAPABILITIES), st.randoms(use_true_random=False))
def test_the_order_of_bundles_and_rules_changes_nothing(bundles, point, view, chance: random.Random):
    shuffled = []
    for one in chance.sample(bundles, len(bundles)):
        rules = one.bundle.policy_dsl.rules
        dsl = one.bundle.policy_dsl.model_copy(update={"rules": tuple(chance.sample(rules, len(rules)))})
        shuffled.append(replace(one, bundle=one.bundle.model_copy(update={"policy_dsl": dsl})))
    assert decide(policy(*bundles), FACTS, view, point=point) == decide(policy(*shuffled), FACTS, view, point=point)


@given(bundle_sets(), st.sampled_from(POINTS), st.sampled_from((*CAPABILITIES, None)))
def test_a_decision_is_a_valid_sealed_contract(bundles, point, view):
    decision = decide(policy(*bundles), FACTS, view, point=point)
    assert PolicyDecision.model_validate(decision.to_json()) == decision == decision.sealed()
    # The run pins the bundles, so the journal does not state them again.
    assert (
        decision.stated() | ({"bundle_ids": list(decision.bundle_ids)} if decision.bundle_ids else {})
        == decision.to_json()
    )


def _looser(after: PolicyDecision, before: PolicyDecision) -> bool:
    if not after.allowed:
        return False
    if not before.allowed:
        return True
    lower = APPROVAL_MODES.index(after.effective_approval_mode) < APPROVAL_MODES.index(before.effective_approval_mode)
    return lower or not (
        set(before.gates) <= set(after.gates)
        and set(before.requires) <= set(after.requires)
        and all(
            set(map(str, bounds)) <= set(map(str, after.arg_constraints.get(name, ())))
            for name, bounds in before.arg_constraints.items()
        )
    )


def _type(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


SELECTING = {"request.intent", "run.environment"}


@given(
    bundle_sets(optional=False, passable=False),
    st.sampled_from(("compile", "execute")),
    st.sampled_from(CAPABILITIES),
    st.data(),
)
def test_missing_null_or_mistyped_fact_never_loosens_the_outcome(bundles, point, view: CapabilityView, data):
    read = {path for one in bundles for r in one.bundle.policy_dsl.rules for path in paths_in(r.condition)} | SELECTING
    path = data.draw(st.sampled_from(sorted(path for path in read if not path.startswith("capability"))))
    before_value: Any = FACTS
    for step in path.split("."):
        before_value = before_value[step]
    value = data.draw(st.just(...) | WRONG.filter(lambda wrong: _type(wrong) != _type(before_value)))
    changed = facts(**{path.replace(".", "__"): value})
    policies = policy(*bundles)
    before, after = decide(policies, FACTS, view, point=point), decide(policies, changed, view, point=point)
    assert not _looser(after, before), (path, value)


@pytest.mark.parametrize("path", ["args.amount_inr", "user.role", "evidence.identity_verified"])
@pytest.mark.parametrize("amount", [2500, 4000])
@pytest.mark.parametrize("value", [..., None, [], {}, ["4000"], "wrong type"])
def test_every_rule_of_the_example_denies_without_its_facts(path, amount, value):
    policies = policy(leveled(*EXAMPLE))
    if value == "wrong type":
        value = {"args.amount_inr": "4000", "user.role": 1, "evidence.identity_verified": "true"}[path]
    changed = facts(args__amount_inr=amount)
    put(changed, path, value)
    decision = decide(policies, changed)
    assert not decision.allowed
    assert path in {fact for unsure in decision.indeterminate for fact in unsure.facts}


def test_what_one_tool_was_decided_is_no_answer_for_another():
    reads_capability = rule("R_CAP", {"==": [var("capability.kind"), "read"]})
    only_notes = rule("R_NOTE", True, applies_to={"capability": NOTE.capability_id})
    views = [CapabilityView(f"adp_x.act_{index}", "local_write", {"kind": "read"}) for index in range(5)]
    for rules in ([ALLOW_AGENTS], [ALLOW_AGENTS, reads_capability], [ALLOW_AGENTS, only_notes]):
        kept, facts, together = policy(leveled(*rules)), KnownFacts(EARLY), list[PolicyDecision]()
        for one in (*views, NOTE, LOOKUP):
            asked: Any = {"capability": one, "granted": one is LOOKUP, "decision_id": ID}
            together.append(kept.decide("compile", facts, **asked))
            assert together[-1] == policy(leveled(*rules)).decide("compile", EARLY, **asked)
        assert len({one.facts_digest for one in together}) == 3


def test_a_set_answers_the_same_after_it_could_not_decide():
    never, tenure = rule("R_NEVER", False), rule("R_TENURE", {">": [var("user.tenure_days"), 30]})
    policies = policy(leveled(ALLOW_AGENTS, never, tenure))
    good, bad = decide(policies, FACTS, NOTE), facts(user__tenure_days=None)
    unsure = decide(policies, bad, NOTE)
    assert (unsure.matched_rule_ids, unsure.reason) == (("R_AGENTS",), "indeterminate")
    assert decide(policies, bad, NOTE) == unsure
    assert decide(policies, FACTS, NOTE) == good


def test_ids_are_the_callers():
    assert decide(policy(), {}).policy_decision_id == ID
