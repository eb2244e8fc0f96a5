"""The policy engine answers what the naive reference answers, over generated bundles and hostile facts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.envelopes.policy import POINTS, CapabilityView, LeveledBundle, PolicyDecision
from tests import reference
from tests.policies import CAPABILITIES, ID, broken_facts, bundle_sets, conditions, policy


def _expected(
    bundles: list[LeveledBundle],
    point: str,
    facts: dict[str, Any],
    view: CapabilityView | None,
    granted: bool,
    **more: Any,
) -> dict[str, Any]:
    capability = view and {"id": view.capability_id, "mode": view.declared_mode, "facts": view.facts}
    wire = [(leveled.level, leveled.bundle.to_json()) for leveled in bundles]
    return reference.policy_decision(wire, point, facts, capability, granted, **more)


def _shown(decision: PolicyDecision) -> dict[str, Any]:
    return {
        "allowed": decision.allowed,
        "reason": decision.reason,
        "effective_approval_mode": decision.effective_approval_mode,
        "gates": list(decision.gates),
        "prohibits": list(decision.prohibits),
        "requires": list(decision.requires),
        "arg_constraints": {
            name: [one.to_json() for one in bounds] for name, bounds in decision.arg_constraints.items()
        },
        "matched": list(decision.matched_rule_ids),
        "denying": list(decision.denying_rule_ids),
        "undecided": [{"rule_id": one.rule_id, "facts": sorted(one.facts)} for one in decision.indeterminate],
        "passed_over": list(decision.passed_over),
        "observed": sorted(decision.observed),
        "must_refuse": len(decision.must_refuse),
        "must_escalate": len(decision.must_escalate),
    }


def _comparable(expected: dict[str, Any]) -> dict[str, Any]:
    undecided = [{**one, "facts": sorted(one["facts"])} for one in expected["undecided"]]
    return {**expected, "undecided": undecided, "observed": sorted(expected["observed"])}


@given(bundle_sets(), broken_facts(), st.sampled_from(POINTS), st.sampled_from((*CAPABILITIES, None)), st.booleans())
def test_every_decision_equals_the_reference(bundles, facts, point, view, granted):
    decision = policy(*bundles).decide(point, facts, capability=view, granted=granted, decision_id=ID)
    assert _shown(decision) == _comparable(_expected(bundles, point, facts, view, granted))


@given(
    bundle_sets(passable=False, observe=False),
    st.lists(conditions(), max_size=2, unique_by=str),
    broken_facts(),
    st.sampled_from(POINTS),
    st.data(),
)
def test_guardrails_equal_the_reference(bundles, guards, facts, point, data):
    guards = [guard for guard in guards if isinstance(guard, dict) and "user.roles" not in str(guard)]
    ids = [rule.rule_id for leveled in bundles for rule in leveled.bundle.policy_dsl.rules]
    entries = [*guards, *(data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else [])]
    side = data.draw(st.sampled_from(("must_refuse", "must_escalate")))
    view = data.draw(st.sampled_from(CAPABILITIES))
    decision = policy(*bundles, **{side: entries}).decide(point, facts, capability=view, granted=True, decision_id=ID)
    expected = _comparable(_expected(bundles, point, facts, view, True, **{side: entries}))
    shown = _shown(decision)
    for own in ("matched", "undecided"):  # the conditions of guardrails have ids of their own
        shown[own] = [one for one in shown[own] if "R_GUARD_" not in str(one)]
    assert shown == expected


@given(
    bundle_sets(),
    st.lists(
        st.tuples(broken_facts(), st.sampled_from(POINTS), st.sampled_from((*CAPABILITIES, None)), st.booleans()),
        min_size=2,
        max_size=6,
    ),
)
def test_a_set_that_has_decided_before_decides_as_a_new_one(bundles, questions):
    kept = policy(*bundles)
    for facts, point, view, granted in [*questions, *questions]:
        asked = {"capability": view, "granted": granted, "decision_id": ID}
        assert kept.decide(point, facts, **asked) == policy(*bundles).decide(point, facts, **asked)
