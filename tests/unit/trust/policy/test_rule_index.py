"""A rule that does not apply is not found, and one that cannot be placed is indeterminate."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.controls import KnownFacts
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.policy import POINTS
from contextos.contracts.facts import ROOTS
from contextos.errors import InvalidInput
from contextos.trust.policy import rule_index
from contextos.trust.policy.rule_index import RuleIndex
from tests.policies import (
    ALLOW_AGENTS,
    CAPABILITIES,
    FACTS,
    ID,
    NOTE,
    REFUND,
    broken_facts,
    bundle_sets,
    decide,
    facts,
    leveled,
    policy,
    rule,
)

DENY_SALES = rule("R_SALES", True, allow=False, applies_to={"intent": "sales.quote"})
DENY_HERE = rule("R_HERE", True, allow=False, applies_to={"capability": REFUND.capability_id})


def test_a_rule_of_another_intent_or_capability_does_not_apply() -> None:
    decision = decide(policy(leveled(ALLOW_AGENTS, DENY_SALES, DENY_HERE)), facts(), NOTE)
    assert decision.allowed
    assert not decision.denying_rule_ids


@pytest.mark.parametrize("value", [None, "", 7])
def test_a_rule_that_names_an_intent_is_indeterminate_where_the_intent_is_unknown(value: object) -> None:
    unknown = facts(run__intent=value, request__intent=value)
    decision = decide(policy(leveled(ALLOW_AGENTS, DENY_SALES)), unknown, NOTE)
    assert (decision.allowed, decision.reason) == (False, "indeterminate")
    assert [one.rule_id for one in decision.indeterminate] == ["R_SALES"]


def test_an_intent_on_which_run_and_request_disagree_is_unknown() -> None:
    torn = facts(run__intent="support.refund", request__intent="sales.quote")
    assert decide(policy(leveled(ALLOW_AGENTS, DENY_SALES)), torn, NOTE).reason == "indeterminate"


def test_values_that_python_calls_equal_are_each_decided_for_themselves() -> None:
    """The outcome for one is kept, and never found for another."""
    denies = rule("R_ONE", {"==": [{"var": "args.amount_inr"}, 1]}, allow=False)
    kept = policy(leveled(ALLOW_AGENTS, denies))
    for _ in range(2):
        for value in (1, True, 1.0, "1", None, 0, False, 0.0, [1], {"a": 1}, "x" * 100, "x" * 99 + "y", ...):
            asked = facts(args__amount_inr=value)
            assert decide(kept, asked) == decide(policy(leveled(ALLOW_AGENTS, denies)), asked), value


def test_an_outcome_of_what_is_known_so_far_never_counts_at_the_call() -> None:
    denies = rule("R_SCORE", {">": [{"var": "evidence.score"}, 1]}, allow=False)
    kept, known = policy(leveled(ALLOW_AGENTS, denies)), facts(evidence__score=...)
    kept.decide_known(KnownFacts(known), {}, capability=REFUND, granted=True)
    assert decide(kept, known).reason == "indeterminate"


def test_what_is_kept_of_facts_is_short_whatever_they_are() -> None:
    long = facts(args__currency="x" * 100_000)
    group = policy(leveled(rule("R_SAME", {"==": [{"var": "args.currency"}, "INR"]})))
    decide(group, long)
    assert len(str([*group._index._outcomes])) < 10_000


@pytest.mark.parametrize("root", ["capability", "secrets"])
def test_facts_under_an_unknown_root_are_refused(root: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RuleIndex([]).evaluate("execute", {**FACTS, root: {}}, None)
    assert refused.value.problems[0].code == "unknown_fact_root"


def test_the_facts_of_each_capability_are_in_its_own_digest() -> None:
    index = RuleIndex([])
    digests = [index.evaluate("execute", FACTS, one)[1] for one in (REFUND, NOTE, REFUND, None)]
    assert digests[0] == digests[2]
    assert len(set(digests)) == 3


@given(
    bundle_sets(),
    st.lists(
        st.tuples(broken_facts(), st.sampled_from(POINTS), st.sampled_from((*CAPABILITIES, None))),
        min_size=2,
        max_size=6,
    ),
)
def test_an_index_that_keeps_nothing_answers_the_same(bundles, questions):
    """The same facts are asked about several tools and again later, and one set of facts is part of another."""
    kept, new = policy(*bundles), policy(*bundles)
    for asked, point, view in [*questions, *questions]:
        known = KnownFacts({name: asked[name] for name in asked if name not in ("args", "evidence")})
        complete = known.also({name: asked[name] for name in asked if name in ("args", "evidence")})
        with patch.object(rule_index, "kept", lambda _kept, _key, value: value):
            expected = decided(new, point, asked, view)
        assert decided(kept, point, complete, view) == expected


def decided(policies, point, asked, view):
    return policies.decide(point, asked, capability=view, granted=True, decision_id=ID)


STEP = st.dictionaries(
    st.sampled_from([one for one in ROOTS if one != "capability"]), st.dictionaries(st.just("n"), st.integers(0, 9))
)


@given(st.lists(STEP, max_size=4))
def test_facts_in_pieces_have_the_digest_of_the_whole(steps):
    known, whole = KnownFacts({}), {}
    for step in steps:
        whole |= step
        known = known.also(step)
        assert known.served == KnownFacts(whole).served
        for tool, all_of_it in ((None, whole), (REFUND, {**whole, "capability": REFUND.facts})):
            assert known.digest(tool) == content_address(
                {root: content_address(one) for root, one in all_of_it.items()}
            )
