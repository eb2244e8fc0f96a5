"""The inputs of a compile are put into an order of their own, whatever order they came in."""

from __future__ import annotations

from contextos.context.inputs import PackInputs, SurfaceInputs
from contextos.contracts.envelopes.policy import PolicyBundle
from tests.unit.context import samples

RULES = {"language": "jsonlogic", "rules": [{"rule_id": "R_ANY", "if": True, "then": {"allow": False}}]}


def bundle(bundle_id: str, priority: int = 0) -> PolicyBundle:
    return PolicyBundle.model_validate({"bundle_id": bundle_id, "priority": priority, "policy_dsl": RULES})


def test_bundles_in_force_are_sorted_and_the_packs_own_bundle_counts() -> None:
    inputs = PackInputs(samples.pack(), "ctxpack.support@5.2.0", [bundle("POLICY_Z"), bundle("POLICY_RETURNS_V4", 99)])
    assert [one.bundle_id for one in inputs.bundles_in_force] == ["POLICY_RETURNS_V4", "POLICY_Z"]
    assert inputs.bundles_in_force[0].priority == 10


def test_decisions_are_sorted_by_capability() -> None:
    decisions = {name: samples.decision(name) for name in ("b.two", "a.one")}
    found = SurfaceInputs([], decisions).decisions_in_order
    assert [decision.capability_id for decision in found] == ["a.one", "b.two"]
